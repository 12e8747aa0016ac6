"""CreateTopics, version 0: without `validate_only` and without error messages.

Rules: CreateTopicsRequest and CreateTopicsResponse of Kafka 3.9's message schemas; KIP-4.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import MILLISECONDS, LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableReplicaAssignment(LegacyStruct):
    """The brokers of one partition."""

    partition_index: int = kafka("int32")
    broker_ids: tuple[int, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfig(LegacyStruct):
    """One config of a topic."""

    name: str = kafka("string")
    value: str | None = kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic(LegacyStruct):
    """One topic to create."""

    name: str = kafka("string")
    num_partitions: int = kafka("int32")
    replication_factor: int = kafka("int16")
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest(LegacyStruct, api_key=19, version=0):
    """From a client to the controller."""

    topics: tuple[CreatableTopic, ...]
    timeout: timedelta = field(metadata=MILLISECONDS)
    validate_only: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult(LegacyStruct):
    """The result for one topic."""

    name: str = kafka("string")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse(LegacyStruct, api_key=19, version=0):
    """From the controller."""

    topics: tuple[CreatableTopicResult, ...]
