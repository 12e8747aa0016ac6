"""Reports the ranges of a split that cannot be read: their positions, and the offsets that are missing.

The batches before and after a range show which offsets are missing. The offsets in a damaged header count
only if those batches do not show it. So a range stays open until the next valid batch, or the end of the
split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klog.formats.errors import KlogError
from klog.replicas.splits import LostRange, Split

OnLost = Callable[[LostRange], None]


@dataclass(slots=True)
class _DamagedRange:
    start_bytes: int
    problem: KlogError
    claimed_first: int | None
    claimed_end: int | None


class LostRangeReporter:
    """Reports the lost ranges of one split to `on_lost`; with `fail` it raises the first one.

    `next_offset` is the offset after the last valid batch so far.
    """

    def __init__(self, split: Split, on_lost: OnLost, *, fail: bool) -> None:
        self.next_offset = split.base_offset
        self._split = split
        self._on_lost = on_lost
        self._fail = fail
        self._open: _DamagedRange | None = None
        # If the split starts inside its segment, the batch before it is not known.
        self._starts_in_the_middle = split.start_bytes > 0

    @property
    def is_open(self) -> bool:
        """Whether a range is open: the last batch was damaged."""
        return self._open is not None

    def open(
        self,
        position_bytes: int,
        problem: KlogError,
        claimed_first: int | None = None,
        claimed_end: int | None = None,
    ) -> None:
        """Start a range at a position, because of `problem`; an open range continues.

        `claimed_first` and `claimed_end` (exclusive) are the offsets that the damaged header names.
        """
        if self._open is None:
            self._open = _DamagedRange(position_bytes, problem, claimed_first, claimed_end)
        elif claimed_end is not None:
            self._open.claimed_end = claimed_end

    def close(self, position_bytes: int, offset: int, *, known: bool = True) -> None:
        """End the range before a valid batch with this offset; if not `known`, it starts at this offset or
        before.
        """
        if self._open is None:
            return
        damaged, self._open = self._open, None
        first = self._first(damaged, offset)
        end = offset if known else self._claimed_end(damaged, first, offset)
        self.report(damaged.problem, damaged.start_bytes, position_bytes, first, end)

    def finish(self, offset: int | None) -> None:
        """End the range with the split; the batch after the split has this offset (None: unknown)."""
        if self._open is not None:
            most = self._split.end_offset if offset is None else offset
            self.close(self._split.end_bytes, most, known=offset is not None)

    def _first(self, damaged: _DamagedRange, end_offset: int) -> int:
        claimed = damaged.claimed_first
        may_believe = self._starts_in_the_middle and self.next_offset == self._split.base_offset
        if may_believe and claimed is not None and self.next_offset <= claimed < end_offset:
            return claimed
        return self.next_offset

    @staticmethod
    def _claimed_end(damaged: _DamagedRange, first: int, most: int) -> int:
        claimed = damaged.claimed_end
        return claimed if claimed is not None and first < claimed <= most else most

    def report(
        self, problem: KlogError, start_bytes: int, end_bytes: int, first_offset: int, end_offset: int
    ) -> None:
        """Report that offsets from `first_offset` to before `end_offset` are lost.

        Only offsets of the split count: if it has none of them, nothing is reported or raised.
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
                problem.explanation,
            )
        )
