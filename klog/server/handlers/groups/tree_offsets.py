"""Offsets of groups in the metadata tree: version 0 of OffsetCommit and OffsetFetch.

Rules: Kafka's `KafkaApis.commitOffsetsToZookeeper` and `handleOffsetFetchRequestFromZookeeper`. Any broker
answers, and there are no members or generations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.requests import utf16_units
from klog.coordinator.groups.values import FetchedOffset
from klog.formats.errors import KlogError
from klog.formats.names import PartitionKey
from klog.metadata.consumer_offsets import read_consumer_offset, write_consumer_offset
from klog.metadata.store import MetadataStore
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)

# Also the answer if nothing is committed.
_UNKNOWN: Final = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(frozen=True, slots=True)
class TreeOffsets:
    """Reads and writes them, and may wait for the store. `known`: whether the cluster has a partition."""

    store: MetadataStore
    known: Callable[[PartitionKey], bool]
    max_metadata_units: int

    def commit(self, asked: Entity) -> list[tuple[PartitionKey, ErrorCode]]:
        """The error of each partition of an OffsetCommit request, also of one that it names again.

        Metadata are checked but not kept, as in Kafka.
        """
        return [
            ((topic.name, each.partition_index), self._commit(asked.group_id, topic.name, each))
            for topic in asked.topics
            for each in topic.partitions
        ]

    def fetch(self, group_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, FetchedOffset]:
        """The offset or the error of each partition."""
        return {key: self._fetch(group_id, key) for key in keys}

    def _commit(self, group_id: str, topic: str, asked: Entity) -> ErrorCode:
        key = topic, asked.partition_index
        if not self.known(key):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if utf16_units(asked.committed_metadata or "") > self.max_metadata_units:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        try:
            write_consumer_offset(self.store, group_id, key, asked.committed_offset)
        except KlogError as error:
            _log.warning("an offset of group %r is not committed: %s", group_id, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _fetch(self, group_id: str, key: PartitionKey) -> FetchedOffset:
        if not self.known(key):
            return _UNKNOWN
        try:
            offset = read_consumer_offset(self.store, group_id, key)
        except KlogError as error:
            _log.warning("an offset of group %r cannot be read: %s", group_id, error)
            return FetchedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        return _UNKNOWN if offset is None else FetchedOffset(offset)
