"""Answers CreatePartitions requests when all new partitions have leaders.

Rules: Kafka's `KafkaApis.handleCreatePartitionsRequest`, ZkAdminManager (createPartitions) and AdminZkClient
(createNewPartitionsAssignment). Only the controller takes the request.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from klog.formats.errors import KlogError
from klog.formats.names import is_legal_topic
from klog.metadata import paths
from klog.metadata.assignment import assign_more, validate_assignment
from klog.metadata.cache import MetadataCache
from klog.metadata.errors import BadVersionError
from klog.metadata.store import MetadataStore
from klog.metadata.topics import add_partitions, read_topics
from klog.metadata.values import TopicAssignment
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, milliseconds, send_answer
from klog.server.handlers.refusals import RefusedError, error_fields, refusal_of
from klog.server.handlers.topics.mutation_quota import charge_mutations
from klog.server.handlers.topics.partition_room import PartitionRoom
from klog.server.handlers.topics.topic_creation import limit_new_partitions, racks_of
from klog.server.handlers.topics.topic_waits import TopicWaits, lacks_leaders
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class CreatePartitionsHandler:
    """Answers CreatePartitions requests."""

    store: MetadataStore
    cache: MetadataCache
    waits: TopicWaits
    is_controller: Callable[[], bool]
    room: PartitionRoom | None = None
    random_below: Callable[[int], int] = secrets.randbelow

    def handle(self, request: Request) -> None:
        """Grow the topics, and answer now or when the new partitions have leaders."""
        wanted = entity_of(request)
        if not self.is_controller():
            names = dict.fromkeys(topic.name for topic in wanted.topics)
            refused = RefusedError(ErrorCode.NOT_CONTROLLER)
            _answer(request, dict.fromkeys(names, refused), frozenset())
            return
        counts = Counter(topic.name for topic in wanted.topics)
        outcomes: dict[str, RefusedError | None] = {}
        grown: dict[str, int] = {}
        for topic in wanted.topics:
            try:
                if counts[topic.name] > 1:
                    raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
                self._grow(request, topic, only_check=wanted.validate_only)
            except KlogError as error:
                outcomes[topic.name] = refusal_of(error)
            else:
                outcomes[topic.name] = None
                grown[topic.name] = topic.count
        if wanted.validate_only:
            _answer(request, outcomes, frozenset())
            return
        self.waits.wait(
            list(grown),
            lambda topic: lacks_leaders(self.cache.snapshot, topic, range(grown[topic])),
            partial(_answer, request, outcomes),
            timeout_ms=milliseconds(wanted.timeout),
        )

    def _grow(self, request: Request, topic: Entity, *, only_check: bool) -> None:
        """Raises `KlogError`."""
        is_charged = False
        while True:
            added = self._plan(topic)
            if self.room is not None:
                self.room.require(added)
            if only_check:
                return
            if not is_charged:
                charge_mutations(request, len(added))
                is_charged = True
            try:
                add_partitions(self.store, topic.name, added)
            except BadVersionError:
                # The topic was changed meanwhile: check again with its present state.
                continue
            if self.room is not None:
                self.room.promise(topic.name, added)
            return

    def _plan(self, topic: Entity) -> Mapping[int, Sequence[int]]:
        if not is_legal_topic(topic.name):
            # Nor may it become part of a path in the tree.
            raise _unknown(topic.name)
        if self.store.exists(paths.delete_topic(topic.name)) is not None:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        present = read_topics(self.store, [topic.name]).get(topic.name)
        if present is None:
            raise _unknown(topic.name)
        _check_growth(topic, present)
        limit_new_partitions([topic.count - len(present.partitions)])
        racks = racks_of(self.cache.snapshot)
        replicas = {number: each.replicas for number, each in present.partitions.items()}
        if topic.assignments is None:
            return assign_more(racks, replicas, topic.count, self.random_below)
        chosen = [tuple(each.broker_ids) for each in topic.assignments]
        _check_assignment(chosen, topic.count - len(replicas), racks)
        added = dict(enumerate(chosen, len(replicas)))
        validate_assignment(added, range(len(replicas), topic.count), racks, len(replicas[0]))
        return added


def _unknown(topic: str) -> RefusedError:
    return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")


def _check_growth(topic: Entity, present: TopicAssignment) -> None:
    if any(each.is_being_reassigned for each in present.partitions.values()):
        raise RefusedError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{topic.name}'.",
        )
    count = len(present.partitions)
    if topic.count < count:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic has {count} partitions now, more than the {topic.count} that are asked for.",
        )
    if topic.count == count:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partitions.")
    if 0 not in present.partitions:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "The topic's partition 0 is missing.")


def _check_assignment(chosen: Sequence[tuple[int, ...]], more: int, racks: Mapping[int, str | None]) -> None:
    unknown = sorted({broker_id for replicas in chosen for broker_id in replicas} - racks.keys())
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.",
        )
    if len(chosen) != more:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {more} but {len(chosen)} assignments provided.",
        )


def _answer(request: Request, outcomes: Mapping[str, RefusedError | None], pending: frozenset[str]) -> None:
    late = RefusedError(ErrorCode.REQUEST_TIMED_OUT)
    results = [
        {"name": name, **error_fields(late if refused is None and name in pending else refused)}
        for name, refused in outcomes.items()
    ]
    send_answer(request, results=results)
