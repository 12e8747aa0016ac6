"""Compares two replicas of a partition offset by offset.

Batches that are the same in both are passed over by their headers and checksums. Where batches differ, both
are decoded and their records compared by offset: key, value, headers, timestamp, leader epoch, and the
fields of producers and transactions. Codec, message format and the borders of batches are no difference of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Final

from klog.formats.constants import (
    CONTROL_BIT,
    INT32_MAX,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.kernel.conversion import same_records
from klog.replicas.replica_batches import ReplicaBatches, equal_rows, is_same_batch

_COMPARED_BITS: Final = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class RangeState(StrEnum):
    """How the records of a range of offsets compare."""

    SAME = "same"
    OTHER_BATCHES = "other batches"
    CLEANED = "cleaned"
    DIFFERENT_RECORDS = "different records"
    ONLY_IN_A = "only in A"
    ONLY_IN_B = "only in B"


_CLEANED_OR_SAME: Final = (RangeState.CLEANED, RangeState.OTHER_BATCHES)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets from `first_offset` to `last_offset` (included) that compare in one way.

    `same_records` is None if headers do not say how many records the batches have, which they do not for
    compressed messages of magic 0 and 1. `reason` says why records are missing in one replica.
    """

    state: RangeState
    first_offset: int
    last_offset: int
    same_records: int | None = 0
    different_records: int = 0
    only_in_a: int = 0
    only_in_b: int = 0
    reason: str = ""


OnRecord = Callable[[ReplicaBatches | None, ReplicaBatches | None], None]
"""Receives the sides whose current record is different or missing in the other, which is None then."""


def compare(a: ReplicaBatches, b: ReplicaBatches, on_record: OnRecord | None = None) -> Iterator[OffsetRange]:
    """Yield the ranges in the order of their offsets; neighbours differ in state or reason."""
    last: OffsetRange | None = None
    for each in _Comparison(a, b, on_record).ranges():
        if last is None:
            last = each
        elif (last.state, last.reason) == (each.state, each.reason):
            last = _joined(last, each)
        else:
            yield _explained(last)
            last = each
    if last is not None:
        yield _explained(last)


def _joined(one: OffsetRange, following: OffsetRange) -> OffsetRange:
    counts = one.same_records, following.same_records
    return OffsetRange(
        one.state,
        min(one.first_offset, following.first_offset),
        max(one.last_offset, following.last_offset),
        None if None in counts else sum(each or 0 for each in counts),
        one.different_records + following.different_records,
        one.only_in_a + following.only_in_a,
        one.only_in_b + following.only_in_b,
        one.reason,
    )


def _explained(one: OffsetRange) -> OffsetRange:
    """The range; one that was cleaned says in which replica."""
    if one.state is not RangeState.CLEANED:
        return one
    cleaned = [name for name, kept in (("A", one.only_in_b), ("B", one.only_in_a)) if kept]
    return replace(one, reason=f"cleaned in {' and '.join(cleaned)}")


