"""The final report of an export: what was read and written, and what could not be.

This module has the report as a value and as JSON; `klog.commands.offline.exporting.report_text` shows it as
text. The exit code of `klog export` depends on `Report.clean`.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.export.job_state import Progress
from klog.export.plan_json import JsonObject, to_json
from klog.export.verify_export import Finding
from klog.replicas.splits import LostRange, Plan


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a job.

    `seconds` and `exported_bytes` (of segments) are those of this run, which may have resumed an earlier one;
    everything else is of the whole job. `findings` are the errors that `--verify` found, None without it.
    """

    plan: Plan
    rows: int
    rejected: int
    rows_with_error: int
    files: int
    written_bytes: int
    read_bytes: int
    lost: tuple[LostRange, ...]
    repaired: tuple[LostRange, ...]
    seconds: float
    exported_bytes: int
    resumed_splits: int
    findings: tuple[Finding, ...] | None = None

    @property
    def clean(self) -> bool:
        """Whether all records are in the tables, and fit their schema."""
        return not (self.lost or self.plan.problems or self.rejected or self.rows_with_error or self.findings)

    @property
    def rate_bytes_per_second(self) -> float:
        """Bytes of segments per second in this run."""
        return self.exported_bytes / self.seconds if self.seconds > 0 else 0.0


def make_report(
    progress: Progress, before: Progress, seconds: float, findings: tuple[Finding, ...] | None
) -> Report:
    """The report of a finished job; `before` is its progress when this run began."""
    results = [progress.done[number] for number in sorted(progress.done)]
    exported = [result for result in results if result.split.number not in before.done]
    return Report(
        progress.plan,
        rows=sum(result.rows for result in results),
        rejected=sum(result.rejected for result in results),
        rows_with_error=sum(result.rows_with_error for result in results),
        files=sum(len(result.all_files) for result in results),
        written_bytes=sum(result.size_bytes for result in results),
        read_bytes=sum(result.split.length_bytes for result in results),
        lost=(*progress.plan.lost, *(lost for result in results for lost in result.lost)),
        repaired=tuple(repaired for result in results for repaired in result.repaired),
        seconds=seconds,
        exported_bytes=sum(result.split.length_bytes for result in exported),
        resumed_splits=len(before.done),
        findings=findings,
    )


def report_json(report: Report) -> JsonObject:
    """The report as JSON."""
    return {
        "records": report.rows,
        "rejectedRecords": report.rejected,
        "recordsWithError": report.rows_with_error,
        "files": report.files,
        "bytesRead": report.read_bytes,
        "bytesWritten": report.written_bytes,
        "splits": len(report.plan.splits),
        "splitsOfEarlierRuns": report.resumed_splits,
        "seconds": round(report.seconds, 3),
        "bytesPerSecond": round(report.rate_bytes_per_second),
        "clean": report.clean,
        "lost": to_json(report.lost),
        "mended": to_json(report.repaired),
        "problems": to_json(report.plan.problems),
        "divergences": to_json(report.plan.divergences),
        "skipped": [{"path": path, "reason": reason} for path, reason in report.plan.skipped],
        "partitions": to_json(report.plan.partitions),
        "verified": report.findings is not None,
        "findings": to_json(report.findings or ()),
    }
