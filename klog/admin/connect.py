"""Opens a cluster by its connection settings: sockets, the system's clock and random choice come in here."""

from __future__ import annotations

import random
import time
from typing import Final

from klog.admin.settings import ClientSettings
from klog.client.cluster import Cluster
from klog.client.connection import HostPort
from klog.client.producer import Producer, ProducerSettings
from klog.client.retry import Clock, Retry, RetryPolicy
from klog.formats.errors import UsageError
from klog.protocol.channel import Channel

_NEW_PARTITIONS_TIMEOUT_MS: Final = 10_000

SYSTEM_CLOCK: Final = Clock(time.monotonic, time.sleep, lambda: time.time_ns() // 1_000_000)


def cluster(settings: ClientSettings) -> Cluster:
    """The cluster of the settings; `with` connects and closes. Raises UsageError for SASL."""
    if settings.sasl is not None:
        raise UsageError(
            "records are read and written over PLAINTEXT and SSL; SASL is for the admin commands",
            cure="name a listener without SASL",
        )

    def connect(address: HostPort) -> Channel:
        return Channel(
            *address, client_id=settings.client_id, timeout_ms=settings.timeout_ms, tls=settings.tls
        )

    return Cluster(settings.bootstrap, connect, SYSTEM_CLOCK, timeout_ms=settings.timeout_ms)


def partitions_retry() -> Retry:
    """For how long to wait until brokers know new partitions."""
    policy = RetryPolicy(_NEW_PARTITIONS_TIMEOUT_MS)
    return Retry(policy, SYSTEM_CLOCK.monotonic_s, SYSTEM_CLOCK.sleep_s)


def producer(client: Cluster, topic: str, settings: ProducerSettings) -> Producer:
    """A producer that spreads records without a key at random over the partitions that have a leader."""
    return Producer(client, topic, settings, random.choice)
