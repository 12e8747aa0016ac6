"""CreateTopics, version 1: with `validate_only` and error messages.

Rules: CreateTopicsRequest and CreateTopicsResponse of Kafka 3.9's message schemas.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.create_topics_v0 import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from klog.protocol.legacy_versions.struct import MILLISECONDS, LegacyStruct

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest(LegacyStruct, api_key=19, version=1):
    """From a client to the controller."""

    topics: tuple[CreatableTopic, ...]
    timeout: timedelta = field(metadata=MILLISECONDS)
    validate_only: bool = kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult(LegacyStruct):
    """The result for one topic."""

    name: str = kafka("string")
    error_code: int = kafka("error_code")
    error_message: str | None = kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse(LegacyStruct, api_key=19, version=1):
    """From the controller."""

    topics: tuple[CreatableTopicResult, ...]
