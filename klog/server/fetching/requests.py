"""Sends a fetcher's requests to the leader's broker and reads the answers.

Rules: Kafka's `RemoteLeaderEndPoint`; the protocol guide on Fetch, ListOffsets and OffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from klog.client.connection import Connection
from klog.client.requests import by_partition, by_topic
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.fetch_request import encode_fetch_request
from klog.protocol.fetch_response import decode_fetch_response
from klog.protocol.messages import build, decode_response, encode_request, request_class
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

VersionOf = Callable[[int, int | None], int]
"""The highest version of an API that both sides support, at most the given one."""


class Exchange(NamedTuple):
    """A request as it is sent; `decode` is given the version and the body of the answer."""

    api_key: int
    version: int
    body: bytes
    decode: Callable[[int, memoryview], FetcherAnswer]


def send(connection: Connection, request: FetcherRequest, timeout_ms: int) -> FetcherAnswer:
    """Send a request and wait for the answer, for so long at most. Raises ChannelError."""
    api_key, version, body, decode = exchange_of(request, connection.version_of)
    return connection.request(api_key, version, (body,), decode, timeout_ms)


def exchange_of(request: FetcherRequest, version_of: VersionOf) -> Exchange:
    """How a request is sent to a broker with these versions."""
    if isinstance(request, Fetch):
        version = version_of(ApiKey.FETCH, request.version)
        body = encode_fetch_request(version, request.request)
        return Exchange(ApiKey.FETCH, version, body, decode_fetch_response)
    if isinstance(request, AskEpochEnds):
        entity = _epoch_ends_request(request, version_of(ApiKey.OFFSET_FOR_LEADER_EPOCH, None))
        return Exchange(*_sent(entity), _read_epoch_ends)
    entity = _offsets_request(request, version_of(ApiKey.LIST_OFFSETS, None))
    return Exchange(*_sent(entity), _read_offsets)


def _sent(request: Entity) -> tuple[int, int, bytes]:
    return int(request.__api_key__), int(request.__version__), encode_request(request)


def _epoch_ends_request(request: AskEpochEnds, version: int) -> Entity:
    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    topics = by_topic(
        request.partitions,
        lambda each: {"partition": each.partition, **request.partitions[each]._asdict()},
        topic="topic",
    )
    return build(request_class(api_key, version), replica_id=request.replica_id, topics=topics)


def _read_epoch_ends(version: int, body: memoryview) -> dict[TopicPartition, EpochAnswered]:
    answer = decode_response(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)
    return {
        partition: EpochAnswered(int(part.error_code), int(part.leader_epoch), int(part.end_offset))
        for partition, part in by_partition(answer.topics, topic="topic", number="partition")
    }


def _offsets_request(request: AskOffsets, version: int) -> Entity:
    api_key = ApiKey.LIST_OFFSETS
    topics = by_topic(
        request.partitions,
        lambda each: {
            "partition_index": each.partition,
            "current_leader_epoch": request.partitions[each],
            "timestamp": request.timestamp,
        },
    )
    return build(
        request_class(api_key, version),
        replica_id=request.replica_id,
        isolation_level=_READ_UNCOMMITTED,
        topics=topics,
        timeout=None,
    )


def _read_offsets(version: int, body: memoryview) -> dict[TopicPartition, OffsetAnswered]:
    answer = decode_response(ApiKey.LIST_OFFSETS, version, body)
    return {
        partition: OffsetAnswered(int(part.error_code), int(part.offset))
        for partition, part in by_partition(answer.topics)
    }
