"""What a split could not give, told once for each stretch: positions, and the offsets that are missing.

Which offsets are missing is told by what stands before and behind: a damaged header's own word counts for
little. So a stretch stays open until sound data goes on, or the split ends.
"""

from __future__ import annotations

from collections.abc import Callable

from klog.formats.errors import KlogError
from klog.spark.splits import LostRange, Split

OnLost = Callable[[LostRange], None]


class Losses:
    """Reports the losses of one split to `on_lost`; with `fail` the first is raised instead.

    `next_offset` is where offsets have come to: one past the last of what was sound (or lost) so far.
    """

    def __init__(self, split: Split, on_lost: OnLost, *, fail: bool) -> None:
        self.next_offset = max(split.first_offset, split.base_offset)
        self._split = split
        self._on_lost = on_lost
        self._fail = fail
        self._open: tuple[int, KlogError] | None = None

    def open(self, position_bytes: int, problem: KlogError) -> None:
        """From here on nothing is sound, because of `problem`; what is open already stays as it is."""
        if self._open is None:
            self._open = position_bytes, problem

    def close(self, position_bytes: int, offset: int) -> None:
        """Sound data goes on here, with this offset."""
        if self._open is not None:
            start_bytes, problem = self._open
            self._open = None
            self.report(problem, start_bytes, position_bytes, self.next_offset, offset)

    def report(
        self, problem: KlogError, start_bytes: int, end_bytes: int | None, first_offset: int, end_offset: int
    ) -> None:
        """Offsets from `first_offset` to before `end_offset` are lost, as far as the split wants them."""
        split = self._split
        first, end = max(first_offset, split.first_offset), min(end_offset, split.end_offset)
        if end_offset <= split.first_offset or first_offset >= split.end_offset:
            return
        problem = problem.at(split.file, start_bytes)
        if self._fail:
            raise problem
        reason = f"{problem.what} ({problem.cure})" if problem.cure else problem.what
        self._on_lost(
            LostRange(
                split.topic,
                split.partition,
                split.file,
                start_bytes,
                end_bytes,
                first,
                max(first, end),
                reason,
            )
        )
