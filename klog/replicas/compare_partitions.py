"""Compares the partitions below two paths: finds the replicas of both, and compares those of each partition.

Nothing is changed and no lock is taken. Paths are those of an export (`klog.replicas.discover`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT64_MAX
from klog.formats.errors import MissingInputError
from klog.formats.names import TopicPartition
from klog.kernel import jsontext, text
from klog.replicas.compare_logs import OffsetRange, RangeState, compare
from klog.replicas.discover import discover, nothing_found
from klog.replicas.kept_replica import KeptReplica, kept_replica
from klog.replicas.replica_batches import ReplicaBatches
from klog.replicas.replica_contents import ReplicaContents, read_contents
from klog.replicas.replica_files import Found, Replica
from klog.replicas.replicas import current_replicas, rank
from klog.replicas.splits import LostRange

Record = dict[str, Any]
OF_RECORDS: Final = (
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "sequence",
    "isTransactional",
    "isControl",
)
"""The fields of a record that are compared, and shown."""
_START: Final = b'{"format":"jsonl"'


@dataclass(frozen=True, slots=True)
class Selection:
    """What to compare, and how much of it to keep.

    `wants` says which partitions. Offsets are from `first_offset` to before `end_offset`. At most
    `most_ranges` ranges and `most_records` records of a partition are kept.
    """

    wants: Callable[[TopicPartition], bool] = lambda _: True
    first_offset: int = 0
    end_offset: int = INT64_MAX
    most_ranges: int = 100
    most_records: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether not all offsets are compared."""
        return (self.first_offset, self.end_offset) != (0, INT64_MAX)


@dataclass(frozen=True, slots=True)
class DifferentRecord:
    """A record that differs; one of the sides is None if it does not have it. `fields` are those that
    differ."""

    offset: int
    fields: tuple[str, ...]
    a: Record | None
    b: Record | None


