"""Fetch requests, versions 0 to 17.

Rules: FetchRequest of Kafka's message schemas, KIP-74 (sizes, version 3), KIP-227 (sessions, 7), KIP-320
(leader epochs, 9), KIP-392 (rack, 11), KIP-595 (last fetched epoch, 12), KIP-516 (topic ids instead of names,
13), KIP-903 (replica epoch, 15), KIP-853 (directory id, 17: skipped, because klog does not use it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import Buffer

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
_UNLIMITED: Final = 0x7FFFFFFF  # what versions before 3 have instead of a limit
_NO_REPLICA: Final = (-1, -1)


class FetchPartition(NamedTuple):
    """The offset to read one partition from, and how many bytes at most."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """One topic's partitions; the topic is named below version 13 and known by its id from there on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to drop from an incremental fetch session."""

    name: str | None
    topic_id: UUID | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    """What a consumer (replica id -1) or a follower wants to read.

    `isolation_level` is 0 (read uncommitted) or 1 (read committed).
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: list[FetchTopic]
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None

    @property
    def replica_state(self) -> tuple[int, int]:
        """Id and epoch of the replica, which are one field from version 15 on."""
        return self.replica_id, self.replica_epoch


def _request(
    replica_id: int,
    replica_state: tuple[int, int],
    forgotten: list[ForgottenTopic] | None,
    **others: Any,  # noqa: ANN401 (the other fields)
) -> FetchRequest:
    replica_id, epoch = (replica_id, -1) if replica_state == _NO_REPLICA else replica_state
    return FetchRequest(**others, forgotten=forgotten or [], replica_id=replica_id, replica_epoch=epoch)


TOPIC: Final = (
    Part("name", "string", until=TOPIC_IDS_FROM - 1),
    Part("topic_id", "topic_id", since=TOPIC_IDS_FROM),
)
_PARTITION: Final = Struct(
    FetchPartition,
    (
        Part("partition", "int32"),
        Part("current_leader_epoch", "int32", since=9, default=-1),
        Part("fetch_offset", "int64"),
        Part("last_fetched_epoch", "int32", since=12, default=-1),
        Part("log_start_offset", "int64", since=5, default=-1),
        Part("max_bytes", "int32"),
    ),
)
_TOPICS: Final = Struct(FetchTopic, (*TOPIC, Part("partitions", _PARTITION, array=list)))
_FORGOTTEN: Final = Struct(ForgottenTopic, (*TOPIC, Part("partitions", "int32", array=list)))
_REPLICA: Final = Struct(tuple, (Part("replica_id", "int32"), Part("replica_epoch", "int64")))
_MESSAGE: Final = Message(
    "Fetch request",
    FLEXIBLE_FROM,
    Struct(
        _request,
        (
            Part("replica_id", "int32", until=14, default=-1),
            Part("max_wait_ms", "int32"),
            Part("min_bytes", "int32"),
            Part("max_bytes", "int32", since=3, default=_UNLIMITED),
            Part("isolation_level", "int8", since=4, default=0),
            Part("session_id", "int32", since=7, default=0),
            Part("session_epoch", "int32", since=7, default=-1),
            Part("topics", _TOPICS, array=list),
            Part("forgotten", _FORGOTTEN, since=7, array=list),
            Part("rack_id", "string", since=11, default=""),
            Part("cluster_id", "string", since=12, nullable=True, tag=0),
            Part("replica_state", _REPLICA, since=15, tag=1, default=_NO_REPLICA),
        ),
    ),
)


def decode_fetch_request(version: int, body: Buffer) -> FetchRequest:
    """Raises MalformedMessageError."""
    request: FetchRequest = _MESSAGE.read(version, body)
    return request


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body. Raises UnencodableMessageError."""
    return b"".join(_MESSAGE.write(version, request))
