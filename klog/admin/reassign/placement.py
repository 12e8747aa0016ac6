"""The replicas that a goal forces to go, and new places for as many as a goal wants.

Large partitions are placed first, each on the broker that lacks most of its fair share. The smallest ones,
which together weigh next to nothing, are spread by their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from klog.admin.reassign.goals import Freedom, Scope
from klog.admin.reassign.layout import Layout

_SLACK: Final = 0.01


class Placement:
    """Removes what has to go from a layout and adds what is missing."""

    def __init__(
        self, layout: Layout, scope: Scope, factors: Sequence[int], shares: Mapping[int, float]
    ) -> None:
        self._layout = layout
        self._scope = scope
        self._factors = factors
        self._shares = shares
        self._by_size = range(len(layout.partitions) - 1, -1, -1)

    def run(self, topics: Sequence[str]) -> None:
        """Give each partition as many replicas as it is to have; `topics` has the topic of each."""
        for number in self._by_size:
            self._remove(number)
        missing = [
            self._factors[number] - len(brokers) for number, brokers in enumerate(self._layout.replicas)
        ]
        mean = sum(self._shares.values()) / len(self._shares)
        small, slack = _smallest(self._layout.sizes, missing, mean * _SLACK), mean * _SLACK
        counts = {broker: len(held) for broker, held in self._layout.held.items()}
        of_topic = Counter(
            (broker, topics[number])
            for number, brokers in enumerate(self._layout.replicas)
            for broker in brokers
        )
        for number in self._by_size:
            for _ in range(missing[number]):
                topic = topics[number]
                fitting = self._fitting(number)
                if number >= small:
                    limit = min(map(self._above_share, fitting)) + slack
                    fitting = [broker for broker in fitting if self._above_share(broker) <= limit]
                chosen = min(
                    fitting,
                    key=lambda broker: (
                        of_topic[broker, topic],
                        counts[broker] if number < small else 0,
                        self._above_share(broker),
                        broker,
                    ),
                )
                self._layout.add(number, chosen)
                counts[chosen] += 1
                of_topic[chosen, topic] += 1

    def _above_share(self, broker: int) -> float:
        return self._layout.load[broker] - self._shares[broker]

    def _fitting(self, number: int) -> list[int]:
        """The targets that may get a replica: on another rack if there is one."""
        present = self._layout.replicas[number]
        racks = self._layout.racks
        used = {racks[broker] for broker in present}
        free = [broker for broker in self._layout.targets if racks[broker] not in used]
        return free or [broker for broker in self._layout.targets if broker not in present]

    def _remove(self, number: int) -> None:
        layout, wanted = self._layout, self._factors[number]
        present = layout.replicas[number]
        for broker in sorted(present & self._scope.leaving):
            layout.remove(number, broker)
        while len(present) > wanted:
            layout.remove(number, self._least_useful(number))
        racks = racks_to_have(layout, self._scope, number)
        while layout.spread(present) + wanted - len(present) < racks:
            layout.remove(number, self._least_useful(number))

    def _least_useful(self, number: int) -> int:
        """The replica to remove: one that shares its rack, never the leader, on the fullest broker.

        A broker that is no target goes first.
        """
        layout = self._layout
        present = layout.replicas[number]
        in_rack = Counter(layout.racks[broker] for broker in present)
        shared = [broker for broker in present if in_rack[layout.racks[broker]] > 1] or list(present)
        leader = layout.partitions[number].leader
        others = [broker for broker in shared if broker != leader]
        return max(
            others,
            key=lambda broker: (
                broker not in layout.load,
                self._above_share(broker) if broker in layout.load else 0,
                -broker,
            ),
        )


def racks_to_have(layout: Layout, scope: Scope, number: int) -> int:
    """On how many racks a partition must be: all that it can, or no fewer than it was if little may move."""
    part = layout.partitions[number]
    return part.racks if scope.freedom is Freedom.ALL else min(part.racks, layout.spread(part.original))


def _smallest(sizes: Sequence[int], missing: Sequence[int], limit_bytes: float) -> int:
    """The first number that is not among the smallest partitions, whose new replicas weigh so little."""
    total = 0
    for number, (size, count) in enumerate(zip(sizes, missing, strict=True)):
        total += size * count
        if total > limit_bytes:
            return number
    return len(sizes)
