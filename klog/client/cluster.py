"""A cluster as a client sees it: which brokers there are, who leads what, and a channel to each of them.

Rules: the protocol guide on Metadata. Any broker answers it; what it says is good until a broker answers that
it does not lead, or a connection breaks: then `refresh`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.settings import ClientSettings, HostPort
from klog.formats.errors import UsageError
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError, ConnectFailedError
from klog.protocol.messages import build, request_class, request_struct

NO_LEADER: Final = -1
_CONNECT_CURE: Final = "is a broker listening there? --bootstrap-server host:port names another"
_TLS_CURE: Final = "it may want TLS, or not be Kafka: --command-config FILE with security.protocol=SSL"

TopicPartition = tuple[str, int]


class PartitionLeader(NamedTuple):
    """Who leads a partition; the leader is NO_LEADER while there is none."""

    leader_id: int
    leader_epoch: int


class Cluster:
    """A client's view of a cluster. `with Cluster(settings)` connects and closes; for one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        if settings.sasl is not None:
            raise UsageError(
                "records are read and written over PLAINTEXT and SSL; SASL is for the admin commands",
                cure="name a listener without SASL",
            )
        self._settings = settings
        self._nodes: dict[int, HostPort] = {}
        self._channels: dict[int, Channel] = {}
        self._bootstrap: Channel | None = None
        self._topics: dict[str, dict[int, PartitionLeader]] = {}

    def __enter__(self) -> Self:
        self._any()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for channel in (*self._channels.values(), *filter(None, (self._bootstrap,))):
            channel.close()

    @property
    def timeout_ms(self) -> int:
        """How long one answer may take."""
        return self._settings.timeout_ms

    def _channel_to(self, address: HostPort) -> Channel:
        settings = self._settings
        return Channel(
            *address, client_id=settings.client_id, timeout_ms=settings.timeout_ms, tls=settings.tls
        )

    def _any(self) -> Channel:
        """A connection to some broker: one that is open, else one of those named, else of those known."""
        for channel in (self._bootstrap, *self._channels.values()):
            if channel is not None and channel.connected:
                return channel
        failures: list[ChannelError] = []
        for address in dict.fromkeys((*self._settings.bootstrap, *self._nodes.values())):
            channel = self._channel_to(address)
            try:
                channel.connect()
            except ChannelError as error:
                failures.append(error)
                continue
            self._bootstrap = channel
            return channel
        raise _nobody(failures)

    def any_channel(self) -> Channel:
        """A connection to some broker. Raises ConnectFailedError when none can be reached."""
        return self._any()

    def channel(self, node_id: int) -> Channel:
        """The connection to a broker, opened if need be.

        Raises ChannelError, ClientError for an unknown id.
        """
        address = self._nodes.get(node_id)
        if address is None:
            raise ClientError(f"broker {node_id} is not among the cluster's brokers")
        channel = self._channels.get(node_id)
        if channel is None or (channel.host, channel.port) != address:
            channel = self._channels[node_id] = self._channel_to(address)
        try:
            channel.connect()
        except ConnectFailedError as error:
            error.what = f"{_without_errno(error.what)}, which is what broker {node_id} advertises"
            error.cure = "check its advertised.listeners"
            raise
        return channel

    def refresh(self, topics: Iterable[str], *, may_create: bool = False) -> None:
        """Ask again for brokers and for leaders of these topics; `may_create` lets brokers create them.

        Raises ChannelError, RefusedError, UnknownTopicError.
        """
        channel = self._any()
        version = channel.version_of(ApiKey.METADATA)
        topic_class = request_struct(ApiKey.METADATA, version, "MetadataRequestTopic")
        request = build(
            request_class(ApiKey.METADATA, version),
            topics=tuple(build(topic_class, topic_id=None, name=name) for name in topics),
            allow_auto_topic_creation=may_create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = channel.send(request)
        self._nodes = {broker.node_id: HostPort(broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            self._take_topic(topic)

    def _take_topic(self, topic: Entity) -> None:
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
        """The partitions of a topic as last heard; none where the topic has no leaders yet."""
        return self._topics.get(topic, {})

    def leader(self, partition: TopicPartition) -> int:
        """The id of the leader as last heard, NO_LEADER where none is known."""
        known = self.partitions(partition[0]).get(partition[1])
        return NO_LEADER if known is None else known.leader_id

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions that each broker leads; those without a leader under NO_LEADER."""
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            led.setdefault(self.leader(partition), []).append(partition)
        return led


def _without_errno(text: str) -> str:
    return re.sub(r"\[Errno -?\d+\] ", "", text)


def _nobody(failures: Sequence[ChannelError]) -> ConnectFailedError:
    refused = all(isinstance(failure, ConnectFailedError) for failure in failures)
    what = "; ".join(dict.fromkeys(_without_errno(failure.what) for failure in failures))
    return ConnectFailedError(what, cure=_CONNECT_CURE if refused else _TLS_CURE)
