"""The states of a broker from its start to its end."""

from __future__ import annotations

from enum import IntEnum


class BrokerState(IntEnum):
    """By Kafka's numbers (`org.apache.kafka.metadata.BrokerState`). RECOVERY is the loading of logs."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
