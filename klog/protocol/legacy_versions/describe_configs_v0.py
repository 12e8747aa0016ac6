"""DescribeConfigs, version 0: without synonyms, and with a flag in place of the source of a value.

Rules: DescribeConfigsRequest and DescribeConfigsResponse of Kafka 3.9's message schemas; KIP-133.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import MILLISECONDS, LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResource(LegacyStruct):
    """A resource and the names of its configs to describe; None means all."""

    resource_type: int = kafka("int8")
    resource_name: str = kafka("string")
    configuration_keys: tuple[str, ...] | None = kafka("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest(LegacyStruct, api_key=32, version=0):
    """From a client to a broker."""

    include_synonyms: ClassVar[bool] = False
    resources: tuple[DescribeConfigsResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResourceResult(LegacyStruct):
    """One config. Kafka 3.9 never sets `is_default`."""

    name: str = kafka("string")
    value: str | None = kafka("string")
    read_only: bool = kafka("bool")
    is_default: bool = kafka("bool", default=False)
    is_sensitive: bool = kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResult(LegacyStruct):
    """The configs of one resource, or an error."""

    error_code: int = kafka("error_code")
    error_message: str | None = kafka("string")
    resource_type: int = kafka("int8")
    resource_name: str = kafka("string")
    configs: tuple[DescribeConfigsResourceResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse(LegacyStruct, api_key=32, version=0):
    """From the broker."""

    throttle_time: timedelta = field(metadata=MILLISECONDS)
    results: tuple[DescribeConfigsResult, ...]
