"""Times as summaries, as the JMX exporter's rules show Kafka's histograms.

The quantiles are those of the last minute, from buckets of 26 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import sub
from typing import Final, NamedTuple

from klog.server.counters.request_times import BOUNDS_NS, Timing
from klog.server.metrics.exposition import Labels, Sample

# The labels are those of the JMX exporter, which puts "0." before the digits of "50thPercentile".
_QUANTILES: Final = (
    ("0.50", 0.5),
    ("0.75", 0.75),
    ("0.95", 0.95),
    ("0.98", 0.98),
    ("0.99", 0.99),
    ("0.999", 0.999),
)
_NS_A_MS: Final = 1_000_000


class Times(NamedTuple):
    """The number of times in each bucket, and their sum."""

    counts: tuple[int, ...]
    sum_ns: int

    @classmethod
    def of(cls, *timings: Timing) -> Times:
        """Everything that these have recorded."""
        counts = tuple(map(sum, zip(*(timing.counts for timing in timings), strict=True)))
        return cls(counts, sum(timing.sum_ns for timing in timings))

    def filled(self, count: int) -> Times:
        """With times of 0 for those that are missing from so many."""
        missing = max(0, count - sum(self.counts))
        return Times((self.counts[0] + missing, *self.counts[1:]), self.sum_ns)


def summary(labels: Labels, now: Times, before: Times) -> Iterator[Sample]:
    """Sum and count since the start, and the quantiles of what came after `before`, if there is anything."""
    counts = list(map(sub, now.counts, before.counts))
    if any(counts):
        for label, share in _QUANTILES:
            yield Sample({**labels, "quantile": label}, quantile_ns(counts, share) / _NS_A_MS)
    yield Sample(labels, now.sum_ns / _NS_A_MS, "_sum")
    yield Sample(labels, sum(now.counts), "_count")


def quantile_ns(counts: Sequence[int], share: float) -> float:
    """The time within which this share of all counts lies,
    interpolated within its bucket; 0.0 without counts.
    """
    wanted = share * sum(counts)
    for number, count in enumerate(counts):
        if count and wanted <= count:
            upper = BOUNDS_NS[min(number, len(BOUNDS_NS) - 1)]
            lower = BOUNDS_NS[number - 1] if number else 0
            return lower + (upper - lower) * wanted / count
        wanted -= count
    return 0.0
