"""Markers for the tests of what sends them."""

from __future__ import annotations

from collections.abc import Collection

from klog.coordinator.transactions.values import Marker, MarkersToWrite, Producer
from klog.formats.names import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def markers(
    *partitions: TopicPartition, producer_id: int = 9, number: int = 0, committed: bool = True
) -> MarkersToWrite:
    """The markers of one transaction; `number` is the partition of `__transaction_state`."""
    marker = Marker(Producer(producer_id, 2), 5, committed)
    return MarkersToWrite(f"id-{producer_id}", number, marker, frozenset(partitions))


class Written:
    """Keeps the partitions that were reported."""

    def __init__(self) -> None:
        self.calls: list[frozenset[TopicPartition]] = []
        self.superseded: set[TopicPartition] = set()

    def __call__(self, partitions: Collection[TopicPartition], *, superseded: bool = False) -> None:
        self.calls.append(frozenset(partitions))
        if superseded:
            self.superseded.update(partitions)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset().union(*self.calls)
