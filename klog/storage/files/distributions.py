"""Statistics that take little memory: a distribution of sizes, and a histogram over an unknown time range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

_MOST_BUCKETS: Final = 4096


class Distribution:
    """Counts how often each value came. Memory grows with the number of different values; sizes have few."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, values: Iterable[int]) -> None:
        """Count each of `values`."""
        self._counts.update(values)

    def __len__(self) -> int:
        return self._counts.total()

    @property
    def smallest(self) -> int | None:
        """The smallest value; None if nothing was counted."""
        return min(self._counts, default=None)

    @property
    def largest(self) -> int | None:
        """The largest value; None if nothing was counted."""
        return max(self._counts, default=None)

    @property
    def median(self) -> int | None:
        """The lower median; None if nothing was counted."""
        half = (self._counts.total() + 1) // 2
        for value in sorted(self._counts):
            half -= self._counts[value]
            if half <= 0:
                return value
        return None


class TimeHistogram:
    """Weights over time. Buckets are 1 ms wide at first; their width doubles when there are too many."""

    def __init__(self) -> None:
        self._shift = 0
        self._weights: dict[int, int] = {}

    def add(self, timestamps_ms: Iterable[int], weights: Iterable[int]) -> None:
        """Add each weight at its time. Times below 0 mean that there is no time; they are skipped."""
        found = self._weights
        shift = self._shift
        for timestamp, weight in zip(timestamps_ms, weights, strict=True):
            if timestamp >= 0:
                bucket = timestamp >> shift
                found[bucket] = found.get(bucket, 0) + weight
        while len(self._weights) > _MOST_BUCKETS:
            self._widen()

    def _widen(self) -> None:
        wider: dict[int, int] = {}
        for bucket, weight in self._weights.items():
            wider[bucket >> 1] = wider.get(bucket >> 1, 0) + weight
        self._weights = wider
        self._shift += 1

    def bars(self, count: int) -> tuple[int, int, list[int]]:
        """`count` equal intervals: the start of the first and the width of each (ms), and their weights."""
        if not self._weights:
            return 0, 0, []
        first = min(self._weights) << self._shift
        end = (max(self._weights) + 1) << self._shift
        width = max(1, -(-(end - first) // count))
        bars = [0] * min(count, -(-(end - first) // width))
        for bucket, weight in self._weights.items():
            bars[((bucket << self._shift) - first) // width] += weight
        return first, width, bars
