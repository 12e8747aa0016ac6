"""DeleteTopics, version 0: the response has no throttle time.

Rules: DeleteTopicsRequest and DeleteTopicsResponse of Kafka 3.9's message schemas; KIP-4.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import MILLISECONDS, LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest(LegacyStruct, api_key=20, version=0):
    """From a client to the controller."""

    topic_names: tuple[str, ...] = kafka("string")
    timeout: timedelta = field(metadata=MILLISECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult(LegacyStruct):
    """The result for one topic."""

    name: str = kafka("string")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse(LegacyStruct, api_key=20, version=0):
    """From the controller."""

    responses: tuple[DeletableTopicResult, ...]
