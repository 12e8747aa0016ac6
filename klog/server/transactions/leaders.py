"""Where to send something that concerns a partition: to its leader, later, or nowhere."""

from __future__ import annotations

from collections.abc import Callable

from klog.coordinator.runtime.partitioning import partition_of
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.drivers.marker_queues import UNKNOWN, LeaderOf
from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache


def leader_lookup(cache: MetadataCache) -> LeaderOf:
    """Looks up leaders in the metadata cache."""

    def leader_of(partition: TopicPartition) -> int:
        snapshot = cache.snapshot
        state = snapshot.partition(partition)
        return UNKNOWN if state is None or state.leader not in snapshot.brokers else state.leader

    return leader_of


def coordinator_lookup(cache: MetadataCache) -> Callable[[str], int]:
    """Looks up the broker that coordinates a transactional id; UNKNOWN if there is none now."""
    leader_of = leader_lookup(cache)

    def coordinator_of(transactional_id: str) -> int:
        partitions = cache.snapshot.topics.get(TRANSACTION_STATE)
        if not partitions:
            return UNKNOWN
        number = partition_of(transactional_id, len(partitions))
        return leader_of(TopicPartition(TRANSACTION_STATE, number))

    return coordinator_of