@dataclass(frozen=True, slots=True)
class PartitionPair:
    """The replicas of one partition in A and B; None for the side that does not have it."""

    partition: TopicPartition
    a: ReplicaContents | None
    b: ReplicaContents | None

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments that are compared."""
        if self.a is None or self.b is None:
            return 0
        both = (self.a, self.b)
        return sum(segment.size_bytes for one in both for segment in one.replica.segments)


@dataclass(slots=True)
class PartitionDiff:
    """How two replicas of a partition compare.

    `ranges` and `records` are the first ones; `range_count` and `record_count` count all. `records_by_state`
    counts records, or offsets for SAME where headers do not count records. `first_difference` is the lowest
    offset of different records or of one that was not cleaned and is in one replica only.
    """

    pair: PartitionPair
    kept: KeptReplica
    epochs: tuple[tuple[EpochEntry, ...], tuple[EpochEntry, ...]] = ((), ())
    ranges: list[OffsetRange] = field(default_factory=list)
    range_count: int = 0
    records: list[DifferentRecord] = field(default_factory=list)
    record_count: int = 0
    states: Counter[RangeState] = field(default_factory=Counter)
    first_difference: int | None = None
    damage: tuple[tuple[LostRange, ...], tuple[LostRange, ...]] = ((), ())

    @property
    def is_same(self) -> bool:
        """Whether both have the same records, all of which can be read."""
        harmless = {RangeState.SAME, RangeState.OTHER_BATCHES}
        return not any(self.damage) and self.states.keys() <= harmless


def find_pairs(a: str, b: str, selection: Selection) -> tuple[list[PartitionPair], Found]:
    """The partitions below two paths, with what was ignored and cannot be read.

    If each path has one partition, these are compared whatever their names. Raises `MissingInputError` if a
    path has no partition that is selected.
    """
    found = Found()
    ours, theirs = (_replicas(path, selection, found) for path in (a, b))
    if len(ours) == len(theirs) == 1 and ours.keys() != theirs.keys():
        ((name, mine),) = ours.items()
        return [PartitionPair(name, mine, *theirs.values())], found
    names = sorted(ours.keys() | theirs.keys())
    return [PartitionPair(name, ours.get(name), theirs.get(name)) for name in names], found


def _replicas(path: str, selection: Selection, found: Found) -> dict[TopicPartition, ReplicaContents]:
    """The replica of each partition below a path; of several the one that Kafka would keep."""
    own = discover([path])
    found.problems += own.problems
    found.skipped += own.skipped
    groups: dict[TopicPartition, list[Replica]] = {}
    for replica in own.replicas:
        groups.setdefault(replica.partition, []).append(replica)
    if not groups:
        raise nothing_found(own, [path])
    wanted = {name: group for name, group in groups.items() if selection.wants(name)}
    if not wanted:
        names = ", ".join(map(str, sorted(groups)[:10]))
        raise MissingInputError(f"no partition of {path} is selected", cure=f"it has {names}")
    chosen = {}
    for name, group in wanted.items():
        contents = [read_contents(replica, found) for replica in current_replicas(group, found)]
        chosen[name] = max(contents, key=rank)
        found.skipped += [
            (each.replica.directory, f"{path} has several replicas of {name}, another one is compared")
            for each in contents
            if each is not chosen[name]
        ]
    return chosen


def compare_pair(
    pair: PartitionPair, selection: Selection, on_bytes: Callable[[int], None] = lambda _: None
) -> PartitionDiff:
    """Compare the replicas of a partition that both sides have."""
    if pair.a is None or pair.b is None:
        raise ValueError(f"{pair.partition} has one replica")
    first, end = _bounds(pair.a, pair.b, selection)
    a = ReplicaBatches("A", pair.a, first, end, on_bytes)
    b = ReplicaBatches("B", pair.b, first, end, on_bytes)
    diff = PartitionDiff(pair, KeptReplica(None, "", None))

    def on_record(ours: ReplicaBatches | None, theirs: ReplicaBatches | None) -> None:
        diff.record_count += 1
        if len(diff.records) < selection.most_records:
            diff.records.append(_different_record(ours, theirs))

    for each in compare(a, b, on_record if selection.most_records else None):
        diff.range_count += 1
        if len(diff.ranges) < selection.most_ranges:
            diff.ranges.append(each)
        _count(diff, each)
    diff.damage = tuple(a.damage), tuple(b.damage)
    whole = not selection.is_bounded
    diff.epochs = _epochs(a, whole=whole), _epochs(b, whole=whole)
    diff.kept = kept_replica(pair.a, pair.b, *diff.epochs)
    return diff


def _bounds(a: ReplicaContents, b: ReplicaContents, selection: Selection) -> tuple[int, int]:
    """The offsets to compare: if only some segments of one side were named, those of these segments."""
    first, end = selection.first_offset, selection.end_offset
    if a.replica.partial != b.replica.partial:
        named = a if a.replica.partial else b
        first, end = max(first, named.first_offset), min(end, named.end_offset)
    return first, end


def _epochs(side: ReplicaBatches, *, whole: bool) -> tuple[EpochEntry, ...]:
    """The leader epochs of a replica: those of its checkpoint, else those of its batches if all were read."""
    known = side.contents.replica.epochs
    return known or (tuple(side.epochs) if whole else ())


def _count(diff: PartitionDiff, one: OffsetRange) -> None:
    same = one.same_records
    diff.states[one.state] += one.last_offset - one.first_offset + 1 if same is None else same
    diff.states[one.state] += one.different_records + one.only_in_a + one.only_in_b
    differs = one.state not in (RangeState.SAME, RangeState.OTHER_BATCHES, RangeState.CLEANED)
    if differs and diff.first_difference is None:
        diff.first_difference = one.first_offset


def _different_record(a: ReplicaBatches | None, b: ReplicaBatches | None) -> DifferentRecord:
    ours, theirs = (None if side is None else _record(side) for side in (a, b))
    shown = ours or theirs or {}
    fields: tuple[str, ...] = ()
    if ours is not None and theirs is not None:
        fields = tuple(name for name in OF_RECORDS if ours[name] != theirs[name])
    return DifferentRecord(int(shown["offset"]), fields, ours, theirs)


def _record(side: ReplicaBatches) -> Record:
    """The current record, with the fields of `klog dump-segment -o jsonl`."""
    out = bytearray(1 << 10)
    at = side.at
    end = jsontext.jsonl_records(
        side.table, side.records, at, at + 1, side.payload, _START, text.AUTO, out, 0
    )
    values: Record = json.loads(out[:end])
    return values
