"""A whole export on this machine: plan, processes, manifest, verification, report.

What Spark does with a cluster, a pool of processes does here; both do `export_split`, and both keep the
same state. A handful of small segments is done in this process: nothing is started for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from klog.export import job_state
from klog.export.outputs import TEMPORARY, open_output
from klog.export.planner import plan as make_plan
from klog.export.report import Report, make_report
from klog.export.split_export import ExportJob, SplitResult, export_split
from klog.export.splits import Plan, Split
from klog.export.verify_export import Finding, verify_names, verify_split
from klog.storage.processes import Advanced, Done, Work, run_tasks

SMALL_BYTES: Final = 32 << 20
"""What one process exports before a second one would have started."""

_CURE: Final = "what is done is kept: run again with --resume, and with fewer --jobs if memory was short"

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class Watcher(Protocol):
    """Is told how the job goes."""

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """So many bytes of segments are to do now; `what`: exporting or verifying."""

    def advanced(self, size_bytes: int) -> None:
        """So many more are done."""


class Runner(Protocol):
    """Does tasks in other processes."""

    def __call__(
        self,
        work: Work[TaskT, ResultT],
        tasks: Sequence[TaskT],
        split_of: Callable[[TaskT], Split],
        watcher: Watcher,
    ) -> Iterator[ResultT]:
        """The results of all tasks, in any order. `split_of` says what a task is about; the first is dearest.

        Raises `KlogError` for a task that failed for good.
        """


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run; none of it changes what is written.

    Less than `small_bytes` is done in this process.
    """

    processes: int
    resume: bool = False
    verify: bool = False
    small_bytes: int = SMALL_BYTES


def run_export(job: ExportJob, options: RunOptions, watcher: Watcher, runner: Runner | None = None) -> Report:
    """Export, and say how it went; by `runner` where one is given, else by a pool of processes.

    Raises `UsageError`, `StorageError`, `WorkerDiedError`, and with `fail_on_data_loss` the first error of
    reading.
    """
    started = time.monotonic()
    output = open_output(job.output)
    each = runner or Pool(options.processes, options.small_bytes)
    with output.locked():
        before = job_state.begin(job, partial(make_plan, job.options), resume=options.resume)
        pending = before.pending
        watcher.planned(before.plan, _size_bytes(pending), "exporting")
        work = partial(_export, job=before.job)
        try:
            results = list(each(work, pending, lambda split: split, watcher))
        except BaseException:
            output.remove_directory(TEMPORARY)  # of processes that were ended in the middle of something
            raise
        after = job_state.finish(before, results)
        seconds = time.monotonic() - started
        findings = _verified(after, each, watcher) if options.verify else None
    return make_report(after, before, seconds, findings)


def _export(split: Split, advance: Callable[[int], None], *, job: ExportJob) -> SplitResult:
    return export_split(split, job, on_progress=advance)


def _verify(result: SplitResult, advance: Callable[[int], None], *, job: ExportJob) -> tuple[Finding, ...]:
    findings = verify_split(result, job)
    advance(result.split.length_bytes)
    return findings


def _verified(done: job_state.Progress, each: Runner, watcher: Watcher) -> tuple[Finding, ...]:
    results = sorted(done.done.values(), key=lambda result: -result.split.length_bytes)
    watcher.planned(done.plan, _size_bytes([result.split for result in results]), "verifying")
    work = partial(_verify, job=done.job)
    of_splits = each(work, results, lambda result: result.split, watcher)
    findings = [finding for found in of_splits for finding in found]
    return (*findings, *verify_names(results, open_output(done.job.output)))


@dataclass(frozen=True, slots=True)
class Pool:
    """The runner of one machine: at most `processes`; less than `small_bytes` are done in this one."""

    processes: int
    small_bytes: int = SMALL_BYTES

    def __call__(
        self,
        work: Work[TaskT, ResultT],
        tasks: Sequence[TaskT],
        split_of: Callable[[TaskT], Split],
        watcher: Watcher,
    ) -> Iterator[ResultT]:
        """The results of all tasks, as they are ready."""
        total_bytes = _size_bytes([split_of(task) for task in tasks])
        if total_bytes < self.small_bytes:
            for task in tasks:
                yield work(task, watcher.advanced)
            return
        events = run_tasks(
            work, tasks, self.processes, describe=lambda task: _described(split_of(task)), cure=_CURE
        )
        for event in events:
            match event:
                case Advanced():
                    watcher.advanced(event.size_bytes)
                case Done():
                    yield event.result


def _size_bytes(splits: Sequence[Split]) -> int:
    return sum(split.length_bytes for split in splits)


def _described(split: Split) -> str:
    return f"{split.file}, bytes {split.start_bytes} to {split.end_bytes}"
