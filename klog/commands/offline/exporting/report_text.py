"""The final report of an export as text for people."""

from __future__ import annotations

from typing import Final

from klog.commands.shared.cells import human_bytes
from klog.export.report import Report
from klog.replicas.splits import Divergence, LostRange, Plan

_SHOWN: Final = 20


def counted(number: int, word: str) -> str:
    """`1 split`, `2 splits`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def report_text(report: Report) -> str:
    """The report as text."""
    partitions = counted(len(report.plan.partitions), "partition")
    written = f"{counted(report.files, 'file')}, {human_bytes(report.written_bytes)}"
    speed = f"{report.seconds:.1f} s, {human_bytes(report.rate_bytes_per_second)}/s"
    lines = [
        f"{counted(report.rows, 'record')} of {partitions} in {written}",
        f"{human_bytes(report.exported_bytes)} of segments in {speed}",
    ]
    if report.resumed_splits:
        lines.append(f"{report.resumed_splits} of {len(report.plan.splits)} splits were done before")
    if report.rejected:
        they = "it is" if report.rejected == 1 else "they are"
        lines.append(f"{_misfits(report.rejected)}: {they} in _rejects")
    if report.rows_with_error:
        whose = "its" if report.rows_with_error == 1 else "their"
        lines.append(f"{_misfits(report.rows_with_error)}: {whose} column _error says why")
    lines += _some("read from another replica", [_lost_text(one) for one in report.repaired])
    lines += loss_text(report.plan, report.lost)
    if report.findings is not None:
        lines += _some("WRONG", [str(finding) for finding in report.findings])
        lines.append(f"verified: {_verdict(report)}")
    return "\n".join(lines)


def _misfits(count: int) -> str:
    verb = "does not fit its" if count == 1 else "do not fit their"
    return f"{counted(count, 'record')} {verb} schema"


def _verdict(report: Report) -> str:
    if report.findings:
        return "the output is wrong"
    if report.lost:
        ranges = counted(len(report.lost), "range")
        return f"not all is there: {ranges} of the log could not be read; all other records are there"
    return "all is there"


def loss_text(plan: Plan, lost: tuple[LostRange, ...] | None = None) -> list[str]:
    """Losses (default: those that the plan found), problems, divergences between replicas, skipped files."""
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
