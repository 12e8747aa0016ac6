"""Makes what a broker asks the controller with, and what changes the ISRs that it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from klog.client.connection import ReconnectingConnection
from klog.config.broker import BrokerConfig
from klog.metadata.cache import MetadataCache
from klog.metadata.values import BrokerRegistration
from klog.replication.replica_manager import ReplicaManager
from klog.server.peers.broker_channel import BrokerAccess, channel_to
from klog.server.peers.controller_channel import ToController
from klog.server.peers.isr_sending import IsrSending, via_controller
from klog.storage.log.scheduler import monotonic_ms

_SHORTEST_CHECK_MS: Final = 10


def open_to_controller(
    config: BrokerConfig, cache: MetadataCache, broker_id: int, listener: str, access: BrokerAccess
) -> ToController:
    """The channel to the controller, started; to be stopped.

    `listener` is the listener between brokers, and `access` how to get into it.
    """
    timeout_ms = config.number("request.timeout.ms")
    name = f"klog-to-controller-{broker_id}"

    def connect(controller: BrokerRegistration) -> ReconnectingConnection:
        return ReconnectingConnection(
            lambda: channel_to(controller, listener, client_id=name, timeout_ms=timeout_ms, access=access)
        )

    channel = ToController(lambda: cache.snapshot, connect, monotonic_ms)
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
