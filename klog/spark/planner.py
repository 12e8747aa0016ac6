"""The plan of a job: which offsets of which partitions, from which segments, in splits that can be read on
their own.

Deterministic: the same files and options give the same plan. Segments are not read, but for a few batches
where they are cut and where the log ends. What is past the high watermark is planned too, up to the log's
end: the high watermark in a dead broker's checkpoint lags behind (it is written every five seconds), and
who reads that disk wants what is on it. With read_committed the end is the last stable offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.spark.discover import Found, Replica, discover
from klog.spark.options import EARLIEST, LATEST, Edge, ReadOptions, Subscription
from klog.spark.segments import OpenSegment
from klog.spark.splits import LostRange, PartitionPlan, Plan, Split


def plan(options: ReadOptions) -> Plan:
    """What to read for `options`. Raises `UsageError` where nothing is found or an offset makes no sense."""
    found = discover(options.paths, include_deleted=options.include_deleted)
    groups: dict[TopicPartition, list[Replica]] = {}
    for replica in found.replicas:
        if _wanted(options.subscription, replica.partition):
            groups.setdefault(replica.partition, []).append(replica)
    if not groups:
        raise _nothing(found, options)
    planned = [_partition(partition, replicas, options) for partition, replicas in sorted(groups.items())]
    splits = [split for splits, _, _ in planned for split in splits]
    return Plan(
        splits=tuple(_numbered(splits)),
        partitions=tuple(partition for _, partition, _ in planned),
        lost=tuple(lost for _, _, losses in planned for lost in losses),
        problems=tuple(found.problems),
        skipped=tuple(found.skipped),
    )


def _wanted(subscription: Subscription, partition: TopicPartition) -> bool:
    if subscription.topics is not None:
        return partition.topic in subscription.topics
    if subscription.pattern is not None:
        return re.fullmatch(subscription.pattern, partition.topic) is not None
    if subscription.partitions is not None:
        return partition.partition in subscription.partitions.get(partition.topic, ())
    return True


def _nothing(found: Found, options: ReadOptions) -> UsageError:
    if found.replicas:
        topics = sorted({replica.partition.topic for replica in found.replicas})
        shown = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")
        return UsageError("no partition that was found is asked for", cure=f"topics found are {shown}")
    why = "; ".join(str(problem) for problem in found.problems[:3])
    return UsageError(
        f"no partition is found in {', '.join(options.paths)}" + (f": {why}" if why else ""),
        cure="name log directories, partition directories or segments",
    )


def _partition(
    partition: TopicPartition, replicas: list[Replica], options: ReadOptions
) -> tuple[list[Split], PartitionPlan, list[LostRange]]:
    chosen = max(
        replicas,
        key=lambda replica: (replica.epochs[-1:], replica.segments[-1:] and replica.segments[-1].base_offset),
    )
    splits: list[Split] = []
    lost: list[LostRange] = []
    segments = chosen.segments
    first = segments[0].base_offset if segments else 0
    log_start = max(first, chosen.log_start_offset or 0)
    log_end = log_start
    parts = []
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        with OpenSegment(segment) as opened:
            end_bytes = opened.size_bytes
            end_offset = following.base_offset if following else 0
            if following is None:
                end = opened.end()
                end_bytes, end_offset, log_end = end.end_bytes, end.end_offset, end.end_offset
                if end.rest_problem is not None:
                    lost.append(
                        LostRange(
                            *partition,
                            segment.log,
                            end.end_bytes,
                            end.rest_bytes,
                            end.end_offset,
                            None,
                            end.rest_problem,
                        )
                    )
            parts.append(
                (segment, end_offset, [0, *opened.cuts(0, end_bytes, options.target_split_bytes), end_bytes])
            )
    start = _resolved(options.starting, partition, log_start, log_end)
    stop = _resolved(options.ending, partition, log_start, log_end)
    for segment, end_offset, places in parts:
        for begin, finish in pairwise(places):
            low, high = max(start, segment.base_offset), min(stop, end_offset)
            if low < high and begin < finish:
                splits.append(
                    Split(0, *partition, segment.log, segment.base_offset, begin, finish, low, high)
                )
    directories = (chosen.directory, *(replica.directory for replica in replicas if replica is not chosen))
    return (
        splits,
        PartitionPlan(*partition, start, stop, log_start, log_end, chosen.high_watermark, None, directories),
        lost,
    )


def _resolved(edge: Edge, partition: TopicPartition, log_start: int, log_end: int) -> int:
    offset = edge.offsets.get(partition.topic, {}).get(partition.partition, edge.default)
    return (
        log_start
        if offset == EARLIEST
        else log_end
        if offset == LATEST
        else min(max(offset, log_start), log_end)
    )


def _numbered(splits: Iterable[Split]) -> list[Split]:
    """Numbers in order of topic, partition and offset; then longest first."""
    numbered = [replace(split, number=number) for number, split in enumerate(splits)]
    return sorted(numbered, key=lambda split: (-split.length_bytes, split.number))
