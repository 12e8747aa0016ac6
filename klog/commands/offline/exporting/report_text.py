"""The plan of an export as text, and its final report as text for people and as a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from klog.commands.offline.outputs import output_file
from klog.commands.shared.cells import human_bytes
from klog.commands.shared.terminal import count_of
from klog.export.report import Report, report_json
from klog.formats.names import TopicPartition
from klog.replicas.splits import Divergence, LostRange, PartitionPlan, Plan

_SHOWN: Final = 20


def report_text(report: Report) -> str:
    """The report as text."""
    partitions = count_of(len(report.plan.partitions), "partition")
    written = f"{count_of(report.files, 'file')}, {human_bytes(report.written_bytes)}"
    speed = f"{report.seconds:.1f} s, {human_bytes(report.rate_bytes_per_second)}/s"
    lines = [
        f"{count_of(report.rows, 'record')} of {partitions} in {written}",
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
    return f"{count_of(count, 'record')} {verb} schema"


def _verdict(report: Report) -> str:
    if report.findings:
        return "the output is wrong"
    if report.lost:
        ranges = count_of(len(report.lost), "range")
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


# -- The final report of an export as a JSON file (`klog export --report`) -----------------------------------

_KEYS: Final = frozenset({"records", "splits", "bytesRead", "lost", "partitions"})
"""Keys of every report, by which an earlier one is known."""


def is_report(path: str) -> bool:
    """Whether a file is the report of an earlier export, which a new one may replace."""
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= _KEYS


def write_report(path: str, report: Report, inputs: Iterable[str]) -> None:
    """Write the report. The caller has checked the path before the export. Raises StorageError."""
    data = (json.dumps(report_json(report), indent=1) + "\n").encode("ascii")
    with output_file(path, inputs, force=True) as out:
        out.write(data)


# -- The plan of an export as text, for `klog export --dry-run` ----------------------------------------------


def plan_lines(plan: Plan) -> Iterator[str]:
    """A line for each partition, then losses, problems, divergences and skipped files."""
    splits = Counter(split.topic_partition for split in plan.splits)
    sizes: Counter[TopicPartition] = Counter()
    for split in plan.splits:
        sizes[split.topic_partition] += split.length_bytes
    for partition in plan.partitions:
        key = TopicPartition(partition.topic, partition.partition)
        yield _partition_text(partition, splits[key], sizes[key])
    total_bytes = sum(sizes.values())
    partitions, all_splits = count_of(len(plan.partitions), "partition"), count_of(len(plan.splits), "split")
    yield f"{partitions}, {all_splits}, {human_bytes(total_bytes)}"
    yield from loss_text(plan)


def _partition_text(partition: PartitionPlan, splits: int, size_bytes: int) -> str:
    marks = [f"log {partition.log_start_offset} to {partition.log_end_offset}"]
    if partition.high_watermark is not None:
        marks.append(f"high watermark {partition.high_watermark}")
    if partition.last_stable_offset is not None:
        marks.append(f"last stable offset {partition.last_stable_offset}")
    replicas = "" if len(partition.directories) == 1 else f" (best of {len(partition.directories)} replicas)"
    name = f"{partition.topic}-{partition.partition}"
    return (
        f"{name}: offsets {partition.start_offset} to {partition.end_offset} "
        f"({', '.join(marks)}), {count_of(splits, 'split')}, {human_bytes(size_bytes)}, "
        f"from {partition.directories[0]}{replicas}"
    )
