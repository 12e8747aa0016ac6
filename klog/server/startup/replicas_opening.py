"""Makes what a broker has for its replicas: their manager, its own appends, changes of ISRs, moves between
log directories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from klog.client.connection import ReconnectingConnection
from klog.config.broker import BrokerConfig
from klog.config.dynamic import throttle
from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.metadata.store import MetadataStore
from klog.metadata.values import BrokerRegistration
from klog.replication.internal_append import InternalAppends
from klog.replication.partition import ReplicaContext
from klog.replication.quota import ReplicationQuota
from klog.replication.replica_manager import ReplicaManager
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.logs.cleaning import ServedLogs
from klog.server.logs.log_dir_moves import LogDirMoves
from klog.server.logs.topic_reads import read_topic_ids
from klog.server.peers.broker_channel import Peers
from klog.server.peers.controller_channel import ToController
from klog.server.peers.isr_sending import IsrSending, via_controller
from klog.server.startup.purgatories import Purgatories
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.log_manager import LogManager
from klog.storage.log.scheduler import monotonic_ms

_SHORTEST_CHECK_MS: Final = 10


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


def open_to_controller(config: BrokerConfig, peers: Peers) -> ToController:
    """The channel to the controller, started; to be stopped."""
    timeout_ms = config.number("request.timeout.ms")

    def connect(controller: BrokerRegistration) -> ReconnectingConnection:
        return peers.connection_to(controller, f"klog-to-controller-{peers.broker_id}", timeout_ms)

    channel = ToController(lambda: peers.cache.snapshot, connect, monotonic_ms)
    channel.start()
    return channel


def open_isr_changes(
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: Callable[[], int],
    replicas: ReplicaManager,
    to_controller: ToController,
) -> IsrSending:
    """What changes the ISRs of a broker; to be stopped."""

    def topic_id(key: tuple[str, int]) -> UUID | None:
        partition = replicas.partitions.get(key)
        return None if partition is None else partition.topic_id

    send = via_controller(to_controller, broker_id, broker_epoch, topic_id)
    sending = IsrSending(replicas, send, monotonic_ms)
    sending.check_every(max(_SHORTEST_CHECK_MS, config.number("replica.lag.time.max.ms") // 2))
    return sending


def open_log_dir_moves(
    config: Callable[[], BrokerConfig],
    logs: LogManager,
    cleaner: LogCleaner,
    replicas: ReplicaManager,
    directories: Sequence[str],
    clock_ms: Callable[[], int],
) -> LogDirMoves:
    """The moves of a broker, which begin when replicas get their roles. To be closed."""
    at_start = config()
    limit = ReplicationQuota(
        lambda: throttle(config(), "replica.alter.log.dirs.io.max.bytes.per.second"),
        windows=at_start.number("alter.log.dirs.replication.quota.window.num"),
        window_ms=1000 * at_start.number("alter.log.dirs.replication.quota.window.size.seconds"),
    )
    threads = at_start["num.replica.alter.log.dirs.threads"]
    return LogDirMoves(
        logs,
        cleaner,
        replicas,
        directories,
        limit,
        threads=threads if isinstance(threads, int) else len(directories),
        backoff_ms=at_start.number("replica.fetch.backoff.ms"),
        timer_ms=monotonic_ms,
        clock_ms=clock_ms,
    )
