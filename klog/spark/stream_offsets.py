"""How far a stream has come, per partition: its checkpoint, what the next batch takes, and what is gone.

The JSON is that of Spark's Kafka source (`{"orders": {"0": 23}}`, the next offset to read), and so is the way
in which `maxOffsetsPerTrigger` is shared out: to every partition by what it has waiting. Pure arithmetic.
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
    """In a fixed order: Spark takes offsets for the same where their texts are."""
    tree: JsonOffsets = {}
    for partition, offset in sorted(offsets.items()):
        tree.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return tree


def from_json(tree: object) -> dict[TopicPartition, int]:
    """Raises `FormatError` for what no stream of klog wrote (a checkpoint of something else)."""
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
        f"the stream's checkpoint holds {json.dumps(tree)[:200]}, which are no offsets of topics",
        cure="give the query a checkpointLocation of its own",
    )


@dataclass(frozen=True, slots=True)
class Available:
    """A partition as it lies there: the first offset of its log, and the one after the last readable."""

    first: int
    end: int


def batch_end(
    start: Offsets, available: Mapping[TopicPartition, Available], max_offsets: int | None
) -> dict[TopicPartition, int]:
    """Where the batch after `start` ends: at the ends of the logs, or after about `max_offsets` offsets in
    all, of which every partition that has something waiting gets its share.

    A log that was cut ends before its start; that is its end all the same, and it is read on from there. A
    partition that is not there stays where it was: it may be back the next time.
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
    """Where a partition is read on: at its first record where it is new, or its next record is gone."""
    return max(start.get(partition, there.first), there.first)


def ranges(start: Offsets, end: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets of a batch, of the partitions that have some; from 0 on where `start` does not know one."""
    pairs = {partition: (start.get(partition, 0), stop) for partition, stop in end.items()}
    return {partition: (first, stop) for partition, (first, stop) in pairs.items() if first < stop}


def bounded(
    available: Mapping[TopicPartition, Available], target: Mapping[TopicPartition, Available]
) -> dict[TopicPartition, Available]:
    """What is there, but nothing that came after `target`."""
    return {
        partition: Available(there.first, min(there.end, target[partition].end))
        for partition, there in available.items()
        if partition in target
    }


def losses(start: Offsets, available: Mapping[TopicPartition, Available]) -> list[str]:
    """What a stream that stood at `start` can no longer read, in words."""
    found = []
    for partition, offset in sorted(start.items()):
        there = available.get(partition)
        if there is None:
            found.append(f"{partition} is gone; it had been read to before offset {offset}")
        elif offset < there.first:
            found.append(
                f"{partition}: offsets {offset} to before {there.first} were deleted before they were read"
            )
        elif there.end < offset:
            found.append(
                f"{partition} was cut to offset {there.end}; it had been read to before offset {offset}"
            )
    found += [
        f"{partition} is new and starts at offset {available[partition].first}: what was before is not read"
        for partition in sorted(available.keys() - start.keys())
        if available[partition].first > 0
    ]
    return found
