"""What a plan starts from: the brokers of a cluster, and its partitions with their replicas and sizes."""

from __future__ import annotations

from dataclasses import dataclass

from klog.admin.reassign.values import BrokerPlace
from klog.formats.names import TopicPartition


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
