"""Makes the parts of a broker that talk to other brokers about transactions, from its configs."""

from __future__ import annotations

from klog.client.connection import ReconnectingConnection
from klog.config.broker import BrokerConfig
from klog.metadata.cache import MetadataCache
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_topics
from klog.protocol.channel import Channel
from klog.protocol.errors import ConnectFailedError
from klog.server.peers.broker_channel import Tls, channel_to, no_tls
from klog.server.transactions.broker_threads import Connect
from klog.server.transactions.leaders import coordinator_lookup, leader_lookup
from klog.server.transactions.marker_sending import MarkerSending, Write
from klog.server.transactions.verifying import Verify, Verifying
from klog.storage.log.scheduler import monotonic_ms


def broker_connections(
    config: BrokerConfig, cache: MetadataCache, broker_id: int, listener: str, tls: Tls = no_tls
) -> Connect:
    """Makes connections to brokers by id, at the address that the metadata cache has when they are opened.

    `listener` is the listener between brokers, `tls` gives the TLS context in force there.
    """
    timeout_ms = config.number("request.timeout.ms")

    def connect(to_broker: int) -> ReconnectingConnection:
        def new_channel() -> Channel:
            broker = cache.snapshot.brokers.get(to_broker)
            if broker is None:
                raise ConnectFailedError(f"broker {to_broker} is not alive")
            return channel_to(
                broker,
                listener,
                client_id=f"klog-transactions-{broker_id}",
                timeout_ms=timeout_ms,
                tls=tls,
            )

        return ReconnectingConnection(new_channel)

    return connect


def open_marker_sender(
    broker_id: int, write: Write, cache: MetadataCache, store: MetadataStore, connect: Connect
) -> MarkerSending:
    """The marker sender of a broker; `connect` is what `broker_connections` gives. To be stopped."""
    return MarkerSending(
        broker_id,
        write,
        leader_lookup(cache),
        lambda topic: topic in read_topics(store, [topic]),
        connect,
        monotonic_ms,
    )


def open_verifier(broker_id: int, cache: MetadataCache, verify_here: Verify, connect: Connect) -> Verifying:
    """The partition verifier of a broker. `verify_here` asks this broker's coordinator. To be stopped."""
    return Verifying(broker_id, coordinator_lookup(cache), verify_here, connect)