class _Comparison:
    def __init__(self, a: ReplicaBatches, b: ReplicaBatches, on_record: OnRecord | None) -> None:
        self._a = a
        self._b = b
        self._on_record = on_record

    def ranges(self) -> Iterator[OffsetRange]:
        """Yield ranges in the order of offsets; neighbours may be of one kind."""
        a, b = self._a, self._b
        while True:
            more_in_a, more_in_b = a.fill(), b.fill()
            if not more_in_a and not more_in_b:
                return
            rows = equal_rows(a, b) if more_in_a and more_in_b else 0
            if rows:
                first, last = a.next_offset, a.table.last_offset[a.row + rows - 1]
                yield OffsetRange(RangeState.SAME, first, last, a.counted(a.row, rows))
                a.skip(rows)
                b.skip(rows)
            elif not more_in_b or (more_in_a and a.last_offset < b.next_offset):
                yield from self._alone(a, b)
            elif not more_in_a or b.last_offset < a.next_offset:
                yield from self._alone(b, a)
            else:
                yield from _with_cleaned(self._overlap())

    def _alone(self, side: ReplicaBatches, other: ReplicaBatches) -> Iterator[OffsetRange]:
        """The current batch of a side, or what is left of it: the other side has none of its offsets."""
        first, last = side.next_offset, side.last_offset
        count = side.counted(side.row, 1) if side.whole_rows else None
        absence = other.absence(last)
        plain = not other.damage_between(first, last) and other.absence(first) == absence
        if count == 0:
            yield OffsetRange(RangeState.OTHER_BATCHES, first, last)
        elif count is not None and plain and self._on_record is None:
            yield self._missing(side, other, first, last, count)
        else:
            side.decode()
            while side.left:
                yield self._missing_record(side, other)
        side.skip(1)

    def _overlap(self) -> Iterator[OffsetRange]:
        """The current batches of both, up to the end of one of them."""
        a, b = self._a, self._b
        is_same, alike = is_same_batch(a, b), _alike(a, b)
        same_state = RangeState.SAME if is_same else RangeState.OTHER_BATCHES
        a.decode()
        b.decode()
        while a.left and b.left:
            ours, theirs = a.next_offset, b.next_offset
            if ours < theirs:
                yield self._missing_record(a, b)
            elif theirs < ours:
                yield self._missing_record(b, a)
            elif alike and (same := self._same()):
                yield OffsetRange(same_state, ours, a.records.offset[a.at + same - 1], same)
                a.at += same
                b.at += same
            else:
                if self._on_record is not None:
                    self._on_record(a, b)
                yield OffsetRange(RangeState.DIFFERENT_RECORDS, ours, ours, different_records=1)
                a.at += 1
                b.at += 1
        for side in (a, b):
            if not side.left:
                side.skip(1)

    def _same(self) -> int:
        a, b = self._a, self._b
        return same_records(a.payload, a.records, a.at, b.payload, b.records, b.at, min(a.left, b.left))

    def _missing_record(self, side: ReplicaBatches, other: ReplicaBatches) -> OffsetRange:
        offset = side.next_offset
        if self._on_record is not None:
            self._on_record(*((side, None) if side is self._a else (None, side)))
        side.at += 1
        return self._missing(side, other, offset, offset, 1)

    def _missing(
        self, side: ReplicaBatches, other: ReplicaBatches, first: int, last: int, count: int
    ) -> OffsetRange:
        is_a = side is self._a
        absence = other.absence(last)
        state = RangeState.ONLY_IN_A if is_a else RangeState.ONLY_IN_B
        return OffsetRange(
            RangeState.CLEANED if absence.cleaned else state,
            first,
            last,
            only_in_a=count if is_a else 0,
            only_in_b=0 if is_a else count,
            reason=absence.reason,
        )


def _with_cleaned(ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """The ranges of two batches. Same records beside those that the cleaner removed count to these."""
    for sound, group in groupby(ranges, lambda one: one.state in _CLEANED_OR_SAME):
        run = list(group)
        cleaned = sound and any(one.state is RangeState.CLEANED for one in run)
        yield from (replace(one, state=RangeState.CLEANED) for one in run) if cleaned else run


def _alike(a: ReplicaBatches, b: ReplicaBatches) -> bool:
    """Whether the fields that records have from their batches are the same.

    Magic 0 and 1 have neither epochs nor producers, and magic 0 has no timestamp type.
    """
    ours, theirs, i, j = a.table, b.table, a.row, b.row
    oldest = min(ours.magic[i], theirs.magic[j])
    different_bits = (ours.attributes[i] ^ theirs.attributes[j]) & _COMPARED_BITS
    if different_bits & (~TIMESTAMP_TYPE_BIT if oldest == 0 else -1):
        return False
    if oldest < MAGIC_V2:
        return ours.producer_id[i] == theirs.producer_id[j]
    return (
        ours.leader_epoch[i] == theirs.leader_epoch[j]
        and ours.producer_id[i] == theirs.producer_id[j]
        and ours.producer_epoch[i] == theirs.producer_epoch[j]
        and _sequence_at_zero(a) == _sequence_at_zero(b)
    )


def _sequence_at_zero(side: ReplicaBatches) -> int:
    """The sequence number that offset 0 would have, or the negative one that says that there is none."""
    sequence = side.table.base_sequence[side.row]
    return sequence if sequence < 0 else (sequence - side.table.base_offset[side.row]) % (INT32_MAX + 1)
