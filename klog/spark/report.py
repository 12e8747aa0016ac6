"""The final report of an export: what was read and written, and all that was not.

For people as text, for programs as JSON. Whether anything was lost decides the exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.spark.manifest import Progress
from klog.spark.plan_json import JsonObject, to_json
from klog.spark.splits import Divergence, LostRange, Plan
from klog.spark.verify_export import Finding

_SHOWN: Final = 20
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class Report:
    """What a job did.

    `seconds` and `exported_bytes` (of segments) are those of this run, which may have gone on from an
    earlier one; all else is of the whole job. `findings` are what `--verify` found wrong, None where
    nothing was verified.
    """

    plan: Plan
    rows: int
    rejected: int
    files: int
    written_bytes: int
    read_bytes: int
    lost: tuple[LostRange, ...]
    seconds: float
    exported_bytes: int
    resumed_splits: int
    findings: tuple[Finding, ...] | None = None

    @property
    def clean(self) -> bool:
        """Whether everything is in the tables."""
        return not (self.lost or self.plan.problems or self.rejected or self.findings)

    @property
    def rate_bytes_per_second(self) -> float:
        """Bytes of segments a second in this run."""
        return self.exported_bytes / self.seconds if self.seconds > 0 else 0.0


def make_report(
    progress: Progress, before: Progress, seconds: float, findings: tuple[Finding, ...] | None
) -> Report:
    """The report of a finished job that stood at `before` when this run began."""
    results = [progress.done[number] for number in sorted(progress.done)]
    exported = [result for result in results if result.split.number not in before.done]
    return Report(
        progress.plan,
        rows=sum(result.rows for result in results),
        rejected=sum(result.rejected for result in results),
        files=sum(len(result.all_files) for result in results),
        written_bytes=sum(result.size_bytes for result in results),
        read_bytes=sum(result.split.length_bytes for result in results),
        lost=(*progress.plan.lost, *(lost for result in results for lost in result.lost)),
        seconds=seconds,
        exported_bytes=sum(result.split.length_bytes for result in exported),
        resumed_splits=len(before.done),
        findings=findings,
    )


def report_json(report: Report) -> JsonObject:
    """The report for programs."""
    return {
        "records": report.rows,
        "rejectedRecords": report.rejected,
        "files": report.files,
        "bytesRead": report.read_bytes,
        "bytesWritten": report.written_bytes,
        "splits": len(report.plan.splits),
        "splitsOfEarlierRuns": report.resumed_splits,
        "seconds": round(report.seconds, 3),
        "bytesPerSecond": round(report.rate_bytes_per_second),
        "clean": report.clean,
        "lost": to_json(report.lost),
        "problems": to_json(report.plan.problems),
        "divergences": to_json(report.plan.divergences),
        "skipped": [{"path": path, "reason": reason} for path, reason in report.plan.skipped],
        "partitions": to_json(report.plan.partitions),
        "verified": report.findings is not None,
        "findings": to_json(report.findings or ()),
    }


def report_text(report: Report) -> str:
    """The report for people."""
    written = f"{report.files} files, {size_text(report.written_bytes)}"
    speed = f"{report.seconds:.1f} s, {size_text(report.rate_bytes_per_second)}/s"
    lines = [
        f"{report.rows:,} records of {len(report.plan.partitions)} partitions in {written}",
        f"{size_text(report.exported_bytes)} of segments in {speed}",
    ]
    if report.resumed_splits:
        lines.append(f"{report.resumed_splits} of {len(report.plan.splits)} splits were done before")
    if report.rejected:
        lines.append(f"{report.rejected:,} records do not fit their schema: they are in _rejects")
    lines += loss_text(report.plan, report.lost)
    if report.findings is not None:
        lines += _some("WRONG", [str(finding) for finding in report.findings])
        lines.append("verified: the output does not match" if report.findings else "verified: all is there")
    return "\n".join(lines)


def loss_text(plan: Plan, lost: tuple[LostRange, ...] | None = None) -> list[str]:
    """What is lost (default: what the plan knows of), in the way, different between replicas, passed over."""
    return [
        *_some("lost", [_lost_text(one) for one in (plan.lost if lost is None else lost)]),
        *_some("problem", [str(problem) for problem in plan.problems]),
        *_some("replicas differ", [_divergence_text(one) for one in plan.divergences]),
        *_some("skipped", [f"{path}: {reason}" for path, reason in plan.skipped]),
    ]


def _divergence_text(found: Divergence) -> str:
    return (
        f"{found.topic}-{found.partition} offsets {found.first_offset} to {found.end_offset - 1}: "
        f"{found.chosen} was taken, {found.other} not ({found.reason})"
    )


def _some(label: str, texts: list[str]) -> list[str]:
    lines = [f"{label}: {text}" for text in texts[:_SHOWN]]
    if len(texts) > _SHOWN:
        lines.append(f"{label}: {len(texts) - _SHOWN} more (--report lists all)")
    return lines


def _lost_text(lost: LostRange) -> str:
    place = "" if lost.start_bytes is None else f" at byte {lost.start_bytes}"
    offsets = ""
    if lost.first_offset is not None and lost.end_offset is not None:
        offsets = f", offsets {lost.first_offset} to {lost.end_offset - 1}"
    return f"{lost.file}{place}{offsets}: {lost.reason}"


def size_text(size_bytes: float) -> str:
    """`12.3 MiB`."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} {_UNITS[-1]}"
