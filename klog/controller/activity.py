"""Maps each event to what the controller does while it handles it. Rules: Kafka's `ControllerEvent.state`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from klog.controller.events import (
    AllocateProducerIds,
    AlterPartition,
    AlterReassignments,
    BrokerNodeChanged,
    ControlledShutdown,
    ElectLeaders,
    Event,
    ListReassignments,
    RebalanceDue,
    ResponseReceived,
    SessionExpired,
    SessionRenewed,
    Startup,
    TopicNodeChanged,
    TreeChanged,
    UncleanElectionEnabled,
    WatchedNode,
)
from klog.controller.observer import ControllerState
from klog.metadata.control_requests import ControlRequest
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest

_BY_NODE: Final[Mapping[WatchedNode, ControllerState]] = MappingProxyType(
    {
        WatchedNode.CONTROLLER: ControllerState.CONTROLLER_CHANGE,
        WatchedNode.BROKERS: ControllerState.BROKER_CHANGE,
        WatchedNode.TOPICS: ControllerState.TOPIC_CHANGE,
        WatchedNode.DELETE_TOPICS: ControllerState.TOPIC_DELETION,
        WatchedNode.LOG_DIR_EVENTS: ControllerState.LOG_DIR_CHANGE,
        WatchedNode.ISR_CHANGES: ControllerState.ISR_CHANGE,
        WatchedNode.PREFERRED_ELECTION: ControllerState.MANUAL_LEADER_BALANCE,
        WatchedNode.REASSIGN_PARTITIONS: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    }
)

_BY_TYPE: Final[Mapping[type[Event], ControllerState]] = MappingProxyType(
    {
        Startup: ControllerState.CONTROLLER_CHANGE,
        SessionExpired: ControllerState.CONTROLLER_CHANGE,
        SessionRenewed: ControllerState.CONTROLLER_CHANGE,
        BrokerNodeChanged: ControllerState.BROKER_CHANGE,
        TopicNodeChanged: ControllerState.TOPIC_CHANGE,
        RebalanceDue: ControllerState.AUTO_LEADER_BALANCE,
        ControlledShutdown: ControllerState.CONTROLLED_SHUTDOWN,
        ElectLeaders: ControllerState.MANUAL_LEADER_BALANCE,
        AlterPartition: ControllerState.ISR_CHANGE,
        AlterReassignments: ControllerState.ALTER_PARTITION_REASSIGNMENT,
        ListReassignments: ControllerState.LIST_PARTITION_REASSIGNMENT,
        AllocateProducerIds: ControllerState.IDLE,
    }
)


def state_of(event: Event) -> ControllerState:
    """The state of the controller while it handles this event."""
    match event:
        case TreeChanged(node):
            return _BY_NODE[node]
        case ResponseReceived(request=request):
            return _on_answer(request)
        case UncleanElectionEnabled(topic):
            if topic is None:
                return ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
            return ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
        case _:
            return _BY_TYPE[type(event)]


def _on_answer(request: ControlRequest) -> ControllerState:
    match request:
        case LeaderAndIsrRequest():
            return ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
        case StopReplicaRequest():
            return ControllerState.TOPIC_DELETION
        case _:
            return ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED
