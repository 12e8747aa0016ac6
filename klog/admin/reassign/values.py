"""The values that plans are made of and that Kafka's JSON files hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.formats.names import TopicPartition

ANY_LOG_DIR: Final = "any"
"""The log directory of Kafka's JSON files that leaves the choice to the broker."""


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """Where the replicas of a partition are, or are to be. The first broker is the preferred leader.

    `log_dirs` has one path for each replica, or ANY_LOG_DIR. It is empty if all are ANY_LOG_DIR.
    """

    partition: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A broker that may hold replicas; `rack` is None if the broker has none."""

    broker_id: int
    rack: str | None = None
