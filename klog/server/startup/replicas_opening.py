"""Makes the replicas of a broker: the replica manager, and the appends of the broker itself."""

from __future__ import annotations

from collections.abc import Callable

from klog.config.broker import BrokerConfig
from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.metadata.store import MetadataStore
from klog.replication.internal_append import InternalAppends
from klog.replication.partition import ReplicaContext
from klog.replication.replica_manager import ReplicaManager
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.logs.cleaning import ServedLogs
from klog.server.logs.topic_reads import read_topic_ids
from klog.server.startup.purgatories import Purgatories
from klog.storage.log.scheduler import monotonic_ms


def open_replicas(
    config: BrokerConfig,
    broker_id: int,
    store: MetadataStore,
    cache: MetadataCache,
    logs: ServedLogs,
    purgatories: Purgatories,
    isr_proposed: Callable[[TopicPartition], object],
) -> ReplicaManager:
    """The replicas of a broker: none until the controller sends them.

    `isr_proposed` is called for partitions whose ISR this broker wants to change (`ReplicaContext`).
    """
    context = ReplicaContext(
        broker_id,
        monotonic_ms,
        lambda: cache.snapshot.brokers,
        config.number("replica.lag.time.max.ms"),
        isr_proposed,
    )
    return ReplicaManager(
        context,
        logs,
        purgatories.produce,
        purgatories.fetch,
        purgatories.delete_records,
        lambda topics: read_topic_ids(store, topics),
    )


def open_appends(
    replicas: ReplicaManager,
    cache: MetadataCache,
    purgatories: Purgatories,
    topic_stats: BrokerTopicStats,
    clock_ms: Callable[[], int],
) -> InternalAppends:
    """What coordinators append with. `clock_ms` is the wall clock."""
    return InternalAppends(
        replicas,
        purgatories.produce,
        lambda key: cache.snapshot.partition(TopicPartition(*key)) is not None,
        clock_ms=clock_ms,
        timer_ms=monotonic_ms,
        count=topic_stats.count_append,
    )
