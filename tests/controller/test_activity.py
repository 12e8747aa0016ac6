"""The state that the controller reports for each event."""

from __future__ import annotations

from typing import get_args

import pytest

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
from klog.controller.runner import state_of
from klog.metadata.control_requests import ControlResponse
from klog.protocol.election_type import ElectionType
from tests.control_requests import leader_and_isr, stop_replica, update_metadata


def nobody(_answer: object) -> None:
    pass


REQUESTS = {
    ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED: leader_and_isr({}, {}),
    ControllerState.TOPIC_DELETION: stop_replica({}),
    ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED: update_metadata({}, {}, ()),
}

# Kafka's: `ControllerEvent.state` of each of its events.
STATES: list[tuple[Event, ControllerState]] = [
    (Startup(), ControllerState.CONTROLLER_CHANGE),
    (SessionExpired(), ControllerState.CONTROLLER_CHANGE),
    (SessionRenewed(), ControllerState.CONTROLLER_CHANGE),
    (TreeChanged(WatchedNode.CONTROLLER), ControllerState.CONTROLLER_CHANGE),
    (TreeChanged(WatchedNode.BROKERS), ControllerState.BROKER_CHANGE),
    (BrokerNodeChanged(1), ControllerState.BROKER_CHANGE),
    (TreeChanged(WatchedNode.TOPICS), ControllerState.TOPIC_CHANGE),
    (TopicNodeChanged("t"), ControllerState.TOPIC_CHANGE),
    (TreeChanged(WatchedNode.DELETE_TOPICS), ControllerState.TOPIC_DELETION),
    (TreeChanged(WatchedNode.LOG_DIR_EVENTS), ControllerState.LOG_DIR_CHANGE),
    (TreeChanged(WatchedNode.ISR_CHANGES), ControllerState.ISR_CHANGE),
    (AlterPartition(1, 1, {}, 1, nobody), ControllerState.ISR_CHANGE),
    (TreeChanged(WatchedNode.PREFERRED_ELECTION), ControllerState.MANUAL_LEADER_BALANCE),
    (ElectLeaders(None, ElectionType.PREFERRED, nobody), ControllerState.MANUAL_LEADER_BALANCE),
    (RebalanceDue(), ControllerState.AUTO_LEADER_BALANCE),
    (TreeChanged(WatchedNode.REASSIGN_PARTITIONS), ControllerState.ALTER_PARTITION_REASSIGNMENT),
    (AlterReassignments({}, nobody), ControllerState.ALTER_PARTITION_REASSIGNMENT),
    (ListReassignments(nobody), ControllerState.LIST_PARTITION_REASSIGNMENT),
    (UncleanElectionEnabled(None), ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE),
    (UncleanElectionEnabled("t"), ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE),
    (ControlledShutdown(1, 1, nobody), ControllerState.CONTROLLED_SHUTDOWN),
    (AllocateProducerIds(1, 1, nobody), ControllerState.IDLE),
    *((ResponseReceived(1, request, ControlResponse()), state) for state, request in REQUESTS.items()),
]


@pytest.mark.parametrize(("event", "state"), STATES, ids=lambda each: type(each).__name__)
def test_each_event_has_kafkas_state(event: Event, state: ControllerState) -> None:
    assert state_of(event) is state


def test_every_event_and_every_watched_node_has_a_state() -> None:
    assert {type(event) for event, _ in STATES} == set(get_args(Event))
    assert {event.node for event, _ in STATES if isinstance(event, TreeChanged)} == set(WatchedNode)
