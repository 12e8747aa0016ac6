"""DescribeLogDirs, version 0: on the wire it equals version 1.

Rules: DescribeLogDirsRequest and DescribeLogDirsResponse of Kafka 3.9's message schemas; KIP-113.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import MILLISECONDS, LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribableLogDirTopic(LegacyStruct):
    """The partitions of one topic to describe."""

    topic: str = kafka("string")
    partitions: tuple[int, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest(LegacyStruct, api_key=35, version=0):
    """From a client to a broker. If `topics` is None, all are described."""

    topics: tuple[DescribableLogDirTopic, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsPartition(LegacyStruct):
    """One replica in a directory. `partition_size` is in bytes, `offset_lag` in offsets."""

    partition_index: int = kafka("int32")
    partition_size: int = kafka("int64")
    offset_lag: int = kafka("int64")
    is_future_key: bool = kafka("bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsTopic(LegacyStruct):
    """The replicas of one topic in a directory."""

    name: str = kafka("string")
    partitions: tuple[DescribeLogDirsPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResult(LegacyStruct):
    """One directory."""

    error_code: int = kafka("error_code")
    log_dir: str = kafka("string")
    topics: tuple[DescribeLogDirsTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse(LegacyStruct, api_key=35, version=0):
    """From the broker."""

    throttle_time: timedelta = field(metadata=MILLISECONDS)
    results: tuple[DescribeLogDirsResult, ...]
