"""Finds the least movement for a few partitions, by a search that is exact but for a given part.

The brokers stay as near to their shares as in a layout that was found by other means. The search goes through
the partitions from the largest to the smallest one, and through all replicas that each may have. It deepens:
the first pass looks for layouts that move no more than the lower bound, each further one for slightly more.
What cannot lead to a layout within the limit is cut off, so that the first layout is near the least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, repeat
from operator import add, sub
from typing import Final

from klog.admin.reassign.goals import Freedom, Scope
from klog.admin.reassign.layout import Layout
from klog.admin.reassign.shares import Band

_NEAR: Final = 1.03
"""The movement that is near enough to the least one, as a multiple of it."""

# Of a pass, after which the search is given up.
_MOST_STEPS: Final = 40_000
_MOST_PARTITIONS: Final = 100
_MOST_CHOICES: Final = 3000


@dataclass(frozen=True, slots=True)
class _Choice:
    """Replicas that a partition may have: what they move, and by how much they change the brokers' loads."""

    brokers: frozenset[int]
    moved_bytes: int
    changes: tuple[int, ...]


class _TooManyStepsError(Exception):
    pass


def move_less(layout: Layout, scope: Scope, band: Band) -> bool:
    """Change a layout to one that moves less and is as even, if that is found; whether it was."""
    if not (moved := layout.moved_bytes()) or scope.freedom is Freedom.NONE:
        return False
    if (choices := _choices(layout, scope)) is None:
        return False
    found = _Search(layout, choices, band).run(moved)
    if found is None:
        return False
    for number, brokers in found.items():
        for broker in sorted(layout.replicas[number] - brokers):
            layout.remove(number, broker)
        for broker in sorted(brokers - layout.replicas[number]):
            layout.add(number, broker)
    return True


def _choices(layout: Layout, scope: Scope) -> list[list[_Choice]] | None:
    """What each partition may have, from the last to the first; None if that is too much to search."""
    if len(layout.partitions) > _MOST_PARTITIONS:
        return None
    found = []
    count = 0
    for number in range(len(layout.partitions) - 1, -1, -1):
        found.append([_choice(layout, number, brokers) for brokers in _allowed(layout, scope, number)])
        count += len(found[-1])
        if count > _MOST_CHOICES:
            return None
    return found


def _choice(layout: Layout, number: int, brokers: frozenset[int]) -> _Choice:
    size, original = layout.sizes[number], layout.partitions[number].original
    return _Choice(
        brokers,
        size * len(brokers - original),
        tuple(size * ((broker in brokers) - (broker in original)) for broker in layout.targets),
    )


def _allowed(layout: Layout, scope: Scope, number: int) -> Iterator[frozenset[int]]:
    """The sets of brokers that may have a partition; those that are no targets stay as in the layout."""
    part, now = layout.partitions[number], layout.replicas[number]
    elsewhere = now - layout.load.keys()
    racks = layout.spread(now)
    staying = part.original - scope.leaving
    forced = max(0, len(now) - len(staying), racks - layout.spread(staying))
    for chosen in combinations(layout.targets, len(now) - len(elsewhere)):
        brokers = frozenset(elsewhere.union(chosen))
        new = brokers - part.original
        if layout.spread(brokers) < racks:
            continue
        if scope.freedom is Freedom.TO_ADDED and len(new - scope.added) > forced:
            continue
        yield brokers


