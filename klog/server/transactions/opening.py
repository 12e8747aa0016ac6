"""Makes the parts of a broker that talk to other brokers about transactions, from its configs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from klog.client.connection import ReconnectingConnection
from klog.config.broker import BrokerConfig
from klog.coordinator.runtime.partitioning import partition_of
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.drivers.marker_queues import UNKNOWN, LeaderOf
from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.metadata.store import MetadataStore
from klog.metadata.topics import existing_partitions
from klog.server.peers.broker_channel import Peers
from klog.server.transactions.broker_threads import Connect
from klog.server.transactions.marker_sending import MarkerSending, Write
from klog.server.transactions.producer_epochs import newest_epochs
from klog.server.transactions.verifying import Verify, Verifying
from klog.storage.log.scheduler import monotonic_ms


def broker_connections(config: BrokerConfig, peers: Peers) -> Connect:
    """Makes connections to brokers by id, at the address that the metadata cache has when they are opened."""
    name, timeout_ms = f"klog-transactions-{peers.broker_id}", config.number("request.timeout.ms")

    def connect(broker_id: int) -> ReconnectingConnection:
        return ReconnectingConnection(
            lambda: peers.channel_to(peers.registration(broker_id), name, timeout_ms)
        )

    return connect


def open_marker_sender(
    broker_id: int, write: Write, cache: MetadataCache, store: MetadataStore, connect: Connect
) -> MarkerSending:
    """The marker sender of a broker; `connect` is what `broker_connections` gives. To be stopped."""
    return MarkerSending(
        broker_id,
        write,
        leader_lookup(cache),
        partial(existing_partitions, store),
        newest_epochs(store),
        connect,
        monotonic_ms,
    )


def open_verifier(broker_id: int, cache: MetadataCache, verify_here: Verify, connect: Connect) -> Verifying:
    """The partition verifier of a broker. `verify_here` asks this broker's coordinator. To be stopped."""
    return Verifying(broker_id, coordinator_lookup(cache), verify_here, connect)


# -- Where to send something that concerns a partition: to its leader, later, or nowhere ---------------------


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
