"""Metrics of records and bytes by topic: Kafka's `kafka.server:type=BrokerTopicMetrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from klog.server.counters.topic_stats import TopicStats
from klog.server.metrics.exposition import Metric, Sample, counter

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
    ("producemessageconversions", "produce_conversions", "records of producers that were converted"),
    ("fetchmessageconversions", "fetch_conversions", "records converted for consumers of old formats"),
)
_BETWEEN_BROKERS: Final = (
    ("replicationbytesin", "replication_bytes_in", "bytes that this broker fetched as a follower"),
    ("replicationbytesout", "replication_bytes_out", "bytes read by followers"),
    ("reassignmentbytesin", "reassignment_bytes_in", "bytes fetched for replicas that are being added"),
    ("reassignmentbytesout", "reassignment_bytes_out", "bytes read by replicas that are being added"),
)


def traffic_metrics(total: TopicStats, topics: Mapping[str, TopicStats]) -> Iterator[Metric]:
    """For each metric a sample without labels for the sum, as in Kafka, and one for each topic."""
    for name, field, help_text in _BY_TOPIC:
        yield Metric(f"{_PREFIX}{name}_total", "counter", help_text, _samples(field, total, topics))
    for name, field, help_text in _BETWEEN_BROKERS:
        yield counter(f"{_PREFIX}{name}_total", help_text, getattr(total, field))


def _samples(field: str, total: TopicStats, topics: Mapping[str, TopicStats]) -> Iterator[Sample]:
    yield Sample({}, getattr(total, field))
    for topic, counts in topics.items():
        yield Sample({"topic": topic}, getattr(counts, field))
