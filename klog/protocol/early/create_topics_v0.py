"""CreateTopics, version 0: no check without creating, and errors without words.

Rules: CreateTopicsRequest and CreateTopicsResponse of Kafka 3.9's message schemas; KIP-4.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from klog.protocol.early.struct import MILLISECONDS, EarlyStruct
from klog.protocol.interbroker.struct import kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableReplicaAssignment(EarlyStruct):
    """The brokers of one partition."""

    partition_index: int = kafka("int32")
    broker_ids: tuple[int, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfig(EarlyStruct):
    """One config of a topic."""

    name: str = kafka("string")
    value: str | None = kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic(EarlyStruct):
    """One topic to create."""

    name: str = kafka("string")
    num_partitions: int = kafka("int32")
    replication_factor: int = kafka("int16")
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest(EarlyStruct):
    """From a client to the controller."""

    __api_key__: ClassVar[int] = 19
    __version__: ClassVar[int] = 0

    topics: tuple[CreatableTopic, ...]
    timeout: timedelta = field(metadata=MILLISECONDS)
    validate_only: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult(EarlyStruct):
    """What became of one topic."""

    name: str = kafka("string")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse(EarlyStruct):
    """The controller's answer."""

    __api_key__: ClassVar[int] = 19
    __version__: ClassVar[int] = 0

    topics: tuple[CreatableTopicResult, ...]
