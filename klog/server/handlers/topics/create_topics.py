"""Answers CreateTopics: writes topics to the tree, and answers when this broker knows their leaders.

Rules: Kafka's `KafkaApis.handleCreateTopicsRequest` and ZkAdminManager; KIP-525 (the answer tells counts and
configs), KIP-516 (topic ids). Only the controller takes the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from klog.config.broker import BrokerConfig
from klog.config.broker_topics import topic_values
from klog.formats.errors import KlogError
from klog.formats.names import decode_uuid
from klog.metadata.cache import MetadataCache
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import Struct, entity_of, milliseconds, send_answer
from klog.server.handlers.configs.config_entries import topic_entry
from klog.server.handlers.refusals import RefusedError, error_fields, refusal_of
from klog.server.handlers.topics.mutation_quota import charge_mutations
from klog.server.handlers.topics.topic_creation import (
    NewTopic,
    PlannedTopic,
    TopicCreator,
    limit_new_partitions,
)
from klog.server.handlers.topics.topic_waits import TopicWaits, lacks_leaders
from klog.server.network.request import Request

_METADATA_TOPIC: Final = "__cluster_metadata"
_UNKNOWN_COUNT: Final = -1
_CONFIGS_FROM: Final = 5


@dataclass(slots=True)
class _Outcome:
    """The result for one topic of the request."""

    refused: RefusedError | None = None
    planned: PlannedTopic | None = None
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTopicsHandler:
    """Answers CreateTopics requests."""

    creator: TopicCreator
    cache: MetadataCache
    waits: TopicWaits
    config: Callable[[], BrokerConfig]
    is_controller: Callable[[], bool]

    def handle(self, request: Request) -> None:
        """Create the topics, and answer now or when they have leaders."""
        wanted = entity_of(request)
        outcomes: list[tuple[str, _Outcome]] = []
        refused = self._refusal(wanted)
        if refused is not None:
            outcomes = [(topic.name, _Outcome(refused)) for topic in wanted.topics]
            self._answer(request, outcomes, frozenset())
            return
        counts = Counter(topic.name for topic in wanted.topics)
        for topic in wanted.topics:
            twice = counts[topic.name] > 1
            only_check = wanted.validate_only
            outcomes.append((topic.name, self._create(request, topic, twice=twice, only_check=only_check)))
        if wanted.validate_only:
            self._answer(request, outcomes, frozenset())
            return
        created = {name: each.planned for name, each in outcomes if each.refused is None and each.planned}
        self.waits.wait(
            list(created),
            partial(self._is_pending, created),
            partial(self._answer, request, outcomes),
            timeout_ms=milliseconds(wanted.timeout),
        )

    def _refusal(self, wanted: Entity) -> RefusedError | None:
        """The error for the whole request."""
        if not self.is_controller():
            return RefusedError(ErrorCode.NOT_CONTROLLER)
        try:
            limit_new_partitions(topic.num_partitions for topic in wanted.topics)
        except RefusedError as refused:
            return refused
        return None

    def _is_pending(self, created: Mapping[str, PlannedTopic], topic: str) -> bool:
        return lacks_leaders(self.cache.snapshot, topic, created[topic].replicas)

    def _create(self, request: Request, topic: Entity, *, twice: bool, only_check: bool) -> _Outcome:
        if topic.name == _METADATA_TOPIC:
            prohibited = f"Creation of internal topic {_METADATA_TOPIC} is prohibited."
            return _Outcome(RefusedError(ErrorCode.INVALID_REQUEST, prohibited))
        if twice:
            return _Outcome(RefusedError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic."))
        outcome = _Outcome()
        try:
            outcome.planned = self.creator.plan(_new_topic(topic))
            if not only_check:
                charge_mutations(request, len(outcome.planned.replicas))
                outcome.topic_id = self.creator.create(outcome.planned)
        except KlogError as error:
            outcome.refused = refusal_of(error)
        return outcome

    def _answer(
        self, request: Request, outcomes: list[tuple[str, _Outcome]], pending: frozenset[str]
    ) -> None:
        results = []
        for name, outcome in outcomes:
            refused = outcome.refused
            if refused is None and name in pending:
                refused = RefusedError(ErrorCode.REQUEST_TIMED_OUT)
            results.append({"name": name, **error_fields(refused), **self._made(request, outcome, refused)})
        send_answer(request, topics=results)

    def _made(self, request: Request, outcome: _Outcome, refused: RefusedError | None) -> Struct:
        planned = outcome.planned if refused is None else None
        return {
            "topic_id": None if outcome.topic_id is None else UUID(bytes=decode_uuid(outcome.topic_id)),
            "num_partitions": _UNKNOWN_COUNT if planned is None else len(planned.replicas),
            "replication_factor": _UNKNOWN_COUNT if planned is None else len(planned.replicas[0]),
            "configs": () if planned is None else self._configs(request, planned),
        }

    def _configs(self, request: Request, planned: PlannedTopic) -> list[Struct]:
        if request.api_version < _CONFIGS_FROM:
            return []
        config = self.config()
        return [
            topic_entry(config, planned.configs, name, value)._asdict()
            for name, value in topic_values(config, planned.configs).items()
        ]


def _new_topic(topic: Entity) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {each.partition_index: tuple(each.broker_ids) for each in topic.assignments},
        {each.name: each.value for each in topic.configs},
    )
