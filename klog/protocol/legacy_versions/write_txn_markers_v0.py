"""WriteTxnMarkers, version 0: what version 1 says, without compact types.

Rules: WriteTxnMarkersRequest and WriteTxnMarkersResponse of Kafka 3.9's message schemas; KIP-98.
"""

from dataclasses import dataclass

from klog.protocol.interbroker.struct import kafka
from klog.protocol.legacy_versions.struct import LegacyStruct


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopic(LegacyStruct):
    """The partitions of one topic that get the marker."""

    name: str = kafka("string")
    partition_indexes: tuple[int, ...] = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarker(LegacyStruct):
    """How the transaction of one producer ends: true is a commit."""

    producer_id: int = kafka("int64")
    producer_epoch: int = kafka("int16")
    transaction_result: bool = kafka("bool")
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int = kafka("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersRequest(LegacyStruct, api_key=27, version=0):
    """From a transaction coordinator or an administrator."""

    markers: tuple[WritableTxnMarker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult(LegacyStruct):
    """What became of the marker in one partition."""

    partition_index: int = kafka("int32")
    error_code: int = kafka("error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult(LegacyStruct):
    """The partitions of one topic."""

    name: str = kafka("string")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult(LegacyStruct):
    """The partitions of one producer's marker."""

    producer_id: int = kafka("int64")
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse(LegacyStruct, api_key=27, version=0):
    """From the broker."""

    markers: tuple[WritableTxnMarkerResult, ...]
