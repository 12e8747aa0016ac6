"""Answers DeleteTopics: marks topics for deletion, and answers when this broker's metadata has lost them.

Rules: Kafka's `KafkaApis.handleDeleteTopicsRequest` and ZkAdminManager; KIP-516 (by topic id). Only the
controller takes the request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from klog.config.broker import BrokerConfig
from klog.formats.errors import KlogError
from klog.formats.names import encode_uuid
from klog.metadata.cache import MetadataCache
from klog.metadata.errors import TopicDeletionInProgressError
from klog.metadata.store import MetadataStore
from klog.metadata.topics import request_deletion
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, milliseconds, send_answer
from klog.server.handlers.refusals import refusal_of
from klog.server.handlers.topics.mutation_quota import charge_mutations
from klog.server.handlers.topics.topic_waits import TopicWaits
from klog.server.network.request import Request

_DISABLED_CODE_FROM: Final = 3
_STATES_FROM: Final = 6


@dataclass(slots=True)
class _Outcome:
    """One topic of the request, under the name and id that the answer has."""

    name: str | None
    topic_id: UUID | None = None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeleteTopicsHandler:
    """Answers DeleteTopics requests."""

    store: MetadataStore
    cache: MetadataCache
    waits: TopicWaits
    config: Callable[[], BrokerConfig]
    is_controller: Callable[[], bool]

    def handle(self, request: Request) -> None:
        """Ask for the deletion, and answer now or when the topics are gone."""
        wanted = entity_of(request)
        outcomes = _outcomes(request, wanted)
        refused = self._refusal(request, outcomes)
        if refused is not None:
            for outcome in outcomes:
                outcome.error = refused
            _answer(request, outcomes, frozenset())
            return
        for outcome in outcomes:
            self._mark(request, outcome)
        marked = {each.name for each in outcomes if each.error is ErrorCode.NONE and each.name is not None}
        self.waits.wait(
            sorted(marked),
            lambda topic: topic in self.cache.snapshot.topics,
            partial(_answer, request, outcomes),
            timeout_ms=milliseconds(wanted.timeout),
        )

    def _refusal(self, request: Request, outcomes: list[_Outcome]) -> ErrorCode | None:
        """The error for the whole request."""
        if not self.is_controller():
            return ErrorCode.NOT_CONTROLLER
        if not self.config().flag("delete.topic.enable"):
            disabled_has_code = request.api_version >= _DISABLED_CODE_FROM
            return ErrorCode.TOPIC_DELETION_DISABLED if disabled_has_code else ErrorCode.INVALID_REQUEST
        # A topic is named by its name or by its id, not by both.
        if any(each.name is not None and each.topic_id is not None for each in outcomes):
            return ErrorCode.INVALID_REQUEST
        return None

    def _mark(self, request: Request, outcome: _Outcome) -> None:
        snapshot = self.cache.snapshot
        if outcome.name is None and outcome.topic_id is None:
            # Kafka takes no name for one that the client may not know of.
            outcome.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return
        if outcome.name is None and outcome.topic_id is not None:
            outcome.name = snapshot.topic_names.get(encode_uuid(outcome.topic_id.bytes))
        if outcome.name is None:
            outcome.error = ErrorCode.UNKNOWN_TOPIC_ID
        elif outcome.name not in snapshot.topics:
            outcome.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            try:
                charge_mutations(request, len(snapshot.topics[outcome.name]))
                # Several requests may wait for the same deletion.
                with suppress(TopicDeletionInProgressError):
                    request_deletion(self.store, outcome.name)
            except KlogError as error:
                outcome.error = refusal_of(error).error


def _outcomes(request: Request, wanted: Entity) -> list[_Outcome]:
    if request.api_version < _STATES_FROM:
        return [_Outcome(name) for name in wanted.topic_names]
    return [_Outcome(topic.name, topic.topic_id) for topic in wanted.topics]


def _answer(request: Request, outcomes: list[_Outcome], pending: frozenset[str]) -> None:
    results = [
        {
            "name": each.name,
            "topic_id": each.topic_id,
            "error_code": ErrorCode.REQUEST_TIMED_OUT
            if each.error is ErrorCode.NONE and each.name in pending
            else each.error,
            "error_message": None,
        }
        for each in outcomes
    ]
    send_answer(request, responses=results)
