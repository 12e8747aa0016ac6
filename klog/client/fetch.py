"""Sends one Fetch request to one broker and reads its answer, for consumers and for followers.

Rules: the protocol guide on Fetch. The request carries everything that KIP-227 (sessions), KIP-320 and
KIP-595 (epochs), KIP-516 (topic ids) and KIP-903 (replica state) put into it. Records stay in the
answer's buffer; nothing here reads a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from klog.client.connection import Connection
from klog.client.errors import RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import (
    TOPIC_IDS_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from klog.protocol.fetch_response import FetchResponse, PartitionFetched, decode_fetch_response

CONSUMER: Final = -1
NO_EPOCH: Final = -1


def fetch(connection: Connection, request: FetchRequest, timeout_ms: int) -> FetchResponse:
    """Send a request in the highest version that both sides support, and wait for the answer.

    A request in which a topic has no id is sent in a version that names topics. `timeout_ms` limits the
    answer beyond the request's own `max_wait_ms`. Raises ChannelError, UnsupportedApiError, and RefusedError
    for an error of the whole request; partitions carry errors of their own.
    """
    ids = [topic.topic_id for topic in request.topics] + [topic.topic_id for topic in request.forgotten]
    by_name = None in ids
    version = connection.version_of(ApiKey.FETCH, TOPIC_IDS_FROM - 1 if by_name else None)
    response = connection.request(
        ApiKey.FETCH,
        version,
        (encode_fetch_request(version, request),),
        decode_fetch_response,
        timeout_ms + request.max_wait_ms,
    )
    if response.error_code != ErrorCode.NONE:
        raise RefusedError(f"reading from {connection}", response.error_code)
    return response


def topics_of(
    partitions: Iterable[tuple[str, FetchPartition]], topic_ids: Mapping[str, UUID] | None = None
) -> list[FetchTopic]:
    """The request's topics, for (topic, partition) pairs in the order in which they are to be read."""
    ids = topic_ids or {}
    topics: dict[str, list[FetchPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [FetchTopic(name, ids.get(name), wanted) for name, wanted in topics.items()]


def partitions_of(
    response: FetchResponse, topic_names: Mapping[UUID, str] | None = None
) -> Iterator[tuple[TopicPartition, PartitionFetched]]:
    """What each partition gave; `topic_names` names the topics of an answer that has only their ids."""
    names = topic_names or {}
    for topic in response.topics:
        name = topic.name or (names.get(topic.topic_id, "") if topic.topic_id is not None else "")
        for partition in topic.partitions:
            yield TopicPartition(name, partition.partition), partition
