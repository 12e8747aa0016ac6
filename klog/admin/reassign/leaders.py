"""Chooses preferred leaders so that every broker leads as equally many partitions as the replicas allow.

Each partition passes its leadership on along a path of brokers, from one that leads many to one that leads
fewer. If no such path is left, no other choice of leaders is more even (optimal semi-matching).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

NO_BROKER: Final = -1


class _Leaders:
    def __init__(
        self, leaders: Sequence[int], candidates: Sequence[Collection[int]], brokers: Iterable[int]
    ) -> None:
        self.leaders = list(leaders)
        self._candidates = candidates
        self._count = dict.fromkeys(sorted(brokers), 0)
        # The partitions that the first broker leads and the second could lead, in the order of preference.
        self._movable: dict[int, dict[int, dict[int, None]]] = {
            broker: {other: {} for other in self._count} for broker in self._count
        }
        for number, leader in enumerate(self.leaders):
            if leader in self._count:
                self._count[leader] += 1
                self._link(number, leader)

    def _link(self, number: int, leader: int) -> None:
        for other in self._candidates[number]:
            if other != leader and other in self._count:
                self._movable[leader][other][number] = None

    def balance(self) -> None:
        while any(
            self._relieve(broker)
            for broker in sorted(self._count, key=lambda broker: (-self._count[broker], broker))
        ):
            pass

    def _relieve(self, broker: int) -> bool:
        """Pass one leadership on to the broker that leads fewest of those that can be reached."""
        before: dict[int, int] = {broker: NO_BROKER}
        queue = deque([broker])
        best = broker
        while queue:
            place = queue.popleft()
            for other, numbers in self._movable[place].items():
                if numbers and other not in before:
                    before[other] = place
                    queue.append(other)
                    if self._count[other] < self._count[best]:
                        best = other
        if self._count[broker] - self._count[best] < 2:
            return False
        self._count[broker] -= 1
        self._count[best] += 1
        while (giver := before[best]) != NO_BROKER:
            self._pass_on(next(iter(self._movable[giver][best])), giver, best)
            best = giver
        return True

    def _pass_on(self, number: int, giver: int, taker: int) -> None:
        for other in self._candidates[number]:
            self._movable[giver].get(other, {}).pop(number, None)
        self.leaders[number] = taker
        self._link(number, taker)


def balanced_leaders(
    leaders: Sequence[int], candidates: Sequence[Collection[int]], brokers: Iterable[int]
) -> list[int]:
    """The leaders of partitions, from `leaders`, which are changed as little as needed.

    The first partitions are changed first. `candidates` are the replicas of each; only `brokers` are
    evened out.
    """
    found = _Leaders(leaders, candidates, brokers)
    found.balance()
    return found.leaders
