"""AlterPartitionReassignments and ListPartitionReassignments: partitions that move between brokers.

The answer says what was started, not what is done: clients list what still runs.

Rules: Kafka's KafkaApis and KafkaController (processApiPartitionReassignment); KIP-455.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from klog.controller.events import AlterReassignments, ListReassignments
from klog.controller.reassignments import ReassignmentStart
from klog.formats.names import TopicPartition
from klog.metadata.values import ReplicaAssignment
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import Struct, by_topic, entity_of, send_answer
from klog.server.handlers.refusals import NOT_CONTROLLER, error_fields
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class PartitionReassignmentsHandler:
    """Answers both requests. `put` queues an event for the controller."""

    put: Callable[[AlterReassignments | ListReassignments], None]

    def alter(self, request: Request) -> None:
        """Have reassignments started or cancelled. If a partition is named twice, the last target wins."""
        targets = {
            TopicPartition(topic.name, each.partition_index): each.replicas
            for topic in entity_of(request).topics
            for each in topic.partitions
        }
        self.put(AlterReassignments(targets, partial(_send_outcomes, request)))

    def list(self, request: Request) -> None:
        """Answer with the reassignments in progress."""
        asked = entity_of(request).topics
        partitions = None
        if asked is not None:
            partitions = {
                TopicPartition(topic.name, number) for topic in asked for number in topic.partition_indexes
            }
        self.put(ListReassignments(partial(_send_running, request), partitions))


def _send_outcomes(
    request: Request, outcomes: Mapping[TopicPartition, ReassignmentStart] | ErrorCode
) -> None:
    if isinstance(outcomes, ErrorCode):
        send_answer(request, **error_fields(NOT_CONTROLLER), responses=())
        return

    topics = by_topic(sorted(outcomes.items(), key=itemgetter(0)), _outcome)
    send_answer(request, error_code=ErrorCode.NONE, error_message="", responses=topics)


def _outcome(number: int, outcome: ReassignmentStart) -> Struct:
    error, message = outcome
    return {"partition_index": number, "error_code": error, "error_message": message}


def _send_running(request: Request, running: Mapping[TopicPartition, ReplicaAssignment] | ErrorCode) -> None:
    if isinstance(running, ErrorCode):
        send_answer(request, **error_fields(NOT_CONTROLLER), topics=())
        return

    topics = by_topic(sorted(running.items(), key=itemgetter(0)), _running)
    send_answer(request, error_code=ErrorCode.NONE, error_message="", topics=topics)


def _running(number: int, assignment: ReplicaAssignment) -> Struct:
    return {
        "partition_index": number,
        "replicas": assignment.replicas,
        "adding_replicas": assignment.adding,
        "removing_replicas": assignment.removing,
    }
