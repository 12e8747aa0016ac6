"""Metrics of requests by API: how many, how many failed, how long they took.

Kafka's `kafka.network:type=RequestMetrics`. Its histograms become summaries, as the JMX exporter's rules make
them; their quantiles are those of the last minute, from buckets of 26 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from typing import Final, NamedTuple

from klog.server.metrics.exposition import Metric, Sample
from klog.server.request_times import BOUNDS_NS, ApiCounter, RequestCounters, Timing

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
_PREFIX: Final = "kafka_network_requestmetrics_"


class Times(NamedTuple):
    """How often something took how long, by bucket, and the sum."""

    counts: tuple[int, ...]
    sum_ns: int

    @classmethod
    def of(cls, *timings: Timing) -> Times:
        """All that these have recorded."""
        counts = tuple(map(sum, zip(*(timing.counts for timing in timings), strict=True)))
        return cls(counts, sum(timing.sum_ns for timing in timings))


class ApiTimes(NamedTuple):
    """The times of one kind of request."""

    total: Times
    local: Times
    queue: Times

    @classmethod
    def of(cls, counters: Sequence[ApiCounter]) -> ApiTimes:
        """What these have counted so far."""
        return cls(
            Times.of(*(timing for each in counters for timing in (each.direct, each.totals))),
            Times.of(*(timing for each in counters for timing in (each.direct, each.handlers))),
            Times.of(*(each.queues for each in counters)),
        )


TimesByName = Mapping[str, ApiTimes]


def request_times(counters: RequestCounters) -> TimesByName:
    """The times of all kinds of requests so far."""
    return {name: ApiTimes.of(found) for name, found in counters.by_name().items()}


def request_metrics(counters: RequestCounters, now: TimesByName, before: TimesByName) -> Iterator[Metric]:
    """`before` is what the times were when the last minute began."""
    by_name = counters.by_name().items()
    yield Metric(
        f"{_PREFIX}requests_total",
        "counter",
        "requests handled",
        (Sample({"request": name}, sum(each.requests for each in found)) for name, found in by_name),
    )
    yield Metric(
        f"{_PREFIX}errors_total",
        "counter",
        "requests whose handler failed",
        (Sample({"request": name}, sum(each.failures for each in found)) for name, found in by_name),
    )
    for field, help_text in (
        ("total", "milliseconds from a request to its answer, queue and purgatory included"),
        ("local", "milliseconds in handlers"),
        ("queue", "milliseconds waited for an I/O thread, of requests that need one"),
    ):
        name = "requestqueue" if field == "queue" else field
        samples = (
            sample
            for request, times in now.items()
            for sample in _summary(request, getattr(times, field), getattr(before[request], field))
        )
        yield Metric(f"{_PREFIX}{name}timems", "summary", help_text, samples)


def _summary(request: str, now: Times, before: Times) -> Iterator[Sample]:
    counts = list(map(sub, now.counts, before.counts))
    if any(counts):
        for label, share in _QUANTILES:
            yield Sample({"request": request, "quantile": label}, quantile_ns(counts, share) / _NS_A_MS)
    yield Sample({"request": request}, now.sum_ns / _NS_A_MS, "_sum")
    yield Sample({"request": request}, sum(now.counts), "_count")


def quantile_ns(counts: Sequence[int], share: float) -> float:
    """The time within which this share of all counted fell, interpolated within its bucket; 0.0 of none."""
    wanted = share * sum(counts)
    for number, count in enumerate(counts):
        if count and wanted <= count:
            upper = BOUNDS_NS[min(number, len(BOUNDS_NS) - 1)]
            lower = BOUNDS_NS[number - 1] if number else 0
            return lower + (upper - lower) * wanted / count
        wanted -= count
    return 0.0
