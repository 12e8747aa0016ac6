"""StopReplica, version 4: the controller tells a broker to stop replicas, and to delete some of them.

Rules: StopReplicaRequest and StopReplicaResponse of Kafka 3.9's message schemas; KIP-570 (leader epoch).
"""

from dataclasses import dataclass

from klog.protocol.interbroker.struct import Struct, kafka

# Values of `leader_epoch` that are no epoch: the sender knows none, or the topic is being deleted.
NO_EPOCH = -1
EPOCH_DURING_DELETE = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(Struct):
    """One replica to stop."""

    partition_index: int = kafka("int32")
    leader_epoch: int = kafka("int32", default=NO_EPOCH)
    delete_partition: bool = kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(Struct):
    """The replicas of one topic."""

    topic_name: str = kafka("string")
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(Struct, api_key=5, version=4):
    """From the controller to one broker. `broker_epoch` is the czxid of the broker's registration."""

    controller_id: int = kafka("int32")
    is_kraft_controller: bool = kafka("bool", default=False)
    controller_epoch: int = kafka("int32")
    broker_epoch: int = kafka("int64", default=-1)
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(Struct):
    """The result for one replica."""

    topic_name: str = kafka("string")
    partition_index: int = kafka("int32")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(Struct, api_key=5, version=4):
    """From the broker. `error_code` concerns the whole request (a stale epoch)."""

    error_code: int = kafka("error_code")
    partition_errors: tuple[StopReplicaPartitionError, ...]
