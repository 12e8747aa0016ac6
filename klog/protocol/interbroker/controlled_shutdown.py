"""ControlledShutdown, version 3: a broker asks the controller to move its leaderships to other brokers.

Rules: ControlledShutdownRequest and ControlledShutdownResponse of Kafka 3.9's message schemas; KIP-380
(broker epoch).
"""

from dataclasses import dataclass

from klog.protocol.interbroker.struct import Struct, kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(Struct, api_key=7, version=3):
    """From a broker that wants to stop. `broker_epoch` is the czxid of its registration."""

    broker_id: int = kafka("int32")
    broker_epoch: int = kafka("int64", default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = kafka("string")
    partition_index: int = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(Struct, api_key=7, version=3):
    """From the controller. Without remaining partitions the broker may stop."""

    error_code: int = kafka("error_code")
    remaining_partitions: tuple[RemainingPartition, ...]
