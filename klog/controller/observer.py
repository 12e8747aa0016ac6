"""The interface through which the controller reports what it does, for metrics."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class ControllerState(IntEnum):
    """What the controller is doing. The values are those of Kafka's gauge `ControllerState`."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16


class ControllerObserver(Protocol):
    """Receives what the controller has done, on the controller's thread."""

    def handled(self, state: ControllerState, waited_ns: int, took_ns: int) -> None:
        """An event of this kind waited `waited_ns` in the queue and took `took_ns` to handle."""

    def elected_unclean(self) -> None:
        """A partition got a leader that was not in sync."""
