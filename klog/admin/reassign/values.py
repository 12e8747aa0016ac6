"""The values that plans are made of and that Kafka's JSON files hold, and what a plan starts from."""

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


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as it is. The first replica is the preferred leader; `leader` is None if there is none.

    `size_bytes` is what a new replica has to copy: the size of the leader's log.
    """

    partition: TopicPartition
    replicas: tuple[int, ...]
    leader: int | None
    isr: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The brokers that are alive, and the partitions that a plan is about, both sorted."""

    brokers: tuple[BrokerPlace, ...]
    partitions: tuple[PartitionState, ...]
