"""The events that the controller handles. They go through one queue and are handled one at a time, in order.

A request has a `reply`, which is called once: with the answer, or with one error code for the whole request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from klog.controller.reassignments import ReassignmentStart
from klog.formats.names import TopicPartition
from klog.metadata import paths
from klog.metadata.control_requests import ControlRequest, ControlResponse
from klog.metadata.values import LeaderAndIsr, ProducerIdBlock, ReplicaAssignment, TopicIdPartition
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode


class WatchedNode(Enum):
    """The nodes whose changes become events. The values are their paths."""

    CONTROLLER = paths.CONTROLLER
    BROKERS = paths.BROKER_IDS
    TOPICS = paths.TOPICS
    DELETE_TOPICS = paths.DELETE_TOPICS
    LOG_DIR_EVENTS = paths.LOG_DIR_EVENTS
    ISR_CHANGES = paths.ISR_CHANGES
    PREFERRED_ELECTION = paths.PREFERRED_REPLICA_ELECTION
    REASSIGN_PARTITIONS = paths.REASSIGN_PARTITIONS


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker is registered and can be elected controller."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The session has expired: the broker's registration is gone, and `/controller` too if it was ours."""


@dataclass(frozen=True, slots=True)
class SessionRenewed:
    """A new session has begun after an expired one. This broker is not registered in it yet."""


@dataclass(frozen=True, slots=True)
class TreeChanged:
    """One of the watched nodes may have changed."""

    node: WatchedNode


@dataclass(frozen=True, slots=True)
class BrokerNodeChanged:
    """A broker's registration may have been rewritten."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicNodeChanged:
    """A topic's node may have changed."""

    topic: str


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A broker has answered a request of the controller."""

    broker_id: int
    request: ControlRequest
    response: ControlResponse


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """Unclean elections are allowed from now on, for one topic or (None) by default."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """It is time to look for brokers that lead too few of their preferred partitions."""


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker wants to stop. Answer: the partitions that it still leads."""

    broker_id: int
    broker_epoch: int
    reply: Callable[[set[TopicPartition] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Asks for elections (None: of all partitions that need one). Answer: the result for each partition."""

    partitions: Sequence[TopicPartition] | None
    election_type: ElectionType
    reply: Callable[[dict[TopicPartition, ErrorCode] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader asks for another ISR. Answer: the state of each partition now, or its error."""

    broker_id: int
    broker_epoch: int
    wanted: Mapping[TopicIdPartition, LeaderAndIsr]
    version: int
    reply: Callable[[dict[TopicIdPartition, LeaderAndIsr | ErrorCode] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Starts reassignments, or cancels one if its target is None. Answer: the result for each partition."""

    targets: Mapping[TopicPartition, Sequence[int] | None]
    reply: Callable[[dict[TopicPartition, ReassignmentStart] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """Answer: the reassignments in progress of these partitions, or (None) of all."""

    reply: Callable[[dict[TopicPartition, ReplicaAssignment] | ErrorCode], None]
    partitions: Collection[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Answer: the next block of producer ids for the broker."""

    broker_id: int
    broker_epoch: int
    reply: Callable[[ProducerIdBlock | ErrorCode], None]


Request: TypeAlias = (
    ControlledShutdown
    | ElectLeaders
    | AlterPartition
    | AlterReassignments
    | ListReassignments
    | AllocateProducerIds
)
Event: TypeAlias = (
    Startup
    | SessionExpired
    | SessionRenewed
    | TreeChanged
    | BrokerNodeChanged
    | TopicNodeChanged
    | ResponseReceived
    | UncleanElectionEnabled
    | RebalanceDue
    | Request
)


def answered_once(event: Event) -> Event:
    """The event with a `reply` that has no effect after it was called without an error.

    A request may fail after it was answered, and is then answered with an error by whoever finds out.
    """
    if not isinstance(event, Request):
        return event
    reply: Callable[[Any], None] = event.reply
    waiting = [reply]

    def first(answer: object) -> None:
        if waiting:
            waiting[0](answer)
            waiting.clear()

    return replace(event, reply=first)


def preempt(event: Event) -> None:
    """Answers a request with NOT_CONTROLLER, because no active controller will handle it."""
    if isinstance(event, Request):
        event.reply(ErrorCode.NOT_CONTROLLER)
