"""Sends a fetcher's requests to the leader's broker and reads the answers.

Rules: Kafka's `RemoteLeaderEndPoint`; the protocol guide on Fetch, ListOffsets and OffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from klog.client.connection import Connection
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.fetch_request import encode_fetch_request
from klog.protocol.fetch_response import FetchResponse, decode_fetch_response
from klog.protocol.messages import build, request_class, request_struct
from klog.replication.fetching.values import (
    AskEpochEnds,
    AskOffsets,
    EpochAnswered,
    Fetch,
    FetcherAnswer,
    FetcherRequest,
    OffsetAnswered,
)

_READ_UNCOMMITTED: Final = 0

_Value = TypeVar("_Value")


def send(connection: Connection, request: FetcherRequest, timeout_ms: int) -> FetcherAnswer:
    """Send a request and wait for the answer, for so long at most. Raises ChannelError."""
    if isinstance(request, Fetch):
        return _fetch(connection, request, timeout_ms)
    if isinstance(request, AskEpochEnds):
        return _epoch_ends(connection, request, timeout_ms)
    return _offsets(connection, request, timeout_ms)


def _fetch(connection: Connection, request: Fetch, timeout_ms: int) -> FetchResponse:
    version = connection.version_of(ApiKey.FETCH, request.version)
    body = encode_fetch_request(version, request.request)
    return connection.request(ApiKey.FETCH, version, (body,), decode_fetch_response, timeout_ms)


def _epoch_ends(
    connection: Connection, request: AskEpochEnds, timeout_ms: int
) -> dict[TopicPartition, EpochAnswered]:
    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    version = connection.version_of(api_key)
    topic_class = request_struct(api_key, version, "OffsetForLeaderTopic")
    partition_class = request_struct(api_key, version, "OffsetForLeaderPartition")
    topics = tuple(
        build(
            topic_class,
            topic=topic,
            partitions=tuple(
                build(
                    partition_class,
                    partition=number,
                    current_leader_epoch=asked.current_leader_epoch,
                    leader_epoch=asked.leader_epoch,
                )
                for number, asked in partitions
            ),
        )
        for topic, partitions in _by_topic(request.partitions)
    )
    entity = build(request_class(api_key, version), replica_id=request.replica_id, topics=topics)
    return {
        TopicPartition(topic.topic, part.partition): EpochAnswered(
            int(part.error_code), int(part.leader_epoch), int(part.end_offset)
        )
        for topic, part in _parts(connection.send(entity, timeout_ms))
    }


def _offsets(
    connection: Connection, request: AskOffsets, timeout_ms: int
) -> dict[TopicPartition, OffsetAnswered]:
    api_key = ApiKey.LIST_OFFSETS
    version = connection.version_of(api_key)
    topic_class = request_struct(api_key, version, "ListOffsetsTopic")
    partition_class = request_struct(api_key, version, "ListOffsetsPartition")
    topics = tuple(
        build(
            topic_class,
            name=topic,
            partitions=tuple(
                build(
                    partition_class,
                    partition_index=number,
                    current_leader_epoch=leader_epoch,
                    timestamp=request.timestamp,
                )
                for number, leader_epoch in partitions
            ),
        )
        for topic, partitions in _by_topic(request.partitions)
    )
    entity = build(
        request_class(api_key, version),
        replica_id=request.replica_id,
        isolation_level=_READ_UNCOMMITTED,
        topics=topics,
        timeout=None,
    )
    return {
        TopicPartition(topic.name, part.partition_index): OffsetAnswered(
            int(part.error_code), int(part.offset)
        )
        for topic, part in _parts(connection.send(entity, timeout_ms))
    }


def _by_topic(
    partitions: Mapping[TopicPartition, _Value],
) -> Iterable[tuple[str, list[tuple[int, _Value]]]]:
    topics: dict[str, list[tuple[int, _Value]]] = {}
    for key, value in partitions.items():
        topics.setdefault(key.topic, []).append((key.partition, value))
    return topics.items()


def _parts(answer: Entity) -> Iterable[tuple[Entity, Entity]]:
    return ((topic, part) for topic in answer.topics for part in topic.partitions)
