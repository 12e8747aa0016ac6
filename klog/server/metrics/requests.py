"""Metrics of requests by API: their number, failures and times.

Kafka's `kafka.network:type=RequestMetrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.server.counters.request_times import ApiCounter, RequestCounters
from klog.server.metrics.exposition import Metric, Sample
from klog.server.metrics.times import Times, summary

_PREFIX: Final = "kafka_network_requestmetrics_"


class ApiTimes(NamedTuple):
    """The times of one API."""

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
    """The times of all APIs so far."""
    return {name: ApiTimes.of(found) for name, found in counters.by_name().items()}


def request_metrics(counters: RequestCounters, now: TimesByName, before: TimesByName) -> Iterator[Metric]:
    """The metrics. `before` holds the times at the start of the last minute."""
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
            for sample in summary(
                {"request": request}, getattr(times, field), getattr(before[request], field)
            )
        )
        yield Metric(f"{_PREFIX}{name}timems", "summary", help_text, samples)
