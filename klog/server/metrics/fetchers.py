"""Metrics of the threads that copy partitions from their leaders.

Kafka's `ReplicaFetcherManager`, `FetcherStats` and `FetcherLagMetrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from klog.server.metrics.exposition import Labels, Metric, Sample, gauges

if TYPE_CHECKING:
    from klog.server.fetching.fetcher_thread import FetcherThread
    from klog.server.fetching.manager import FetcherManager

_MANAGER: Final = "kafka_server_replicafetchermanager_"
_CLIENT: Final = "Replica"
_PARTITIONS_A_TURN: Final = 500


def fetch_counts(fetchers: FetcherManager) -> Mapping[str, int]:
    """How many requests each thread has sent."""
    return {thread.name: thread.requests for thread in fetchers.threads.values()}


def fetcher_metrics(
    fetchers: FetcherManager,
    before: Mapping[str, int],
    seconds: float,
    pause: Callable[[], None],
) -> Iterator[Metric]:
    """The metrics of all threads that copy. `before` is what `fetch_counts` gave so many seconds ago."""
    threads = list(fetchers.threads.values())
    counts = fetchers.counts
    rates = [
        (thread.requests - before.get(thread.name, 0)) / seconds if seconds > 0 else 0.0 for thread in threads
    ]
    for name, help_text, value in (
        ("maxlag", "records that the replica furthest behind its leader lacks", counts.max_lag),
        ("minfetchrate", "requests per second of the slowest thread", min(rates, default=0.0)),
        ("failedpartitionscount", "partitions that are not copied any more", counts.failed_partitions),
        ("deadthreadcount", "threads that have died", counts.dead_threads),
    ):
        yield gauges(f"{_MANAGER}{name}", help_text, "clientId", {_CLIENT: value})
    labels = [_labels(fetchers, thread) for thread in threads]
    for name, help_text, counts_of_all in (
        ("requests", "requests to leaders", [each.requests for each in threads]),
        ("bytes", "bytes of records from leaders", [each.driver.record_bytes for each in threads]),
    ):
        samples = list(map(Sample, labels, counts_of_all))
        yield Metric(f"kafka_server_fetcherstats_{name}_total", "counter", help_text, samples)
    lag = "records below the leader's high watermark that the replica lacks, -1 before the first answer"
    yield Metric("kafka_server_fetcherlagmetrics_consumerlag", "gauge", lag, _lags(threads, pause))


def _labels(fetchers: FetcherManager, thread: FetcherThread) -> Labels:
    address = fetchers.address_of(thread.driver.fetcher.leader_id)
    host, port = ("", -1) if address is None else (address.host, address.port)
    return {"clientId": thread.name, "brokerHost": host, "brokerPort": port}


def _lags(threads: list[FetcherThread], pause: Callable[[], None]) -> Iterator[Sample]:
    for thread in threads:
        for number, state in enumerate(list(thread.driver.fetcher.states.values())):
            if number % _PARTITIONS_A_TURN == 0:
                pause()
            labels: Labels = {
                "clientId": thread.name,
                "topic": state.key.topic,
                "partition": state.key.partition,
            }
            yield Sample(labels, state.lag)
