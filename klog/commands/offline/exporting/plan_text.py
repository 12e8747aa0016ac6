"""The plan of an export as text, for `klog export --dry-run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from klog.commands.offline.exporting.report_text import counted, loss_text
from klog.commands.shared.cells import human_bytes
from klog.formats.names import TopicPartition
from klog.replicas.splits import PartitionPlan, Plan


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
    partitions, all_splits = counted(len(plan.partitions), "partition"), counted(len(plan.splits), "split")
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
        f"({', '.join(marks)}), {counted(splits, 'split')}, {human_bytes(size_bytes)}, "
        f"from {partition.directories[0]}{replicas}"
    )
