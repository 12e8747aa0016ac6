"""Which offset records have after they were produced anew, by that which they had. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """Records with the offsets from `first` to before `end` now have those from `new_first` on."""

    first: int
    end: int
    new_first: int


class OffsetMap:
    """The offsets of one partition. Records are noted in their order. New offsets are 0, 1, 2 and so on."""

    def __init__(self) -> None:
        self._firsts = array("q")
        self._ends = array("q")
        self._new_firsts = array("q")
        self.new_end = 0
        """The offset after the last record that was noted."""

    def note(self, offsets: Sequence[int]) -> None:
        """Take records with these offsets, ascending, as the next ones."""
        if isinstance(offsets, range):
            self._note(offsets.start, offsets.stop)
            return
        for offset in offsets:
            self._note(offset, offset + 1)

    def _note(self, first: int, end: int) -> None:
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = end
        else:
            self._firsts.append(first)
            self._ends.append(end)
            self._new_firsts.append(self.new_end)
        self.new_end += end - first

    def ranges(self) -> Iterator[OffsetRange]:
        """The ranges in the order of the log."""
        for values in zip(self._firsts, self._ends, self._new_firsts, strict=True):
            yield OffsetRange(*values)

    def translated(self, offset: int) -> int:
        """Where a reader goes on that would have gone on at an offset: at the first record that has it or a
        later one, or at the end.
        """
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return 0
        inside = min(offset, self._ends[at]) - self._firsts[at]
        return self._new_firsts[at] + inside
