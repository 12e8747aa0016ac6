"""Makes the fetchers of a broker from its configs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from klog.config.broker import BrokerConfig
from klog.drivers.fetching import FetchDriver, FetchListeners
from klog.formats.names import TopicPartition
from klog.metadata.values import Endpoint
from klog.protocol.channel import SYSTEM_BUFFER, Channel
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.values import FetchSettings
from klog.replication.replica_manager import ReplicaManager
from klog.server.configs.live_config import LiveConfig
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.fetching.fetcher_thread import FetcherThread
from klog.server.fetching.manager import FetcherManager
from klog.server.fetching.replication_throttles import replication_quota
from klog.server.peers.broker_channel import Peers
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.log_manager import LogManager
from klog.storage.log.log_map import parent_of
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.scheduler import monotonic_ms


def fetch_settings(config: BrokerConfig, broker_id: int) -> FetchSettings:
    """How this broker fetches as a follower."""
    return FetchSettings.for_protocol(
        broker_id,
        config.text("inter.broker.protocol.version") or "",
        max_wait_ms=config.number("replica.fetch.wait.max.ms"),
        min_bytes=config.number("replica.fetch.min.bytes"),
        response_max_bytes=config.number("replica.fetch.response.max.bytes"),
        max_bytes=config.number("replica.fetch.max.bytes"),
        backoff_ms=config.number("replica.fetch.backoff.ms"),
    )


def receive_buffer_bytes(config: BrokerConfig) -> int:
    """The receive buffer of followers' sockets.

    Kafka's default is small for loopback and for fast networks: a fifth of the throughput is lost. Unless the
    config is set, the operating system sizes the buffer.
    """
    found = config.explicit("replica.socket.receive.buffer.bytes")
    return found if isinstance(found, int) and found > 0 else SYSTEM_BUFFER


def open_fetchers(
    live: LiveConfig,
    peers: Peers,
    broker_epoch: Callable[[], int],
    replicas: ReplicaManager,
    topic_stats: BrokerTopicStats,
    logs: LogManager,
    cleaner: LogCleaner,
    clock_ms: Callable[[], int],
) -> FetcherManager:
    """The fetchers of a broker, which copy what it is told to follow from now on. To be stopped.

    `clock_ms` is the wall clock.
    """
    config = live.broker()
    settings = fetch_settings(config, peers.broker_id)
    quota = replication_quota("follower", live, peers.broker_id)
    request_timeout_ms = config.number("request.timeout.ms")
    listeners = FetchListeners(
        lambda received: _count(replicas, topic_stats, received),
        lambda keys: _high_watermark_moved(replicas, keys),
        lambda truncated: _truncated(logs, cleaner, truncated),
    )

    def connect(leader: int, number: int) -> Channel:
        return peers.channel_to(
            peers.registration(leader),
            f"broker-{peers.broker_id}-fetcher-{number}",
            config.number("replica.socket.timeout.ms"),
            receive_buffer_bytes(config),
        )

    def new_thread(leader: int, number: int) -> FetcherThread:
        def new_fetcher(truncated: Callable[[PartitionLog], None]) -> Fetcher:
            return Fetcher(
                leader,
                settings,
                replicas,
                broker_epoch=broker_epoch,
                wall_clock_ms=clock_ms,
                quota=quota,
                truncated=truncated,
            )

        name = f"ReplicaFetcherThread-{number}-{leader}"
        driver = FetchDriver(new_fetcher, listeners)
        return FetcherThread(name, driver, lambda: connect(leader, number), monotonic_ms, request_timeout_ms)

    def address_of(leader: int) -> Endpoint | None:
        broker = peers.cache.snapshot.brokers.get(leader)
        return None if broker is None else broker.endpoint(peers.listener)

    manager = FetcherManager(replicas, new_thread, config.number("num.replica.fetchers"), address_of)
    replicas.add_listener(manager.on_changes)
    return manager


def _count(
    replicas: ReplicaManager, topic_stats: BrokerTopicStats, received: Mapping[TopicPartition, int]
) -> None:
    for key, size_bytes in received.items():
        stats, partition = topic_stats.topics[key.topic], replicas.partitions.get(key)
        stats.replication_bytes_in += size_bytes
        if partition is not None and replicas.broker_id in partition.state.assignment.adding:
            stats.reassignment_bytes_in += size_bytes


def _high_watermark_moved(replicas: ReplicaManager, keys: Iterable[TopicPartition]) -> None:
    for key in keys:
        replicas.appended(key, high_watermark_moved=True)


def _truncated(logs: LogManager, cleaner: LogCleaner, truncated: Sequence[PartitionLog]) -> None:
    """Write the checkpoints of the log directories: recovery points are lower now, and what is written from
    the new ends on is dirty.
    """
    for log in truncated:
        cleaner.truncated(log.partition, parent_of(log), log.log_end_offset)
    for directory in {parent_of(log) for log in truncated}:
        logs.checkpoint(directory)
