"""The states of partitions and replicas, and the valid transitions between them.

From Kafka's PartitionStateMachine and ReplicaStateMachine. The states exist in the controller's memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from klog.formats.names import TopicPartition

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
State = TypeVar("State", bound=Enum)


class Replica(NamedTuple):
    """The copy of one partition on one broker."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.partition} on broker {self.broker_id}"


class PartitionState(Enum):
    """NEW has replicas and no leader yet; OFFLINE has lost its leader."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """The DELETION states belong to topic deletion.

    DELETION_INELIGIBLE means that the deletion must be retried.
    """

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


VALID_PREVIOUS_PARTITION_STATES: Final = {
    PartitionState.NEW: {PartitionState.NON_EXISTENT},
    PartitionState.ONLINE: {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE},
    PartitionState.OFFLINE: {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE},
    PartitionState.NON_EXISTENT: {PartitionState.OFFLINE},
}

_RUNNING: Final = {
    ReplicaState.NEW,
    ReplicaState.ONLINE,
    ReplicaState.OFFLINE,
    ReplicaState.DELETION_INELIGIBLE,
}

VALID_PREVIOUS_REPLICA_STATES: Final = {
    ReplicaState.NEW: {ReplicaState.NON_EXISTENT},
    ReplicaState.ONLINE: _RUNNING,
    ReplicaState.OFFLINE: _RUNNING,
    ReplicaState.DELETION_STARTED: {ReplicaState.OFFLINE},
    ReplicaState.DELETION_SUCCESSFUL: {ReplicaState.DELETION_STARTED},
    ReplicaState.DELETION_INELIGIBLE: {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED},
    ReplicaState.NON_EXISTENT: {ReplicaState.DELETION_SUCCESSFUL},
}


def valid_transitions(
    items: Iterable[Item],
    target: State,
    states: MutableMapping[Item, State],
    valid_previous: Mapping[State, AbstractSet[State]],
    non_existent: State,
) -> list[Item]:
    """The partitions or replicas whose state may change to `target`; logs the others.

    `states` holds the present states. Those without a state get `non_existent` in it.
    """
    valid = []
    for item in items:
        state = states.setdefault(item, non_existent)
        if state in valid_previous[target]:
            valid.append(item)
        else:
            _log.error("%s cannot become %s: it is %s", item, target.value, state.value)
    return valid
