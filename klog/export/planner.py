"""Plans a job: which offsets of which partitions to read from which segments, in independent splits.

The same files and options give the same plan. The planner reads no data except a few batches: those at which
segments are divided, those at which logs end, and with read_committed those after the newest producer
snapshot.

The plan covers records past the high watermark, up to the end of the log. Consumers do not get these. But the
high watermark on a disk is a checkpoint, written up to five seconds before the broker died (or lost, and then
0), and an export of that disk should contain what is on it. Records that a new leader did not have are a
`Divergence` if its replica is read as well. With read_committed the end is the last stable offset of that
log: the first offset of the first transaction that is open at its end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from klog.export.offset_bounds import lowest_requested_offset, offset_at, resolve_bounds
from klog.export.options import Isolation, ReadOptions
from klog.formats.errors import CorruptRecordError, KlogError, MissingInputError, StorageError
from klog.formats.names import TopicPartition
from klog.replicas.concurrency import map_concurrently
from klog.replicas.discover import discover, nothing_found
from klog.replicas.files import is_remote
from klog.replicas.replica_contents import Extent
from klog.replicas.replica_files import Found, Replica
from klog.replicas.replicas import MergedLog, merge
from klog.replicas.splits import Divergence, LostRange, PartitionPlan, Plan
from klog.replicas.splitting import Piece, make_splits
from klog.replicas.transactions import Transactions, transactions

_MAX_CONCURRENT_PARTITIONS: Final = 8
"""Partitions that are planned concurrently; each makes concurrent requests for its segments."""


class _Part(NamedTuple):
    plan: PartitionPlan
    pieces: tuple[Piece, ...]
    lost: tuple[LostRange, ...]
    divergences: tuple[Divergence, ...]


def plan(options: ReadOptions, *, requires_bounded: bool = True) -> Plan:
    """The plan for `options`.

    Raises `MissingInputError` if no partition is found or, with `requires_bounded`, if a bound names one that
    is not found, and with `fail_on_data_loss` a `KlogError` for the first thing that cannot be read.
    """
    found = discover(options.paths, include_deleted=options.include_deleted)
    groups: dict[TopicPartition, list[Replica]] = {}
    for replica in found.replicas:
        if options.subscription.wants(replica.partition):
            groups.setdefault(replica.partition, []).append(replica)
    if not groups:
        raise _nothing_found(found, options)
    if requires_bounded:
        require_known(options, groups)
    parts = _parts(groups, options, found)
    pieces = [piece for part in parts for piece in part.pieces]
    splits = make_splits(pieces, options.target_split_bytes, options.min_partitions, found.problems)
    made = Plan(
        splits=tuple(splits),
        partitions=tuple(part.plan for part in parts),
        divergences=tuple(divergence for part in parts for divergence in part.divergences),
        lost=tuple(lost for part in parts for lost in part.lost),
        problems=tuple(found.problems),
        skipped=tuple(sorted(set(found.skipped))),
    )
    if options.fail_on_data_loss:
        raise_first_loss(made)
    return made


def _parts(
    groups: Mapping[TopicPartition, Sequence[Replica]], options: ReadOptions, found: Found
) -> list[_Part]:
    """What is read of each partition, in their order; those in object stores are planned concurrently."""

    def look(partition: TopicPartition) -> tuple[_Part, Found]:
        own = Found()
        return _part(partition, groups[partition], options, own), own

    remote = any(is_remote(replica.directory) for replicas in groups.values() for replica in replicas)
    parts = []
    for part, own in map_concurrently(look, sorted(groups), remote=remote, most=_MAX_CONCURRENT_PARTITIONS):
        found.problems += own.problems
        found.skipped += own.skipped
        parts.append(part)
    return parts


def require_known(options: ReadOptions, selected: Collection[TopicPartition]) -> None:
    """Raise `MissingInputError` if a bound names a partition that is not read: it may be misspelt."""
    named = {
        "startingOffsets": options.starting.offsets,
        "startingOffsetsByTimestamp": options.starting.timestamps,
        "endingOffsets": options.ending.offsets,
        "endingOffsetsByTimestamp": options.ending.timestamps,
    }
    for option, topics in named.items():
        partitions = {TopicPartition(topic, number) for topic in topics for number in topics[topic]}
        for unknown in sorted(partitions.difference(selected)):
            raise MissingInputError(
                f"option {option} names {unknown}, which is not among the partitions to read",
                cure=f"their topics are {_shown(sorted({each.topic for each in selected}))}",
            )


def _shown(topics: Sequence[str]) -> str:
    return ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")


def _nothing_found(found: Found, options: ReadOptions) -> MissingInputError:
    topics = sorted({replica.partition.topic for replica in found.replicas})
    if topics:
        return MissingInputError(
            "no partition that was found is selected", cure=f"topics found are {_shown(topics)}"
        )
    return nothing_found(found, options.paths)


def _part(
    partition: TopicPartition, replicas: Sequence[Replica], options: ReadOptions, found: Found
) -> _Part:
    log = merge(
        replicas,
        found,
        include_deleted=options.include_deleted,
        from_offset=lowest_requested_offset(options.starting, partition),
    )
    committed = None
    readable_end = log.log_end_offset
    if options.isolation is Isolation.READ_COMMITTED:
        replica = log.all_contents[0].replica
        committed = transactions(replica, log.extents, log.log_end_offset, found.problems)
        readable_end = max(committed.last_stable_offset, log.log_start_offset)
    start, end = resolve_bounds(
        options,
        partition,
        log.log_start_offset,
        readable_end,
        lambda at_ms: offset_at(log.extents, at_ms, found.problems, options.max_decompressed_bytes),
    )
    to_the_end = end == readable_end
    return _Part(
        _partition_plan(partition, log, start, end, committed),
        tuple(_pieces(partition, log, start, end, committed)),
        tuple(one for one in log.lost if touches(one, start, end, to_the_end)),
        tuple(one for one in log.divergences if touches(one, start, end, to_the_end)),
    )


def _partition_plan(
    partition: TopicPartition, log: MergedLog, start: int, end: int, committed: Transactions | None
) -> PartitionPlan:
    replicas = [contents.replica for contents in log.all_contents]
    return PartitionPlan(
        topic=partition.topic,
        partition=partition.partition,
        start_offset=start,
        end_offset=end,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=replicas[0].high_watermark,
        last_stable_offset=None if committed is None else committed.last_stable_offset,
        directories=tuple(replica.directory for replica in replicas),
    )


def _pieces(
    partition: TopicPartition, log: MergedLog, start: int, end: int, committed: Transactions | None
) -> Iterator[Piece]:
    for extent in log.extents:
        first, last = max(start, extent.first_offset), min(end, extent.end_offset)
        if first < last:
            fallbacks = [one for source in log.fallbacks for one in _overlapping(source, first, last)]
            yield Piece(partition, extent, first, last, committed, tuple(fallbacks))


def _overlapping(extents: Sequence[Extent], first_offset: int, end_offset: int) -> Sequence[Extent]:
    """Those of the ascending extents that hold some of these offsets."""
    low = bisect_right(extents, first_offset, key=attrgetter("end_offset"))
    return extents[low : bisect_left(extents, end_offset, key=attrgetter("first_offset"))]


def touches(one: LostRange | Divergence, start: int, end: int, to_the_end: bool) -> bool:
    """Whether a range overlaps the requested offsets. A range after the log's end does if the end is
    requested."""
    first = start if one.first_offset is None else one.first_offset
    last = first + 1 if one.end_offset is None else one.end_offset
    return (first < end or to_the_end) and last > start


def raise_first_loss(made: Plan) -> None:
    """Raise the first loss. A broken checkpoint or index is no loss: the plan does not need them."""
    errors: list[KlogError] = [problem for problem in made.problems if isinstance(problem, StorageError)]
    errors += [
        CorruptRecordError(lost.reason, file=lost.file, position_bytes=lost.start_bytes) for lost in made.lost
    ]
    if errors:
        raise errors[0]
