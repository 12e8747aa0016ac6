"""Metadata responses, encoded once: a topic's bytes serve until the topic changes, a whole answer's until
anything does.

Encoding takes some microseconds for each partition; clients ask again and again for the same. So a request
about all topics costs the same however many partitions there are, and one about a single topic the price of
joining three pieces of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from klog.metadata.cache import ClusterSnapshot, Partitions
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, encode_response, response_class, struct_of
from klog.protocol.primitives import write_bytes_size
from klog.server.handlers.answers import answer_of
from klog.server.handlers.topics.topic_metadata import (
    OPERATIONS_NOT_ASKED_FOR,
    View,
    live_broker_structs,
    not_shown,
    partition_struct,
    topic_struct,
    topic_uuid,
)
from klog.server.network.request import Request

_FLEXIBLE_FROM: Final = 9
_NO_CONTROLLER: Final = -1
# How many whole answers are kept: enough for the requests of a few kinds of clients.
_MAX_KEPT: Final = 256
_MAX_KEPT_REQUEST_BYTES: Final = 4096


class Variant(NamedTuple):
    """The properties of a request that change how a topic is encoded.

    `topic_operations` is the bit field of what the client may do with the topic (KIP-430).
    """

    listener: str
    version: int
    topic_operations: int = OPERATIONS_NOT_ASKED_FOR

    @property
    def view(self) -> View:
        return View(self.listener, hide_unreachable=self.version == 0, listener_has_code=self.version >= 6)


class _KeptTopic(NamedTuple):
    partitions: Partitions
    topic_id: UUID | None
    encoded: bytes


class _Kept:
    """The bytes encoded from one snapshot, and those of earlier ones that are still valid."""

    def __init__(self, snapshot: ClusterSnapshot, topics: dict[Variant, dict[str, _KeptTopic]]) -> None:
        self.snapshot = snapshot
        self.topics = topics
        self.answers: dict[tuple[str, int, bytes], bytes] = {}

    def next(self, snapshot: ClusterSnapshot) -> _Kept:
        """The start for another snapshot: topics look the same as long as the brokers do."""
        if snapshot.brokers != self.snapshot.brokers:
            return _Kept(snapshot, {})
        topics = {
            variant: {name: each for name, each in kept.copy().items() if name in snapshot.topics}
            for variant, kept in self.topics.copy().items()
        }
        return _Kept(snapshot, topics)


class MetadataAnswers:
    """Encodes answers about one cluster, and keeps what it has encoded.

    Threads may use it at once: what two of them encode at the same time is the same.
    """

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._present = _Kept(ClusterSnapshot(), {})

    def _kept(self, snapshot: ClusterSnapshot) -> _Kept:
        kept = self._present
        if kept.snapshot is not snapshot:
            kept = self._present = kept.next(snapshot)
        return kept

    def kept(self, snapshot: ClusterSnapshot, request: Request) -> bytes | None:
        """The answer that an equal request got from the same snapshot."""
        return self._kept(snapshot).answers.get((request.listener, request.api_version, bytes(request.body)))

    def keep(self, snapshot: ClusterSnapshot, request: Request, answer: bytes) -> None:
        """Keep an answer for equal requests, as long as this snapshot is the present one."""
        if len(request.body) <= _MAX_KEPT_REQUEST_BYTES:
            answers = self._kept(snapshot).answers
            if len(answers) >= _MAX_KEPT:
                answers.clear()
            answers[request.listener, request.api_version, bytes(request.body)] = answer

    def topic(self, snapshot: ClusterSnapshot, variant: Variant, name: str) -> bytes:
        """A topic of the snapshot, encoded."""
        partitions, topic_id = snapshot.topics[name], topic_uuid(snapshot, name)
        topics = self._kept(snapshot).topics.setdefault(variant, {})
        kept = topics.get(name)
        if kept is not None and kept.partitions is partitions and kept.topic_id == topic_id:
            return kept.encoded
        encoded = encode_response(_topic_entity(snapshot, variant, name, topic_id))
        topics[name] = _KeptTopic(partitions, topic_id, encoded)
        return encoded

    def whole(
        self,
        snapshot: ClusterSnapshot,
        request: Request,
        topics: Iterable[bytes],
        *,
        cluster_operations: int,
    ) -> bytes:
        """An answer with these topics, each encoded."""
        controller = snapshot.controller_id
        frame = encode_response(
            answer_of(
                request,
                brokers=live_broker_structs(snapshot, request.listener),
                cluster_id=self._cluster_id,
                controller_id=_NO_CONTROLLER if controller is None else controller,
                topics=(),
                cluster_authorized_operations=cluster_operations,
            )
        )
        return self._with_topics(request, frame, topics)

    def refusal(self, request: Request, topics: Iterable[bytes]) -> bytes:
        """The answer to a request that was not processed: it does not describe the cluster."""
        frame = encode_response(
            answer_of(
                request,
                brokers=(),
                cluster_id=None,
                controller_id=_NO_CONTROLLER,
                topics=(),
                cluster_authorized_operations=OPERATIONS_NOT_ASKED_FOR,
            )
        )
        return self._with_topics(request, frame, topics)

    @staticmethod
    def _with_topics(request: Request, frame: bytes, topics: Iterable[bytes]) -> bytes:
        """An encoded answer without topics, with these."""
        listed = list(topics)
        # The topics' count is the last but what the version appends behind the topics.
        flexible = request.api_version >= _FLEXIBLE_FROM
        end = len(frame) - _size_behind_topics(request.api_version)
        start = end - len(write_bytes_size(0, flexible))
        return b"".join((frame[:start], write_bytes_size(len(listed), flexible), *listed, frame[end:]))


def _size_behind_topics(version: int) -> int:
    """Bytes of the cluster's authorized operations (8 to 10) and of the tagged fields."""
    return 4 * (8 <= version <= 10) + (version >= _FLEXIBLE_FROM)


def _topic_class(version: int) -> type:
    return struct_of(response_class(ApiKey.METADATA, version), "topics")


def _topic_entity(snapshot: ClusterSnapshot, variant: Variant, name: str, topic_id: UUID | None) -> Entity:
    view = variant.view
    partitions = [partition_struct(snapshot, state, view) for state in snapshot.topics[name].values()]
    topic = topic_struct(name, topic_id, variant.topic_operations, partitions=partitions)
    return build(_topic_class(variant.version), **topic)


def refused_topic(
    variant: Variant,
    name: str | None,
    error: ErrorCode,
    topic_id: UUID | None = None,
    *,
    name_only: bool = False,
) -> bytes:
    """A topic that there is nothing to tell of but an error, encoded. `name_only`: the request itself was
    refused, nothing of the topic was looked at."""
    topic = topic_struct(name, topic_id, variant.topic_operations, error)
    if name_only:
        topic = {**not_shown(name or "", error), "name": name, "topic_id": topic_id}
    return encode_response(build(_topic_class(variant.version), **topic))
