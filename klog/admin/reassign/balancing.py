"""Evens out the bytes of brokers by moving replicas, with as few bytes as possible.

A local search: the fullest broker gives the emptiest one the replica that fits best, until no move brings
brokers nearer to their band. Then moves that turn out larger than needed are taken back or made smaller.
Whether a move helps depends on the layout alone, so that a plan for the result of a plan changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from enum import Enum, auto
from typing import Final

from klog.admin.reassign.goals import Freedom, Scope
from klog.admin.reassign.layout import Layout
from klog.admin.reassign.shares import Band

_LEAST_PART: Final = 10_000  # replicas below this part of a broker's share do not matter
_TRIES: Final = 50
_LEAST_FIT: Final = 8


class Cost(Enum):
    """Which moves to consider: those that copy nothing that is not copied anyway, or all."""

    FREE = auto()
    ANY = auto()


class Balancing:
    """A search on one layout."""

    def __init__(self, layout: Layout, scope: Scope, band: Band, *, pieces: float = 1.0) -> None:
        self._layout = layout
        self._scope = scope
        self._band = band
        self._pieces = pieces
        self._first = bisect_left(layout.sizes, max(1, max(band.high.values()) // _LEAST_PART))
        self._per_byte = sum(map(len, layout.held.values())) / max(1, sum(layout.load.values()))
        # The partitions of each broker whose replicas are not where they were, sorted.
        self._changed: dict[int, list[int]] = {broker: [] for broker in layout.targets}
        for number in range(len(layout.partitions)):
            self._note_changed(number)
        # Pairs of brokers between which nothing could be moved when it was last tried.
        self._stuck: dict[Cost, set[tuple[int, int]]] = {cost: set() for cost in Cost}

    def run(self) -> None:
        """Search until nothing helps any more."""
        self._search()
        while self._shrink():
            self._search()

    def _note_changed(self, number: int) -> None:
        layout = self._layout
        if layout.replicas[number] != layout.partitions[number].original:
            for broker in layout.replicas[number] & layout.load.keys():
                insort(self._changed[broker], number)

    def _movable(self, giver: int, cost: Cost) -> list[int]:
        """The partitions on a broker of which some may move to another one, sorted."""
        if cost is Cost.FREE or self._scope.freedom is Freedom.NONE:
            return self._changed[giver]
        return self._layout.held[giver]

    def _may_cost(self, taker: int) -> bool:
        """Whether replicas that need not move may be moved to a broker."""
        match self._scope.freedom:
            case Freedom.ALL:
                return True
            case Freedom.TO_ADDED:
                return taker in self._scope.added and self._layout.load[taker] < self._band.low[taker]
            case Freedom.NONE:
                return False

    # ------------------------------------------------------------------ single moves

    def _search(self) -> None:
        """Make moves that help until there are none. Those that cost nothing come first."""
        while True:
            while self._improve(Cost.FREE) or self._improve(Cost.ANY):
                pass
            for stuck in self._stuck.values():
                stuck.clear()  # what could not be moved may be movable now
            if not self._improve(Cost.ANY) and not self._exchange():
                return

    def _improve(self, cost: Cost) -> bool:
        """Make the first move that helps, from the fullest brokers to the emptiest."""
        load, low, high = self._layout.load, self._band.low, self._band.high
        givers = sorted(load, key=lambda broker: (high[broker] - load[broker], broker))
        takers = sorted(load, key=lambda broker: (load[broker] - low[broker], broker))
        stuck = self._stuck[cost]
        for giver in givers:
            if not self._movable(giver, cost):
                continue
            for taker in takers:
                if (giver, taker) in stuck or (wanted := self._wanted(giver, taker)) <= 0:
                    continue
                if (found := self._best(giver, taker, wanted, cost)) is not None:
                    self._move(found, giver, taker)
                    return True
                stuck.add((giver, taker))
        return False

    def _exchange(self) -> bool:
        """Make the first exchange of two replicas that helps. That is tried if no move does."""
        load = self._layout.load
        if self._scope.freedom is not Freedom.ALL:
            return False
        for giver in sorted(load, key=lambda broker: (self._band.high[broker] - load[broker], broker)):
            for taker in sorted(load, key=lambda broker: (load[broker] - self._band.low[broker], broker)):
                if (wanted := self._wanted(giver, taker)) > 0 and self._exchanged(giver, taker, wanted):
                    return True
        return False

    def _exchanged(self, giver: int, taker: int, wanted: int) -> bool:
        sizes, given, taken = self._layout.sizes, self._layout.held[giver], self._layout.held[taker]
        start = bisect_left(given, bisect_left(sizes, wanted))
        for number in given[start : start + _TRIES]:
            place = bisect_left(taken, bisect_left(sizes, sizes[number] - wanted))
            for other in taken[max(0, place - 1) : place + 2]:
                if (
                    self._gain(giver, taker, sizes[number] - sizes[other]) > 0
                    and self._may_move(number, giver, taker, Cost.ANY)
                    and self._may_move(other, taker, giver, Cost.ANY)
                ):
                    self._move(number, giver, taker)
                    self._move(other, taker, giver)
                    return True
        return False

    def _wanted(self, giver: int, taker: int) -> int:
        """How many bytes should go from one broker to another; 0 or less for none."""
        load, low, high = self._layout.load, self._band.low, self._band.high
        over, under = load[giver] - high[giver], low[taker] - load[taker]
        if over > 0 and under > 0:
            return min(over, under)
        if over > 0:
            room = high[taker] - load[taker]
            return min(over, room) if room > 0 else (over + room + 1) // 2
        if under > 0:
            spare = load[giver] - low[giver]
            return min(under, spare) if spare > 0 else (under + spare + 1) // 2
        return 0

    def _usual(self, giver: int, taker: int, wanted: int) -> float:
        """The size of one replica, if the bytes are to bring both brokers their share of replicas, too."""
        held, shares = self._layout.held, self._band.shares
        over = len(held[giver]) - shares[giver] * self._per_byte
        under = shares[taker] * self._per_byte - len(held[taker])
        return wanted / max(1.0, min(over, under) * self._pieces)

    def _best(self, giver: int, taker: int, wanted: int, cost: Cost) -> int | None:
        """The partition to move: the better of the two nearest to the usual size, one below, one above."""
        sizes, movable = self._layout.sizes, self._movable(giver, cost)
        usual = self._usual(giver, taker, wanted)
        start = bisect_left(movable, bisect_left(sizes, usual))
        above = below = None
        for place in range(start, len(movable)):
            if self._gain(giver, taker, sizes[movable[place]]) <= 0:
                break
            if self._may_move(movable[place], giver, taker, cost):
                above = movable[place]
                break
        for place in range(start - 1, -1, -1):
            if movable[place] < self._first:
                break
            if self._may_move(movable[place], giver, taker, cost):
                below = movable[place]
                break
        if above is None or below is None:
            return above if below is None else below
        if sizes[above] <= wanted:
            return above if sizes[above] - usual < usual - sizes[below] else below
        if _LEAST_FIT * sizes[below] >= usual:
            return below
        gains = self._gain(giver, taker, sizes[above]), self._gain(giver, taker, sizes[below])
        return above if gains[0] > gains[1] else below

    def _gain(self, giver: int, taker: int, size: int) -> int:
        """How much nearer to the band a move of so many bytes brings both brokers."""
        load, violation = self._layout.load, self._band.violation
        before = violation(giver, load[giver]) + violation(taker, load[taker])
        return before - violation(giver, load[giver] - size) - violation(taker, load[taker] + size)

    def _may_move(self, number: int, giver: int, taker: int, cost: Cost) -> bool:
        layout = self._layout
        if taker in layout.replicas[number]:
            return False
        part = layout.partitions[number]
        costs_bytes = giver in part.original and taker not in part.original
        removes_leader = giver == part.leader and giver in part.original
        if (costs_bytes or removes_leader) and (cost is Cost.FREE or not self._may_cost(taker)):
            return False
        if self._scope.freedom is Freedom.TO_ADDED and giver in self._scope.added - part.original:
            # Otherwise replicas would move between the others by way of an added broker.
            return taker in self._scope.added | part.original and layout.keeps_racks(number, giver, taker)
        return layout.keeps_racks(number, giver, taker)

    def _move(self, number: int, giver: int, taker: int) -> None:
        for broker in self._layout.replicas[number] & self._layout.load.keys():
            changed = self._changed[broker]
            place = bisect_left(changed, number)
            if place < len(changed) and changed[place] == number:
                del changed[place]
        self._layout.move(number, giver, taker)
        self._note_changed(number)

    # ------------------------------------------------------------------ fewer bytes

    def _shrink(self) -> bool:
        """Take back moves that are not needed, or move smaller partitions; whether anything was found."""
        found = False
        layout = self._layout
        for number in range(len(layout.partitions) - 1, self._first - 1, -1):
            original = layout.partitions[number].original
            for taker in sorted(layout.replicas[number] - original):
                homes = sorted((original - layout.replicas[number]) & layout.load.keys())
                found |= any(self._undo(number, taker, home) for home in homes)
        return found

    def _undo(self, number: int, taker: int, home: int) -> bool:
        """Move a replica back home, alone or in exchange for a smaller one, if that does no harm."""
        layout = self._layout
        if not layout.keeps_racks(number, taker, home):
            return False
        size = layout.sizes[number]
        if self._gain(taker, home, size) >= 0:
            self._move(number, taker, home)
            return True
        other = self._smaller(number, taker, home)
        if other is None:
            return False
        self._move(number, taker, home)
        self._move(other, home, taker)
        return True

    def _smaller(self, number: int, taker: int, home: int) -> int | None:
        """The smallest partition at `home` that can take the place of a larger one that moved from there."""
        if self._scope.freedom is Freedom.NONE:
            return None
        layout, movable = self._layout, self._layout.held[home]
        size = layout.sizes[number]

        def suffices(other: int) -> bool:
            return self._gain(taker, home, size - layout.sizes[other]) >= 0

        first = bisect_left(movable, self._first)
        end = bisect_left(movable, bisect_left(layout.sizes, size))
        start = bisect_left(movable, True, first, max(first, end), key=suffices)
        for other in movable[start : min(end, start + _TRIES)]:
            if (
                taker not in layout.replicas[other]
                and home in layout.partitions[other].original
                and layout.keeps_racks(other, home, taker)
                and suffices(other)
            ):
                return other
        return None
