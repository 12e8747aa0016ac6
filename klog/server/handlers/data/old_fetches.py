"""Answers for old versions of Fetch: without zstd before 10, in message format 0 or 1 before 4.

Rules: `maybeConvertFetchedData` of Kafka's `KafkaApis`; KIP-110 (zstd), KIP-283 (conversion).
"""

from __future__ import annotations

from typing import Final

from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_response import PartitionFetched, size_of_records
from klog.protocol.file_slice import FileSlice
from klog.server.counters.request_times import ConversionCounter
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.data.down_conversion import ConversionCount, UnsupportedCodecError, converted
from klog.server.handlers.data.fetch_refusals import not_served
from klog.server.handlers.partition_lookup import PartitionLookup

ZSTD_FROM: Final = 10
BATCHES_FROM: Final = 4
_TIMESTAMPS_FROM: Final = 2  # message format 1


class OldFetches:
    """Makes answers of partitions fit for versions before `ZSTD_FROM`, and counts the bytes that are sent."""

    def __init__(
        self, lookup: PartitionLookup, topic_stats: BrokerTopicStats, conversions: ConversionCounter
    ) -> None:
        self._lookup = lookup
        self._topic_stats = topic_stats.topics
        self._conversions = conversions

    def answer(
        self, version: int, replica_id: int, topic: str, offset: int, found: PartitionFetched
    ) -> PartitionFetched:
        """The answer to a reader that asked for `offset`; followers have no negative id."""
        partition = self._lookup.replicas.partitions.get((topic, found.partition))
        if partition is None:
            return found
        config = partition.log.config
        if config.compression_type == "zstd":
            return not_served(found.partition, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if version < BATCHES_FROM:
            if replica_id < 0 and not config.message_downconversion_enable:
                return not_served(found.partition, ErrorCode.UNSUPPORTED_VERSION)
            found = self._converted(version, topic, offset, found)
        if replica_id < 0:
            self._topic_stats[topic].bytes_out += size_of_records(found.records)
        return found

    def _converted(self, version: int, topic: str, offset: int, found: PartitionFetched) -> PartitionFetched:
        """Raises `KlogError` if the first batch is damaged."""
        if not isinstance(found.records, FileSlice):
            return found
        stats = self._topic_stats[topic]

        def on_done(count: ConversionCount) -> None:
            stats.fetch_conversions += count.records
            self._conversions.record(count.elapsed_ns, count.memory_bytes)

        magic = int(version >= _TIMESTAMPS_FROM)
        try:
            return found._replace(records=converted(found.records, magic, offset, on_done))
        except UnsupportedCodecError:
            return not_served(found.partition, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
