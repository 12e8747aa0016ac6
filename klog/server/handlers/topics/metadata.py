"""Answers Metadata requests with brokers, topics and leaders, and creates missing topics if that is allowed.

Rules: Kafka's `KafkaApis.handleTopicMetadataRequest` and ZkMetadataCache; KIP-4 (controller, racks), KIP-112
(offline replicas), KIP-430 (authorized operations), KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final
from uuid import UUID

from klog.formats.names import encode_uuid
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.access import Access
from klog.server.handlers.answers import InBackground, entity_of
from klog.server.handlers.topics.auto_creation import AutoTopicCreation
from klog.server.handlers.topics.metadata_answers import MetadataAnswers, Variant, refused_topic
from klog.server.handlers.topics.topic_metadata import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
    absence_of,
)
from klog.server.network.request import Request

_NULL_IS_ALL_FROM: Final = 1
_CREATION_ASKED_FROM: Final = 4
_IDS_FROM: Final = 10
_BY_ID_FROM: Final = 12


class MetadataHandler:
    """Answers Metadata requests.

    An answer that is kept goes out on any thread. Making one may take a while (a first import, a thousand
    partitions): a thread that must not wait hands it to `run_in_background`. Topics are created by
    `create_in_background`, which may wait for ZooKeeper: other answers do not wait for it.
    """

    def __init__(
        self,
        cluster_id: str,
        cache: MetadataCache,
        creation: AutoTopicCreation,
        run_in_background: InBackground | None = None,
        create_in_background: InBackground | None = None,
        access: Access | None = None,
    ) -> None:
        """Without `access` everybody sees everything."""
        self._access = access
        self._cache = cache
        self._creation = creation
        self._run_in_background = run_in_background
        self._create_in_background = create_in_background
        self._answers = MetadataAnswers(cluster_id)

    def handle(self, request: Request) -> None:
        """Answer from the present snapshot."""
        # What is kept is for those who see everything.
        answer = None
        if self._access is None:
            answer = self._answers.kept(self._cache.snapshot, request)
        if answer is not None:
            request.respond([answer])
        elif self._run_in_background is not None and not request.on_io_thread:
            self._run_in_background(request, self._answer_now)
        else:
            self._answer_now(request)

    def _answer_now(self, request: Request) -> None:
        snapshot, wanted = self._cache.snapshot, entity_of(request)
        if self._create_in_background is not None and self._to_create(snapshot, request, wanted):
            self._create_in_background(request, self._create_and_answer)
        else:
            request.respond([self._answer(snapshot, request, wanted)])

    def _create_and_answer(self, request: Request) -> None:
        request.respond([self._answer(self._cache.snapshot, request, entity_of(request))])

    def _to_create(self, snapshot: ClusterSnapshot, request: Request, wanted: Entity) -> list[str]:
        """The missing topics that this request creates."""
        allowed = request.api_version < _CREATION_ASKED_FROM or wanted.allow_auto_topic_creation
        if not allowed or _broken_rule(wanted, request.api_version) is not None or _ids(wanted):
            return []
        absent = [each.name for each in wanted.topics or () if each.name not in snapshot.topics]
        return absent if absent and self._creation.enabled else []

    def _answer(self, snapshot: ClusterSnapshot, request: Request, wanted: Entity) -> bytes:
        version = request.api_version
        variant = Variant(request.listener, version)
        broken = _broken_rule(wanted, version)
        if broken is not None:
            return self._answers.refusal(request, [_named(variant, each, broken) for each in wanted.topics])
        refused: list[bytes] = []
        if wanted.topics is None or (not wanted.topics and version < _NULL_IS_ALL_FROM):
            names = self._described(request, list(snapshot.topics), logs_denial=False)
        elif ids := _ids(wanted):
            names, refused = self._by_id(snapshot, request, variant, ids)
        else:
            names, refused = self._by_name(snapshot, request, variant, wanted)
        topics = [self._answers.topic(snapshot, self._variant(request, wanted, name), name) for name in names]
        answer = self._answers.whole(
            snapshot, request, refused + topics, cluster_operations=self._cluster_operations(request, wanted)
        )
        if not refused and self._access is None:
            self._answers.keep(snapshot, request, answer)
        return answer

    def _by_name(
        self, snapshot: ClusterSnapshot, request: Request, variant: Variant, wanted: Entity
    ) -> tuple[list[str], list[bytes]]:
        """The topics to describe, and the answers for the others."""
        asked = list(dict.fromkeys(each.name for each in wanted.topics))
        described = self._described(request, asked)
        shown = set(described)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused = [
            refused_topic(variant, name, denied, name_only=True) for name in asked if name not in shown
        ]
        names = [name for name in described if name in snapshot.topics]
        absent = [name for name in described if name not in snapshot.topics]
        if absent and self._to_create(snapshot, request, wanted):
            creatable = self._creatable(request, absent)
            refused += [refused_topic(variant, name, denied) for name in absent if name not in creatable]
            errors = self._creation.create(request, [name for name in absent if name in creatable])
        else:
            errors = {name: absence_of(name) for name in absent}
        return names, refused + [
            refused_topic(self._variant(request, wanted, name), name, error) for name, error in errors.items()
        ]

    def _by_id(
        self, snapshot: ClusterSnapshot, request: Request, variant: Variant, ids: list[UUID]
    ) -> tuple[list[str], list[bytes]]:
        known: dict[str, UUID] = {}
        refused = []
        for topic_id in dict.fromkeys(ids):
            name = snapshot.topic_names.get(encode_uuid(topic_id.bytes))
            if name is not None and name in snapshot.topics:
                known[name] = topic_id
            else:
                refused.append(
                    refused_topic(variant, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id, name_only=True)
                )
        names = self._described(request, list(known))
        # The id is no secret, the name is.
        refused += [
            refused_topic(variant, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, known[name], name_only=True)
            for name in known.keys() - set(names)
        ]
        return names, refused

    # -- rights ----------------------------------------------------------------------------------------------

    def _described(self, request: Request, names: list[str], *, logs_denial: bool = True) -> list[str]:
        """The topics that the client may see."""
        if self._access is None:
            return names
        allowed = self._access.allowed(
            request, AclOperation.DESCRIBE, AclResourceType.TOPIC, names, logs_denial=logs_denial
        )
        return [name for name in names if name in allowed]

    def _creatable(self, request: Request, names: list[str]) -> Container[str]:
        """The topics that the client may create."""
        access, create = self._access, AclOperation.CREATE
        if access is None or access.allows_on_cluster(request, create, logs_denial=False):
            return names
        return access.allowed(request, create, AclResourceType.TOPIC, names)

    def _variant(self, request: Request, wanted: Entity, topic: str) -> Variant:
        operations = OPERATIONS_NOT_ASKED_FOR
        if getattr(wanted, "include_topic_authorized_operations", False):
            operations = TOPIC_OPERATIONS
            if self._access is not None:
                operations = self._access.operations(request, AclResourceType.TOPIC, topic)
        return Variant(request.listener, request.api_version, operations)

    def _cluster_operations(self, request: Request, wanted: Entity) -> int:
        if not getattr(wanted, "include_cluster_authorized_operations", False):
            return OPERATIONS_NOT_ASKED_FOR
        return CLUSTER_OPERATIONS if self._access is None else self._access.cluster_operations(request)


def _ids(wanted: Entity) -> list[UUID]:
    """The topic ids of a request."""
    return [each.topic_id for each in wanted.topics or () if getattr(each, "topic_id", None) is not None]


def _named(variant: Variant, asked: Entity, error: ErrorCode) -> bytes:
    """A topic of a request that is refused, as the request names it."""
    return refused_topic(variant, asked.name or "", error, asked.topic_id, name_only=True)


def _broken_rule(wanted: Entity, version: int) -> ErrorCode | None:
    """Requests have ids since version 10, but use them only since version 12."""
    topics = wanted.topics or ()
    if version < _IDS_FROM:
        return None
    if version < _BY_ID_FROM:
        broken = any(each.name is None or each.topic_id is not None for each in topics)
        return ErrorCode.INVALID_REQUEST if broken else None
    nameless = any(each.name is None for each in topics)
    # Kafka fails if a name is missing, but does not read it if there is an id.
    return (
        ErrorCode.UNKNOWN_SERVER_ERROR if nameless and all(each.topic_id is None for each in topics) else None
    )
