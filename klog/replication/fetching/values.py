"""The values of a follower's fetching: where it starts, its settings, its requests and their answers.

Rules: Kafka's `AbstractFetcherThread` and `RemoteLeaderEndPoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from klog.config.kafka_versions import is_before_internal
from klog.formats.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from klog.formats.names import TopicPartition
from klog.protocol.fetch_request import FetchRequest
from klog.protocol.fetch_response import FetchResponse
from klog.storage.log.partition_log import PartitionLog

# Below this internal version of the protocol, a Fetch answer does not tell where the logs diverge (KIP-595).
_DIVERGENCE_IN_FETCH_FROM: Final = "2.7-IV1"
# (internal version from which on, Fetch version), from Kafka's `MetadataVersion.fetchRequestVersion`.
_FETCH_VERSIONS: Final = (
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    (_DIVERGENCE_IN_FETCH_FROM, 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
)
_OLDEST_FETCH_VERSION: Final = 4


def fetch_version(inter_broker_version: str) -> int:
    """The version of Fetch between brokers for an `inter.broker.protocol.version`."""
    for internal, version in _FETCH_VERSIONS:
        if not is_before_internal(inter_broker_version, internal):
            return version
    return _OLDEST_FETCH_VERSION


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What all fetchers of a broker share; the names are those of the configs.

    `max_version` is the highest version of Fetch that may be sent. `truncates_on_fetch` is False if leaders
    have to be asked by OffsetForLeaderEpoch where the logs diverge.
    """

    broker_id: int
    max_wait_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 << 20
    max_bytes: int = 1 << 20
    backoff_ms: int = 1000
    max_version: int = 17
    truncates_on_fetch: bool = True

    @classmethod
    def for_protocol(cls, broker_id: int, inter_broker_version: str, **limits: int) -> FetchSettings:
        """The settings for an `inter.broker.protocol.version`."""
        truncates = not is_before_internal(inter_broker_version, _DIVERGENCE_IN_FETCH_FROM)
        version = fetch_version(inter_broker_version)
        return cls(broker_id, **limits, max_version=version, truncates_on_fetch=truncates)


class FetchStart(NamedTuple):
    """Where to begin to fetch a partition: the leader epoch to fetch in, and the first offset.

    An offset below 0 is not known: the leader is asked for it.
    """

    leader_epoch: int
    offset: int


class FollowerQuota(Protocol):
    """The throttle of what followers fetch (`follower.replication.throttled.rate`)."""

    def is_throttled(self, key: TopicPartition) -> bool:
        """Whether the partition is in `follower.replication.throttled.replicas`."""

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count bytes of throttled partitions."""

    def exceeded(self, now_ms: int) -> bool:
        """Whether the rate is above the limit."""


# -- requests, as values ---------------------------------------------------------------------------------


class Fetch(NamedTuple):
    """Send this Fetch request in `version`, or in the highest lower one that the leader supports."""

    version: int
    request: FetchRequest


class EpochAsked(NamedTuple):
    """Ask where an epoch ends, in the leader epoch that the follower knows."""

    current_leader_epoch: int
    leader_epoch: int


class AskEpochEnds(NamedTuple):
    """Send an OffsetForLeaderEpoch request, as replica `replica_id`."""

    replica_id: int
    partitions: Mapping[TopicPartition, EpochAsked]


class AskOffsets(NamedTuple):
    """Send a ListOffsets request as replica `replica_id`, for `timestamp` (LATEST or EARLIEST).

    `partitions` gives the leader epoch that the follower knows of each.
    """

    replica_id: int
    timestamp: int
    partitions: Mapping[TopicPartition, int]


FetcherRequest: TypeAlias = Fetch | AskEpochEnds | AskOffsets


# -- answers ---------------------------------------------------------------------------------------------


class EpochAnswered(NamedTuple):
    """A partition's part of the answer to `AskEpochEnds`."""

    error_code: int
    leader_epoch: int = UNDEFINED_EPOCH
    end_offset: int = UNDEFINED_OFFSET


class OffsetAnswered(NamedTuple):
    """A partition's part of the answer to `AskOffsets`."""

    error_code: int
    offset: int = UNDEFINED_OFFSET


FetcherAnswer: TypeAlias = (
    FetchResponse | Mapping[TopicPartition, EpochAnswered] | Mapping[TopicPartition, OffsetAnswered]
)
"""A Fetch response, or what each partition was answered to one of the other requests."""


@dataclass(slots=True)
class Progress:
    """What an answer has changed: the bytes of records taken for each partition that had some, and the
    partitions whose high watermark moved.
    """

    received: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermark_moved: list[TopicPartition] = field(default_factory=list)

    @property
    def record_bytes(self) -> int:
        """Bytes of records taken for all partitions."""
        return sum(self.received.values())


Truncated: TypeAlias = Callable[[PartitionLog], None]
"""Is called for each log that was truncated, so that the checkpoints of its directory are written."""
