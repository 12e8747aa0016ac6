"""DeleteTopics, version 0: the response has no throttle time.

Rules: DeleteTopicsRequest and DeleteTopicsResponse of Kafka 3.9's message schemas; KIP-4.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import MILLISECONDS, LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest(LegacyStruct):
    """From a client to the controller."""

    __api_key__: ClassVar[int] = 20
    __version__: ClassVar[int] = 0

    topic_names: tuple[str, ...] = kafka("string")
    timeout: timedelta = field(metadata=MILLISECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult(LegacyStruct):
    """The result for one topic."""

    name: str = kafka("string")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse(LegacyStruct):
    """From the controller."""

    __api_key__: ClassVar[int] = 20
    __version__: ClassVar[int] = 0

    responses: tuple[DeletableTopicResult, ...]
