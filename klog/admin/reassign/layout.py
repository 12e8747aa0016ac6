"""A layout that is being planned: which brokers hold which partitions, what each holds, what a move costs.

Partitions are numbered by size and then by name, so that the numbers of one broker's partitions are sorted by
size, and a search for a partition of some size is a search for a number.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition to place. `racks` is on how many racks it is to be; `leader` is never removed.

    `size_bytes` is its weight on each broker that holds it.
    """

    size_bytes: int
    original: frozenset[int]
    leader: int | None
    racks: int


class Layout:
    """Partitions on brokers. `held` has the partitions of each target, sorted by number."""

    def __init__(
        self, partitions: Sequence[PlannedPartition], targets: Iterable[int], racks: Mapping[int, str]
    ) -> None:
        self.partitions = partitions
        self.sizes = [each.size_bytes for each in partitions]
        self.replicas: list[set[int]] = [set(each.original) for each in partitions]
        self.targets = tuple(sorted(targets))
        self.racks = racks
        self.load: dict[int, int] = dict.fromkeys(self.targets, 0)
        self.held: dict[int, list[int]] = {broker: [] for broker in self.targets}
        for number, brokers in enumerate(self.replicas):
            for broker in brokers & self.load.keys():
                self.held[broker].append(number)
                self.load[broker] += self.sizes[number]

    def add(self, number: int, broker: int) -> None:
        """Give a target a replica."""
        self.replicas[number].add(broker)
        self.load[broker] += self.sizes[number]
        insort(self.held[broker], number)

    def remove(self, number: int, broker: int) -> None:
        """Take a replica from a broker."""
        self.replicas[number].remove(broker)
        if broker in self.load:
            self.load[broker] -= self.sizes[number]
            held = self.held[broker]
            del held[bisect_left(held, number)]

    def move(self, number: int, source: int, target: int) -> None:
        """Move a replica between targets."""
        self.remove(number, source)
        self.add(number, target)

    def spread(self, brokers: Set[int]) -> int:
        """On how many racks these brokers are."""
        return len({self.racks[broker] for broker in brokers})

    def keeps_racks(self, number: int, source: int, target: int) -> bool:
        """Whether a partition that moves so is on as many racks as it is to be, or on no fewer than now."""
        racks = self.racks
        if racks[source] == racks[target]:
            return True
        before = self.replicas[number]
        used = {racks[broker] for broker in before if broker != source}
        used.add(racks[target])
        return len(used) >= self.partitions[number].racks or len(used) >= self.spread(before)

    def moved_bytes(self) -> int:
        """The bytes of all replicas that are new on their broker."""
        return sum(
            size * len(now - each.original)
            for size, now, each in zip(self.sizes, self.replicas, self.partitions, strict=True)
        )
