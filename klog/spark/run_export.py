"""A whole export on this machine: plan, processes, manifest, verification, report.

What Spark does with a cluster, a pool of processes does here; both do `export_split`, and both keep the
same books. One job with one process runs in ours: nothing is started for a handful of small segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from klog.spark import manifest, pool
from klog.spark.engine import ExportJob, SplitResult, export_split
from klog.spark.outputs import open_output
from klog.spark.planner import plan as make_plan
from klog.spark.pool import Advanced, Done
from klog.spark.report import Report, make_report
from klog.spark.splits import Plan, Split
from klog.spark.verify_export import Finding, verify_names, verify_split

SMALL_BYTES: Final = 32 << 20
"""What one process exports before a second one would have started."""

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class Watcher(Protocol):
    """Is told how the job goes."""

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """So many bytes of segments are to do now; `what`: exporting or verifying."""

    def advanced(self, size_bytes: int) -> None:
        """So many more are done."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run; none of it changes what is written."""

    processes: int
    resume: bool = False
    verify: bool = False


def run_export(job: ExportJob, options: RunOptions, watcher: Watcher) -> Report:
    """Export, and say how it went. Raises `UsageError`, `StorageError`, `WorkerDiedError`, and with
    `fail_on_data_loss` the first error of reading.
    """
    started = time.monotonic()
    output = open_output(job.output)
    with output.locked():
        before = manifest.begin(job, partial(make_plan, job.options), resume=options.resume)
        pending = before.pending
        watcher.planned(before.plan, _size_bytes(pending), "exporting")
        work = partial(_export, job=job)
        results = list(
            _each(work, pending, _size_bytes(pending), options.processes, watcher, describe=_described)
        )
        after = manifest.finish(before, results)
        seconds = time.monotonic() - started
        findings = _verified(after, options, watcher) if options.verify else None
    return make_report(after, before, seconds, findings)


def _export(split: Split, advance: Callable[[int], None], *, job: ExportJob) -> SplitResult:
    return export_split(split, job, on_progress=advance)


def _verify(result: SplitResult, advance: Callable[[int], None], *, job: ExportJob) -> tuple[Finding, ...]:
    findings = verify_split(result, job)
    advance(result.split.length_bytes)
    return findings


def _verified(done: manifest.Progress, options: RunOptions, watcher: Watcher) -> tuple[Finding, ...]:
    results = sorted(done.done.values(), key=lambda result: -result.split.length_bytes)
    total_bytes = _size_bytes([result.split for result in results])
    watcher.planned(done.plan, total_bytes, "verifying")
    work = partial(_verify, job=done.job)
    of_splits = _each(
        work,
        results,
        total_bytes,
        options.processes,
        watcher,
        describe=lambda result: _described(result.split),
    )
    findings = [finding for found in of_splits for finding in found]
    return (*findings, *verify_names(results, open_output(done.job.output)))


def _each(
    work: pool.Work[TaskT, ResultT],
    tasks: Sequence[TaskT],
    total_bytes: int,
    processes: int,
    watcher: Watcher,
    *,
    describe: Callable[[TaskT], str],
) -> Iterator[ResultT]:
    """The results of all tasks, as they are ready."""
    if processes == 1 or len(tasks) < 2 or total_bytes < SMALL_BYTES:
        for task in tasks:
            yield work(task, watcher.advanced)
        return
    for event in pool.run(work, tasks, processes, describe=describe):
        match event:
            case Advanced():
                watcher.advanced(event.size_bytes)
            case Done():
                yield event.result


def _size_bytes(splits: Sequence[Split]) -> int:
    return sum(split.length_bytes for split in splits)


def _described(split: Split) -> str:
    return f"{split.file}, bytes {split.start_bytes} to {split.end_bytes}"
