"""ListOffsets, version 0: several offsets, of segments by the time of their last write.

Rules: ListOffsetsRequest and ListOffsetsResponse of Kafka 3.9's message schemas; KIP-79 (what came after it).
"""

from dataclasses import dataclass

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartition(LegacyStruct):
    """A partition, the time, and the maximal number of offsets."""

    partition_index: int = kafka("int32")
    timestamp: int = kafka("int64")
    max_num_offsets: int = kafka("int32", default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopic(LegacyStruct):
    """The partitions of one topic."""

    name: str = kafka("string")
    partitions: tuple[ListOffsetsPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest(LegacyStruct, api_key=2, version=0):
    """From a client (replica id -1) or a broker to the leader."""

    replica_id: int = kafka("int32")
    topics: tuple[ListOffsetsTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartitionResponse(LegacyStruct):
    """The offsets of one partition, the largest first."""

    partition_index: int = kafka("int32")
    error_code: int = kafka("error_code")
    old_style_offsets: tuple[int, ...] = kafka("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopicResponse(LegacyStruct):
    """The partitions of one topic."""

    name: str = kafka("string")
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse(LegacyStruct, api_key=2, version=0):
    """From the broker."""

    topics: tuple[ListOffsetsTopicResponse, ...]
