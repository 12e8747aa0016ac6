"""Which records before a cut belong to aborted transactions. read_committed readers do not see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klog.backup.moment.values import PartitionCut, PartitionHistory


class AbortedPart(NamedTuple):
    """The part of an aborted transaction that a partition has: the producer's transactional batches from
    `first_offset` to before `end_offset`.
    """

    producer_id: int
    first_offset: int
    end_offset: int


def aborted_parts(history: PartitionHistory, cut: PartitionCut) -> tuple[AbortedPart, ...]:
    """The aborted transactions of a partition that ends at a cut, by their offsets."""
    ended_by_cut = {(each.producer_id, each.first_offset): each.marker.aborted for each in cut.added}
    found = []
    for each in history.transactions:
        if each.ends_before(cut.end_offset):
            if each.marker is not None and each.marker.aborted:
                found.append(AbortedPart(each.producer_id, each.first_offset, each.end_offset))
        elif ended_by_cut.get((each.producer_id, each.first_offset), False):
            found.append(AbortedPart(each.producer_id, each.first_offset, cut.end_offset))
    return tuple(each for each in found if each.first_offset < each.end_offset)


class AbortedBatches:
    """Says whether a transactional batch is part of an aborted transaction. Offsets are asked ascending."""

    def __init__(self, parts: Iterable[AbortedPart]) -> None:
        self._left: dict[int, list[AbortedPart]] = {}
        for part in sorted(parts, key=lambda each: -each.first_offset):
            self._left.setdefault(part.producer_id, []).append(part)

    def covers(self, producer_id: int, offset: int) -> bool:
        """Whether the producer's batch at an offset was aborted."""
        left = self._left.get(producer_id)
        while left and left[-1].end_offset <= offset:
            left.pop()
        return bool(left) and left is not None and left[-1].first_offset <= offset
