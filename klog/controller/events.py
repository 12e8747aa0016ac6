"""What the controller reacts to. All of it goes through one queue and is handled one at a time, in order.

A request carries `reply`, called once: with the answer, or with an error code for the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from klog.controller.elections import ElectionType
from klog.formats.names import TopicPartition
from klog.metadata import paths
from klog.metadata.control_requests import ControlRequest, ControlResponse
from klog.metadata.values import LeaderAndIsr, ProducerIdBlock, ReplicaAssignment, TopicIdPartition
from klog.protocol.error_codes import ErrorCode


class WatchedNode(Enum):
    """Nodes whose changes are events; the values are their paths."""

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
    """The broker is registered and takes part in elections."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The store's session, with the broker's registration and `/controller` if it was ours, is gone."""


@dataclass(frozen=True, slots=True)
class SessionRenewed:
    """After an expired session a new one has begun, in which this broker is not registered yet."""


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
    """A broker has answered a request of the controller's."""

    broker_id: int
    request: ControlRequest
    response: ControlResponse


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """Unclean elections have been allowed for one topic, or (None) by default."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Time to look for brokers that lead too little."""


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker wants to stop. Answer: the partitions that it still leads."""

    broker_id: int
    broker_epoch: int
    reply: Callable[[set[TopicPartition] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Answer: how it went for each partition (None asks for all that need it)."""

    partitions: Sequence[TopicPartition] | None
    election_type: ElectionType
    reply: Callable[[dict[TopicPartition, ErrorCode] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Answer: each partition's state now, or its error."""

    broker_id: int
    broker_epoch: int
    wanted: Mapping[TopicIdPartition, LeaderAndIsr]
    version: int
    reply: Callable[[dict[TopicIdPartition, LeaderAndIsr | ErrorCode] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """None as target cancels. Answer: how it went for each partition."""

    targets: Mapping[TopicPartition, Sequence[int] | None]
    reply: Callable[[dict[TopicPartition, ErrorCode] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """Answer: the reassignments that are running."""

    reply: Callable[[dict[TopicPartition, ReplicaAssignment] | ErrorCode], None]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Answer: the broker's next block."""

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


def preempt(event: Event) -> None:
    """The event will not be handled by an active controller: who waits for an answer is told so."""
    if isinstance(event, Request):
        event.reply(ErrorCode.NOT_CONTROLLER)
