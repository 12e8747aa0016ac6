"""LeaderAndIsr, version 7: the controller tells a broker which partitions it leads and follows.

Rules: LeaderAndIsrRequest and LeaderAndIsrResponse of Kafka 3.9's message schemas; KIP-516 (topic ids),
KIP-704 (leader recovery state), KIP-866 (the controller of a migration to KRaft, which klog never is).
"""

from dataclasses import dataclass, field
from uuid import UUID

from klog.protocol.interbroker.struct import TOPIC_ID, Struct, kafka

# `request_type` of a controller that does not say whether its request is incremental (1) or full (2).
UNKNOWN_TYPE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(Struct):
    """The leader, ISR and replicas of one partition."""

    partition_index: int = kafka("int32")
    controller_epoch: int = kafka("int32")
    leader: int = kafka("int32")
    leader_epoch: int = kafka("int32")
    isr: tuple[int, ...] = kafka("int32")
    partition_epoch: int = kafka("int32")
    replicas: tuple[int, ...] = kafka("int32")
    adding_replicas: tuple[int, ...] = kafka("int32", default=())
    removing_replicas: tuple[int, ...] = kafka("int32", default=())
    is_new: bool = kafka("bool", default=False)
    leader_recovery_state: int = kafka("int8", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(Struct):
    """The partitions of one topic."""

    topic_name: str = kafka("string")
    topic_id: UUID | None = field(metadata=TOPIC_ID)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(Struct):
    """The address of a leader, from which followers fetch."""

    broker_id: int = kafka("int32")
    host_name: str = kafka("string")
    port: int = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(Struct, api_key=4, version=7):
    """From the controller to one broker. `broker_epoch` is the czxid of the broker's registration."""

    controller_id: int = kafka("int32")
    is_kraft_controller: bool = kafka("bool", default=False)
    controller_epoch: int = kafka("int32")
    broker_epoch: int = kafka("int64", default=-1)
    request_type: int = kafka("int8")
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(Struct):
    """The result for one partition."""

    partition_index: int = kafka("int32")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(Struct):
    """The partitions of one topic, which only its id names."""

    topic_id: UUID | None = field(metadata=TOPIC_ID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(Struct, api_key=4, version=7):
    """From the broker. `error_code` concerns the whole request (a stale epoch)."""

    error_code: int = kafka("error_code")
    topics: tuple[LeaderAndIsrTopicError, ...]
