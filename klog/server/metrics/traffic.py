"""Metrics of records and bytes by topic: Kafka's `kafka.server:type=BrokerTopicMetrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from klog.server.metrics.exposition import Metric, Sample, counter
from klog.server.topic_stats import TopicStats

_PREFIX: Final = "kafka_server_brokertopicmetrics_"
_BY_TOPIC: Final = (
    ("messagesin", "messages_in", "records written by producers"),
    ("bytesin", "bytes_in", "bytes written by producers"),
    ("bytesout", "bytes_out", "bytes read by consumers"),
    ("bytesrejected", "bytes_rejected", "bytes refused for their size"),
    ("totalproducerequests", "produces", "partitions that Produce requests named"),
    ("totalfetchrequests", "fetches", "partitions that Fetch responses contained"),
    ("failedproducerequests", "failed_produces", "partitions whose Produce failed"),
    ("failedfetchrequests", "failed_fetches", "partitions whose Fetch failed"),
)


def traffic_metrics(total: TopicStats, topics: Mapping[str, TopicStats]) -> Iterator[Metric]:
    """For each metric a sample without labels for the sum, as in Kafka, and one for each topic."""
    for name, field, help_text in _BY_TOPIC:
        yield Metric(f"{_PREFIX}{name}_total", "counter", help_text, _samples(field, total, topics))
    yield counter(
        f"{_PREFIX}replicationbytesout_total", "bytes read by followers", total.replication_bytes_out
    )


def _samples(field: str, total: TopicStats, topics: Mapping[str, TopicStats]) -> Iterator[Sample]:
    yield Sample({}, getattr(total, field))
    for topic, counts in topics.items():
        yield Sample({"topic": topic}, getattr(counts, field))
