"""The metadata of partitions, topics and brokers as the clients of one listener see it.

Rules: Kafka's ZkMetadataCache (getPartitionMetadata, getAliveBrokerNodes) and AclEntry (which operations
there are; without an authorizer everybody may do all of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.formats.constants import NO_LEADER
from klog.formats.names import CONSUMER_OFFSETS, is_legal_topic
from klog.metadata import control_requests
from klog.metadata.cache import ClusterSnapshot
from klog.protocol.entity_fields import Value
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.update_metadata import UpdateMetadataPartitionState
from klog.server.handlers.answers import Struct

SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))

# Bit fields of AclOperation codes (KIP-430): READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
# CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
OPERATIONS_NOT_ASKED_FOR: Final = -(2**31)
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


class Node(NamedTuple):
    """A live broker as one listener's clients reach it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class View(NamedTuple):
    """The view of the cluster that a request asks for.

    `hide_unreachable`: replicas on brokers that are not reachable are left out, with an error (Metadata 0).
    `listener_has_code`: a leader without this listener is LISTENER_NOT_FOUND, not LEADER_NOT_AVAILABLE.
    """

    listener: str
    hide_unreachable: bool = False
    listener_has_code: bool = True


class SeenPartition(NamedTuple):
    """A partition as a client sees it."""

    error: ErrorCode
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def live_nodes(snapshot: ClusterSnapshot, listener: str) -> list[Node]:
    """The brokers that can be reached by this listener."""
    found = ((broker, broker.endpoint(listener)) for broker in snapshot.brokers.values())
    return [Node(broker.broker_id, at.host, at.port, broker.rack) for broker, at in found if at is not None]


def live_broker_structs(snapshot: ClusterSnapshot, listener: str) -> list[Struct]:
    """The brokers that can be reached by this listener, for an answer; APIs have two names for their id."""
    return [{"node_id": node.broker_id, **node._asdict()} for node in live_nodes(snapshot, listener)]


def see_partition(
    snapshot: ClusterSnapshot, state: UpdateMetadataPartitionState, view: View
) -> SeenPartition:
    """One partition through one listener."""
    replicas, isr = state.replicas, state.isr
    if view.hide_unreachable:
        reachable = {node.broker_id for node in live_nodes(snapshot, view.listener)}
        replicas = tuple(each for each in replicas if each in reachable)
        isr = tuple(each for each in isr if each in reachable)
    broker = snapshot.brokers.get(state.leader)
    if broker is None:
        return SeenPartition(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, replicas, isr)
    if broker.endpoint(view.listener) is None:
        known = view.listener_has_code
        error = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
        return SeenPartition(error, NO_LEADER, replicas, isr)
    some_hidden = len(replicas) < len(state.replicas) or len(isr) < len(state.isr)
    error = ErrorCode.REPLICA_NOT_AVAILABLE if some_hidden else ErrorCode.NONE
    return SeenPartition(error, state.leader, replicas, isr)


def partition_struct(
    snapshot: ClusterSnapshot, state: UpdateMetadataPartitionState, view: View, /, **values: Value
) -> Struct:
    """One partition as a struct of an answer, through one listener; `values` are further fields of it."""
    seen = see_partition(snapshot, state, view)
    return {
        "error_code": seen.error,
        "partition_index": state.partition_index,
        "leader_id": seen.leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": seen.replicas,
        "isr_nodes": seen.isr,
        "offline_replicas": state.offline_replicas,
        **values,
    }


def topic_struct(
    name: str | None,
    topic_id: UUID | None,
    operations: int,
    error: ErrorCode = ErrorCode.NONE,
    partitions: Sequence[Struct] = (),
) -> Struct:
    """One topic as a struct of an answer; `operations` are those that the client may carry out."""
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }


def not_shown(name: str, error: ErrorCode) -> Struct:
    """A topic of which nothing is said, not even whether it is internal."""
    return {**topic_struct(name, None, OPERATIONS_NOT_ASKED_FOR, error), "is_internal": False}


def topic_uuid(snapshot: ClusterSnapshot, topic: str) -> UUID | None:
    """A topic's id on the wire; None (the zero id) where there is none."""
    return control_requests.topic_uuid(snapshot.topic_ids.get(topic))


def absence_of(topic: str) -> ErrorCode:
    """The error for a topic that the cluster does not have."""
    known = is_legal_topic(topic)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.INVALID_TOPIC_EXCEPTION
