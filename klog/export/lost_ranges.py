"""What a split could not give, told once for each stretch: positions, and the offsets that are missing.

Which offsets are missing is told by what stands before and behind: a damaged header's own word counts only
where those are silent. So a stretch stays open until sound data goes on, or the split ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klog.export.splits import LostRange, Split
from klog.formats.errors import KlogError

OnLost = Callable[[LostRange], None]


@dataclass(slots=True)
class _DamagedRange:
    start_bytes: int
    problem: KlogError
    claimed_first: int | None
    claimed_end: int | None


class LostRangeReporter:
    """Reports the losses of one split to `on_lost`; with `fail` the first is raised instead.

    `next_offset` is where offsets have come to: one past the last of what was sound so far.
    """

    def __init__(self, split: Split, on_lost: OnLost, *, fail: bool) -> None:
        self.next_offset = split.base_offset
        self._split = split
        self._on_lost = on_lost
        self._fail = fail
        self._open: _DamagedRange | None = None
        # What stands before a split that starts inside of its segment is not known.
        self._starts_in_the_middle = split.start_bytes > 0

    @property
    def is_open(self) -> bool:
        """Whether the last that was met is damage."""
        return self._open is not None

    def open(
        self,
        position_bytes: int,
        problem: KlogError,
        claimed_first: int | None = None,
        claimed_end: int | None = None,
    ) -> None:
        """From here on nothing is sound, because of `problem`; a stretch that is open already goes on.

        What is damaged claims to hold the offsets from `claimed_first` to before `claimed_end`.
        """
        if self._open is None:
            self._open = _DamagedRange(position_bytes, problem, claimed_first, claimed_end)
        elif claimed_end is not None:
            self._open.claimed_end = claimed_end

    def close(self, position_bytes: int, offset: int, *, known: bool = True) -> None:
        """Sound data goes on here with this offset; if it is not `known`, with one that is not above it."""
        if self._open is None:
            return
        stretch, self._open = self._open, None
        first = self._first(stretch, offset)
        end = offset if known else self._claimed_end(stretch, first, offset)
        self.report(stretch.problem, stretch.start_bytes, position_bytes, first, end)

    def finish(self, offset: int | None) -> None:
        """The split ends; what follows it has this offset (None: nobody knows)."""
        if self._open is not None:
            most = self._split.end_offset if offset is None else offset
            self.close(self._split.end_bytes, most, known=offset is not None)

    def _first(self, stretch: _DamagedRange, end_offset: int) -> int:
        claimed = stretch.claimed_first
        believed = self._starts_in_the_middle and self.next_offset == self._split.base_offset
        if believed and claimed is not None and self.next_offset <= claimed < end_offset:
            return claimed
        return self.next_offset

    @staticmethod
    def _claimed_end(stretch: _DamagedRange, first: int, most: int) -> int:
        claimed = stretch.claimed_end
        return claimed if claimed is not None and first < claimed <= most else most

    def report(
        self, problem: KlogError, start_bytes: int, end_bytes: int, first_offset: int, end_offset: int
    ) -> None:
        """Offsets from `first_offset` to before `end_offset` are lost, as far as the split wants them.

        Nothing is reported (or raised) where it wants none of them.
        """
        split = self._split
        before = end_offset < split.first_offset or first_offset < end_offset == split.first_offset
        if before or first_offset >= split.end_offset:
            return
        problem = problem.at(split.file, start_bytes)
        if self._fail:
            raise problem
        first = max(first_offset, split.first_offset)
        self._on_lost(
            LostRange(
                split.topic,
                split.partition,
                split.file,
                start_bytes,
                end_bytes,
                first,
                max(first, min(end_offset, split.end_offset)),
                f"{problem.what} ({problem.cure})" if problem.cure else problem.what,
            )
        )