class _Search:
    """A search for replicas of all partitions; loads are those of the targets, in their order."""

    def __init__(self, layout: Layout, choices: Sequence[Sequence[_Choice]], band: Band) -> None:
        self._choices = choices
        load, targets = layout.load, layout.targets
        self._low = [min(band.low[broker], load[broker]) for broker in targets]
        self._high = [max(band.high[broker], load[broker]) for broker in targets]
        self._total = sum(load.values())
        # What the partitions from a place on have on each target before they move,
        self._later = [(0,) * len(targets)]
        # by how much they can make it fuller or emptier,
        self._gains, self._losses = [(0,) * len(targets)], [(0,) * len(targets)]
        # and what they move at least.
        self._forced = [0]
        for number, each in enumerate(reversed(choices)):
            original, size = layout.partitions[number].original, layout.sizes[number]
            here = [size * (broker in original) for broker in targets]
            changes = list(zip(*(choice.changes for choice in each), strict=True))
            self._later.append(tuple(map(add, self._later[-1], here)))
            self._gains.append(tuple(map(add, self._gains[-1], map(max, changes))))
            self._losses.append(tuple(map(add, self._losses[-1], map(min, changes))))
            self._forced.append(self._forced[-1] + min(choice.moved_bytes for choice in each))
        for suffixes in (self._later, self._gains, self._losses, self._forced):
            suffixes.reverse()
        self._chosen: list[_Choice] = []
        self._steps = 0
        self._limit = 0.0
        self._next_limit = 0  # the least bytes of what was beyond the limit
        self._seen: dict[tuple[int, tuple[int, ...]], int] = {}

    def run(self, moved_bytes: int) -> dict[int, frozenset[int]] | None:
        """The replicas by number if they move less than so many bytes; None if that is near the least, or
        if the search was given up.
        """
        self._next_limit = self._least(0, 0, self._later[0])
        try:
            while self._next_limit * _NEAR < moved_bytes:
                if (found := self._within(self._next_limit * _NEAR)) is not None:
                    return found
            return None
        except _TooManyStepsError:
            pass
        try:
            return self._within(moved_bytes / _NEAR)  # any that is better
        except _TooManyStepsError:
            return None

    def _within(self, limit: float) -> dict[int, frozenset[int]] | None:
        """Replicas that move no more than a limit; None if there are none. Raises _TooManyStepsError."""
        self._limit, self._next_limit = limit, self._total + 1
        self._steps = 0
        self._seen.clear()
        self._chosen.clear()
        if not self._descend(0, 0, self._later[0]):
            return None
        last = len(self._choices) - 1
        return {last - place: choice.brokers for place, choice in enumerate(self._chosen)}

    def _least(self, place: int, moved: int, loads: Sequence[int]) -> int:
        """A lower bound of all that moves if the partitions before a place have moved so many bytes.

        Partitions after it count as being where they were.
        """
        lacking = kept = 0
        for load, low, high, gain, loss in zip(
            loads, self._low, self._high, self._gains[place], self._losses[place], strict=True
        ):
            if load < low:
                if load + gain < low:
                    return self._total + 1
                lacking += low - load
            elif load > high:
                if load + loss > high:
                    return self._total + 1
                kept += high
                continue
            kept += load
        return moved + max(lacking, self._total - kept, self._forced[place])

    def _descend(self, place: int, moved: int, loads: tuple[int, ...]) -> bool:
        if place == len(self._choices):
            return all(
                low <= load <= high for load, low, high in zip(loads, self._low, self._high, strict=True)
            )
        if self._seen.get((place, loads), moved + 1) <= moved:
            return False
        self._seen[place, loads] = moved
        ways = []
        for number, choice in enumerate(self._choices[place]):
            self._steps += 1
            after = tuple(map(add, loads, choice.changes))
            least = self._least(place + 1, moved + choice.moved_bytes, after)
            if least <= self._limit:
                evenness = sum(map(pow, map(sub, after, self._later[place + 1]), repeat(2)))
                ways.append((least, evenness, number, after))
            else:
                self._next_limit = min(self._next_limit, least)
        if self._steps > _MOST_STEPS:
            raise _TooManyStepsError
        for _, _, number, after in sorted(ways):
            choice = self._choices[place][number]
            self._chosen.append(choice)
            if self._descend(place + 1, moved + choice.moved_bytes, after):
                return True
            self._chosen.pop()
        return False
