"""Metrics of requests by API: their number, failures and times.

Kafka's `kafka.network:type=RequestMetrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.server.counters.request_times import ApiCounter, ConversionCounter, RequestCounters, Timing
from klog.server.metrics.exposition import Metric, Sample
from klog.server.metrics.times import Times, summary

_NS_A_MS: Final = 1_000_000
_PREFIX: Final = "kafka_network_requestmetrics_"


class ApiTimes(NamedTuple):
    """The times of one API, under Kafka's names. Each has all requests that are answered."""

    totaltimems: Times
    requestqueuetimems: Times
    localtimems: Times
    remotetimems: Times
    responsequeuetimems: Times
    responsesendtimems: Times

    @classmethod
    def of(cls, counters: Sequence[ApiCounter]) -> ApiTimes:
        """What these have counted so far."""
        totals = Times.of(*(each.totals for each in counters))
        answered = sum(totals.counts)

        def waits(*timings: Timing) -> Times:
            return Times.of(*timings).filled(answered)

        return cls(
            totals,
            waits(*(each.queues for each in counters)),
            Times.of(*(each.local for each in counters)),
            waits(*(each.remotes for each in counters)),
            waits(*(each.response_queues for each in counters)),
            Times.of(*(each.sends for each in counters)),
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
    yield from _conversion_metrics(counters.conversions)
    for name, help_text in (
        ("totaltimems", "milliseconds from a request until its answer is sent"),
        ("requestqueuetimems", "milliseconds waited for an I/O thread; near 0 without one"),
        ("localtimems", "milliseconds in handlers"),
        ("remotetimems", "milliseconds waited for other brokers, for records or for time to pass"),
        ("responsequeuetimems", "milliseconds waited for the network thread after the answer was made"),
        ("responsesendtimems", "milliseconds to send answers"),
    ):
        samples = (
            sample
            for request, times in now.items()
            for sample in summary({"request": request}, getattr(times, name), getattr(before[request], name))
        )
        yield Metric(f"{_PREFIX}{name}", "summary", help_text, samples)


def _conversion_metrics(counter: ConversionCounter) -> Iterator[Metric]:
    for name, help_text, total in (
        (
            "messageconversionstimems",
            "milliseconds to convert records to older message formats",
            counter.elapsed_ns / _NS_A_MS,
        ),
        ("temporarymemorybytes", "bytes in memory for such conversions", counter.memory_bytes),
    ):
        labels = {"request": "Fetch"}
        samples = (Sample(labels, total, "_sum"), Sample(labels, counter.conversions, "_count"))
        yield Metric(f"{_PREFIX}{name}", "summary", help_text, samples)
