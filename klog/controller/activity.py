"""Maps each event to what the controller does while it handles it. Rules: Kafka's `ControllerEvent.state`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from klog.controller import events
from klog.controller.observer import ControllerState
from klog.metadata.control_requests import ControlRequest
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest

_BY_NODE: Final[Mapping[events.WatchedNode, ControllerState]] = MappingProxyType(
    {
        events.WatchedNode.CONTROLLER: ControllerState.CONTROLLER_CHANGE,
        events.WatchedNode.BROKERS: ControllerState.BROKER_CHANGE,
        events.WatchedNode.TOPICS: ControllerState.TOPIC_CHANGE,
        events.WatchedNode.DELETE_TOPICS: ControllerState.TOPIC_DELETION,
        events.WatchedNode.LOG_DIR_EVENTS: ControllerState.LOG_DIR_CHANGE,
        events.WatchedNode.ISR_CHANGES: ControllerState.ISR_CHANGE,
        events.WatchedNode.PREFERRED_ELECTION: ControllerState.MANUAL_LEADER_BALANCE,
        events.WatchedNode.REASSIGN_PARTITIONS: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    }
)

_BY_TYPE: Final[Mapping[type[events.Event], ControllerState]] = MappingProxyType(
    {
        events.Startup: ControllerState.CONTROLLER_CHANGE,
        events.SessionExpired: ControllerState.CONTROLLER_CHANGE,
        events.SessionRenewed: ControllerState.CONTROLLER_CHANGE,
        events.BrokerNodeChanged: ControllerState.BROKER_CHANGE,
        events.TopicNodeChanged: ControllerState.TOPIC_CHANGE,
        events.RebalanceDue: ControllerState.AUTO_LEADER_BALANCE,
        events.ControlledShutdown: ControllerState.CONTROLLED_SHUTDOWN,
        events.ElectLeaders: ControllerState.MANUAL_LEADER_BALANCE,
        events.AlterPartition: ControllerState.ISR_CHANGE,
        events.AlterReassignments: ControllerState.ALTER_PARTITION_REASSIGNMENT,
        events.ListReassignments: ControllerState.LIST_PARTITION_REASSIGNMENT,
        events.AllocateProducerIds: ControllerState.IDLE,
    }
)


def state_of(event: events.Event) -> ControllerState:
    """The state of the controller while it handles this event."""
    match event:
        case events.TreeChanged(node):
            return _BY_NODE[node]
        case events.ResponseReceived(request=request):
            return _on_answer(request)
        case events.UncleanElectionEnabled(topic):
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
