"""What a controller tells brokers, and their answers, as values: LeaderAndIsr, UpdateMetadata, StopReplica.

The wire's form of them is the protocol room's; here they are what the controller decides, what the replica
manager obeys and what the metadata cache takes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from klog.formats.names import TopicPartition
from klog.metadata.values import BrokerRegistration, LeaderRecoveryState
from klog.protocol.error_codes import ErrorCode

# In StopReplica: the topic is being deleted, whatever its leader epoch is.
EPOCH_DURING_DELETE = -2
# In StopReplica: the controller knows no leader epoch for the partition.
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class LeaderAndIsrPartition:
    """One partition as its replicas are to hold it. `is_new`: there may be no log yet."""

    partition: TopicPartition
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class UpdateMetadataPartition:
    """One partition as clients are to see it. Leader -2: the topic is being deleted."""

    partition: TopicPartition
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StopReplicaPartition:
    """A replica to stop, and with `delete` to throw away."""

    partition: TopicPartition
    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    topic_ids: Mapping[str, str]
    live_leaders: tuple[BrokerRegistration, ...]


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[UpdateMetadataPartition, ...]
    topic_ids: Mapping[str, str]
    live_brokers: tuple[BrokerRegistration, ...]


@dataclass(frozen=True, slots=True)
class StopReplicaRequest:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopReplicaPartition, ...]


ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@dataclass(frozen=True, slots=True)
class ControlResponse:
    """A broker's answer: an error for the whole request, else one for each partition it names."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
