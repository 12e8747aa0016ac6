"""Offsets of a stream: its checkpoint, the end of the next batch, and what can no longer be read.

The JSON is that of Spark's Kafka source (`{"orders": {"0": 23}}`, the next offset to read). As there,
`maxOffsetsPerTrigger` is divided among the partitions in proportion to their available records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

Offsets = Mapping[TopicPartition, int]
"""The next offset of each partition."""
JsonOffsets = dict[str, dict[str, int]]


def to_json(offsets: Offsets) -> JsonOffsets:
    """The offsets as JSON in a fixed order: Spark compares offsets by their text."""
    tree: JsonOffsets = {}
    for partition, offset in sorted(offsets.items()):
        tree.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return tree


def from_json(tree: object) -> dict[TopicPartition, int]:
    """The offsets in JSON. Raises `FormatError` if no stream of klog wrote it (a checkpoint of another
    source)."""
    offsets: dict[TopicPartition, int] = {}
    if not isinstance(tree, Mapping):
        raise _foreign(tree)
    for topic, numbers in tree.items():
        if not isinstance(numbers, Mapping):
            raise _foreign(tree)
        for number, offset in numbers.items():
            is_number = isinstance(number, str) and number.isascii() and number.isdecimal()
            if not is_number or not isinstance(offset, int):
                raise _foreign(tree)
            offsets[TopicPartition(str(topic), int(number))] = offset
    return offsets


def _foreign(tree: object) -> FormatError:
    return FormatError(
        f"the stream's checkpoint holds {json.dumps(tree)[:200]}, which are not offsets of topics",
        cure="give the query a checkpointLocation of its own",
    )


@dataclass(frozen=True, slots=True)
class Available:
    """The available records of a partition: the first offset, and the offset after the last one."""

    first: int
    end: int


def batch_end(
    start: Offsets, available: Mapping[TopicPartition, Available], max_offsets: int | None
) -> dict[TopicPartition, int]:
    """The end of the batch after `start`: the ends of the logs, or about `max_offsets` offsets in total.

    Each partition with available records gets a share. If a log was truncated below `start`, its new end
    counts, and reading continues from there. A partition that is missing keeps its offset: it may come back.
    """
    begins = {partition: begin(start, partition, there) for partition, there in available.items()}
    waiting = {partition: max(0, there.end - begins[partition]) for partition, there in available.items()}
    total = sum(waiting.values())
    ends = {**start, **{partition: there.end for partition, there in available.items()}}
    if max_offsets is None or total <= max_offsets:
        return ends
    for partition, count in waiting.items():
        share = max_offsets * count / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        if count:
            ends[partition] = begins[partition] + min(count, taken)
    return ends


def begin(start: Offsets, partition: TopicPartition, there: Available) -> int:
    """Where reading of a partition continues: at its first record if it is new or its next record was
    deleted."""
    return max(start.get(partition, there.first), there.first)


def ranges(start: Offsets, end: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets of a batch, for partitions that have any; from 0 if the partition is not in `start`."""
    pairs = {partition: (start.get(partition, 0), stop) for partition, stop in end.items()}
    return {partition: (first, stop) for partition, (first, stop) in pairs.items() if first < stop}


def bounded(
    available: Mapping[TopicPartition, Available], target: Mapping[TopicPartition, Available]
) -> dict[TopicPartition, Available]:
    """The available records, without those after `target`."""
    return {
        partition: Available(there.first, min(there.end, target[partition].end))
        for partition, there in available.items()
        if partition in target
    }


def losses(start: Offsets, available: Mapping[TopicPartition, Available]) -> list[str]:
    """Texts about the records that a stream at `start` can no longer read."""
    found = []
    for partition, offset in sorted(start.items()):
        there = available.get(partition)
        if there is None:
            found.append(f"{partition} does not exist any more; its next offset was {offset}")
        elif offset < there.first:
            deleted = f"{offset} to before {there.first}"
            found.append(f"{partition}: offsets from {deleted} were deleted before they were read")
        elif there.end < offset:
            found.append(f"{partition} was truncated to offset {there.end}; its next offset was {offset}")
    found += [
        f"{partition} is new and starts at offset {available[partition].first}: earlier records are not read"
        for partition in sorted(available.keys() - start.keys())
        if available[partition].first > 0
    ]
    return found
