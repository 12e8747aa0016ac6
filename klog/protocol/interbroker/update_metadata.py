"""UpdateMetadata, version 8: the controller sends brokers the metadata that clients ask for.

Rules: UpdateMetadataRequest and UpdateMetadataResponse of Kafka 3.9's message schemas; KIP-516 (topic ids).
"""

from dataclasses import dataclass, field
from uuid import UUID

from klog.protocol.interbroker.struct import TOPIC_ID, Struct, kafka

# `leader` of a partition whose topic is being deleted. The broker removes it from its metadata.
LEADER_DURING_DELETE = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(Struct):
    """The leader, ISR and replicas of one partition. `zk_version` is its partition epoch."""

    partition_index: int = kafka("int32")
    controller_epoch: int = kafka("int32")
    leader: int = kafka("int32")
    leader_epoch: int = kafka("int32")
    isr: tuple[int, ...] = kafka("int32")
    zk_version: int = kafka("int32")
    replicas: tuple[int, ...] = kafka("int32")
    offline_replicas: tuple[int, ...] = kafka("int32", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(Struct):
    """The partitions of one topic."""

    topic_name: str = kafka("string")
    topic_id: UUID | None = field(metadata=TOPIC_ID)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(Struct):
    """One address of a broker. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    port: int = kafka("int32")
    host: str = kafka("string")
    listener: str = kafka("string")
    security_protocol: int = kafka("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(Struct):
    """A live broker and its addresses."""

    id: int = kafka("int32")
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(Struct, api_key=6, version=8):
    """From the controller to one broker: all live brokers, and the partitions that have changed."""

    controller_id: int = kafka("int32")
    is_kraft_controller: bool = kafka("bool", default=False)
    request_type: int = kafka("int8", default=0, tag=0)
    controller_epoch: int = kafka("int32")
    broker_epoch: int = kafka("int64", default=-1)
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(Struct, api_key=6, version=8):
    """From the broker."""

    error_code: int = kafka("error_code")
