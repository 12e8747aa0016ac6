"""Knows a cluster's brokers and partition leaders, and keeps a connection to each broker that is used.

Rules: the protocol guide on Metadata. Any broker answers it. The answer holds until a broker says that it
does not lead a partition, or until a connection breaks; then `pause_and_refresh` asks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self

from klog.client.connection import Connect, Connection, HostPort
from klog.client.errors import ClientError, RefusedError, UnknownTopicError, is_retriable
from klog.client.requests import ask
from klog.client.retry import Clock, Retry, RetryPolicy
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError, ConnectFailedError, ConnectRefusedError

CONNECT_CURE: Final = "is a broker listening there? --bootstrap-server host:port names another"
_TLS_CURE: Final = "it may want TLS, or not be Kafka: --command-config FILE with security.protocol=SSL"


class PartitionLeader(NamedTuple):
    """The leader of a partition and its epoch; the id is NO_LEADER while there is no leader."""

    leader_id: int
    leader_epoch: int


class Cluster:
    """A client's view of a cluster, for one thread. `with Cluster(...)` connects and closes.

    `connect` makes connections. `timeout_ms` limits each answer, and failures in a row. `on_waiting` gets a
    sentence if failures last for seconds.
    """

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        connect: Connect,
        clock: Clock,
        *,
        timeout_ms: int,
        on_waiting: Callable[[str], object] = lambda _sentence: None,
    ) -> None:
        self._bootstrap_addresses = tuple(bootstrap)
        self._connect = connect
        self.clock = clock
        self.timeout_ms = timeout_ms
        self._on_waiting = on_waiting
        self._addresses: dict[int, HostPort] = {}
        self._connections: dict[int, tuple[HostPort, Connection]] = {}
        self._bootstrap: Connection | None = None
        self._topics: dict[str, dict[int, PartitionLeader]] = {}

    def __enter__(self) -> Self:
        self.any_connection()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._all_connections():
            connection.close()

    def _all_connections(self) -> list[Connection]:
        first = [] if self._bootstrap is None else [self._bootstrap]
        return first + [connection for _, connection in self._connections.values()]

    def any_connection(self) -> Connection:
        """An open connection to some broker. Raises ConnectFailedError if no broker can be reached.

        Prefers a connection that is open, then tries the bootstrap addresses and the known brokers.
        """
        for connection in self._all_connections():
            if connection.connected:
                return connection
        failures: list[ChannelError] = []
        for address in dict.fromkeys((*self._bootstrap_addresses, *self._addresses.values())):
            connection = self._connect(address)
            try:
                connection.connect()
            except ChannelError as error:
                failures.append(error)
                continue
            self._bootstrap = connection
            return connection
        raise _unreachable(failures)

    def connection(self, broker_id: int) -> Connection:
        """The open connection to a broker. Raises ChannelError, ClientError for an unknown id."""
        address = self._addresses.get(broker_id)
        if address is None:
            raise ClientError(f"broker {broker_id} is not among the cluster's brokers")
        known_address, connection = self._connections.get(broker_id, (None, None))
        if connection is None or known_address != address:
            connection = self._connect(address)
            self._connections[broker_id] = (address, connection)
        try:
            connection.connect()
        except ConnectFailedError as error:
            error.what = f"{_without_errno(error.what)}, which is what broker {broker_id} advertises"
            error.cure = "check its advertised.listeners"
            raise
        return connection

    def add_broker(self, broker_id: int, address: HostPort) -> None:
        """Take note of a broker that an answer names, as FindCoordinator's does."""
        self._addresses[broker_id] = address

    def address_of(self, broker_id: int) -> HostPort | None:
        """The address of a broker as last reported, None for an unknown one."""
        return self._addresses.get(broker_id)

    def leader_connection(self, leader_id: int, partitions: Sequence[TopicPartition]) -> Connection:
        """The open connection to the leader of partitions, as `by_leader` gives them.

        Raises ChannelError, and ClientError if the partitions have no leader.
        """
        if leader_id == NO_LEADER:
            topic, number = partitions[0]
            raise ClientError(
                f"{topic}-{number} has no leader", cure=f"klog topics describe {topic} shows why"
            )
        return self.connection(leader_id)

    def refresh(self, topics: Iterable[str], *, may_create: bool = False) -> None:
        """Ask again for the brokers and the leaders of these topics; `may_create` lets brokers create them.

        Raises ChannelError, RefusedError, UnknownTopicError.
        """
        for topic in self.metadata(topics, may_create=may_create).topics:
            self._update_topic(topic)

    def refresh_existing(self, topics: Iterable[str]) -> None:
        """As `refresh`, but topics that do not exist are left out."""
        for topic in self.metadata(topics).topics:
            with suppress(UnknownTopicError):
                self._update_topic(topic)

    def metadata(self, topics: Iterable[str] | None, *, may_create: bool = False) -> Entity:
        """A broker's answer about these topics, or about all for None. Learns the brokers' addresses from it.

        Raises ChannelError.
        """
        response = ask(
            self.any_connection(),
            ApiKey.METADATA,
            topics=None if topics is None else [{"topic_id": None, "name": name} for name in topics],
            allow_auto_topic_creation=may_create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        self._addresses = {broker.node_id: HostPort(broker.host, broker.port) for broker in response.brokers}
        return response

    def _update_topic(self, topic: Entity) -> None:
        if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            self._topics[topic.name] = {
                part.partition_index: PartitionLeader(part.leader_id, getattr(part, "leader_epoch", -1))
                for part in topic.partitions
            }
        elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(
                f"topic {topic.name} does not exist", cure=f"klog topics create {topic.name}"
            )
        else:
            raise RefusedError(f"topic {topic.name}", topic.error_code)

    def partitions(self, topic: str) -> Mapping[int, PartitionLeader]:
        """The partitions of a topic as last reported; empty if the topic has no leaders yet."""
        return self._topics.get(topic, {})

    def leader(self, partition: TopicPartition) -> int:
        """The id of the leader as last reported, NO_LEADER if none is known."""
        topic, number = partition
        known = self.partitions(topic).get(number)
        return NO_LEADER if known is None else known.leader_id

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions that each broker leads; those without a leader are under NO_LEADER."""
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            led.setdefault(self.leader(partition), []).append(partition)
        return led

    def new_retry(self, timeout_ms: int | None = None) -> Retry:
        """Failures in a row of one job, `timeout_ms` of the cluster unless given."""
        policy = RetryPolicy(self.timeout_ms if timeout_ms is None else timeout_ms)
        return Retry(policy, self.clock.monotonic_s, self.clock.sleep_s, self._tell)

    def _tell(self, error: Exception, left_s: float | None) -> None:
        limit = "" if left_s is None else f" for up to {left_s:.0f} s"
        self._on_waiting(f"{error}; trying again{limit}")

    def pause_and_refresh(self, error: KlogError, topics: Iterable[str], retry: Retry) -> None:
        """Pause after a failed request, then look up the leaders of its topics again.

        Raises `error` if a retry cannot cure it, the last error if failures have lasted too long, and what
        `refresh` raises but ChannelError.
        """
        if not is_retriable(error):
            raise error
        retry.failed(error)
        try:
            self.refresh(topics)
        except ChannelError as lost:
            retry.failed(lost)


def _without_errno(text: str) -> str:
    return re.sub(r"\[Errno -?\d+\] ", "", text)


def _unreachable(failures: Sequence[ChannelError]) -> ConnectFailedError:
    refused = all(isinstance(failure, ConnectFailedError) for failure in failures)
    what = "; ".join(dict.fromkeys(_without_errno(failure.what) for failure in failures))
    if failures and all(isinstance(failure, ConnectRefusedError) for failure in failures):
        return ConnectRefusedError(what, cure=CONNECT_CURE)
    known = next((failure.cure for failure in failures if refused and failure.cure), CONNECT_CURE)
    return ConnectFailedError(what, cure=known if refused else _TLS_CURE)
