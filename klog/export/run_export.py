"""Runs a whole export: plan, tasks, manifest, verification, report.

The tasks run in a pool of processes on this machine, or on Spark's executors; both run `export_split` and
keep the same job state. A few small segments are exported in this process, because starting others takes
longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from klog.export import job_state
from klog.export.arrow_memory import keep_free_pages
from klog.export.open_output import open_output
from klog.export.outputs import TEMPORARY
from klog.export.report import Report, make_report
from klog.export.split_export import ExportJob, SplitResult, export_split
from klog.export.verify_export import Finding, verify_names, verify_split
from klog.replicas.splits import Plan, Split
from klog.replicas.stages import Pool, Runner, Stage

SMALL_BYTES: Final = 32 << 20
"""About as much as one process exports before a second one has started."""

_CURE: Final = "what is done is kept: run again with --resume, and with fewer --jobs if memory was short"


class Watcher(Protocol):
    """Receives the progress of a job."""

    def planned(self, plan: Plan, pending_bytes: int, what: str) -> None:
        """A stage begins that processes this many bytes; `what` is exporting or verifying."""

    def advanced(self, size_bytes: int) -> None:
        """That many bytes more are done."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job runs; this does not change its output.

    Jobs of less than `small_bytes` run in this process.
    """

    processes: int
    resume: bool = False
    verify: bool = False
    small_bytes: int = SMALL_BYTES


def run_export(job: ExportJob, options: RunOptions, watcher: Watcher, runner: Runner | None = None) -> Report:
    """Run an export and return its report; on `runner` if given, else in a pool of processes.

    Raises `UsageError`, `StorageError`, `WorkerDiedError`, and with `fail_on_data_loss` the first error in
    the data.
    """
    started = time.monotonic()
    keep_free_pages()
    output = open_output(job.output)
    task_runner = runner or Pool(options.processes, options.small_bytes, _described, _CURE)
    with output.locked():
        before = job_state.begin(job, partial(job.source.plan, job.options), resume=options.resume)
        pending = before.pending
        watcher.planned(before.plan, _size_bytes(pending), "exporting")
        work = partial(_export, job=before.job)
        try:
            results = list(
                task_runner(Stage(work, pending, lambda split: split, "exporting"), watcher.advanced)
            )
        except BaseException:
            output.remove_directory(TEMPORARY)  # files of processes that were terminated
            raise
        after = job_state.finish(before, results)
        seconds = time.monotonic() - started
        findings = _verified(after, task_runner, watcher) if options.verify else None
    return make_report(after, before, seconds, findings)


def _export(split: Split, advance: Callable[[int], None], *, job: ExportJob) -> SplitResult:
    return export_split(split, job, on_progress=advance)


def _verify(result: SplitResult, advance: Callable[[int], None], *, job: ExportJob) -> tuple[Finding, ...]:
    findings = verify_split(result, job)
    advance(result.split.length_bytes)
    return findings


def _verified(done: job_state.Progress, task_runner: Runner, watcher: Watcher) -> tuple[Finding, ...]:
    results = sorted(done.done.values(), key=lambda result: -result.split.length_bytes)
    watcher.planned(done.plan, _size_bytes([result.split for result in results]), "verifying")
    work = partial(_verify, job=done.job)
    of_splits = task_runner(Stage(work, results, lambda result: result.split, "verifying"), watcher.advanced)
    findings = [finding for found in of_splits for finding in found]
    return (*findings, *verify_names(results, open_output(done.job.output)))


def _size_bytes(splits: Sequence[Split]) -> int:
    return sum(split.length_bytes for split in splits)


def _described(split: Split) -> str:
    return f"{split.file}, bytes {split.start_bytes} to {split.end_bytes}"
