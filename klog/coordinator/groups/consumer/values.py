"""Members, requests and answers of consumer groups, as plain values.

Rules: KIP-848; Kafka's ConsumerGroupHeartbeat and ConsumerGroupDescribe messages, without what differs
between their versions. Times and timeouts are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from klog.formats.names import partitions_by_topic
from klog.protocol.error_codes import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
NOT_GIVEN: Final = -1

TopicId: TypeAlias = str
"""The id of a topic in Kafka's text form."""

AssignedPartition: TypeAlias = tuple[TopicId, int]
Partitions: TypeAlias = frozenset[AssignedPartition]

NO_PARTITIONS: Final[Partitions] = frozenset()


def by_topic(partitions: Iterable[AssignedPartition]) -> dict[TopicId, list[int]]:
    """The partitions of each topic, in order."""
    return partitions_by_topic(sorted(partitions))


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment, under the numbers that records have."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ConsumerGroupState(Enum):
    """The states of a consumer group, under the names that ConsumerGroupDescribe answers."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicMember(NamedTuple):
    """What a member of the classic protocol has besides: its session timeout and its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberSubscription(NamedTuple):
    """A member, and what it subscribes to: topics by name, and by a regular expression (empty: none).

    `assignor` is the one that it asks for. `classic` is set if it uses the classic protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = NOT_GIVEN
    assignor: str | None = None
    classic: ClassicMember | None = None


class CurrentAssignment(NamedTuple):
    """What a member has: the partitions that it may read, and those that it was asked to give up."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, when, and in which version of the metadata."""

    topics: tuple[str, ...]
    metadata_version: int = 0
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Configs of consumer groups: `group.consumer.*`.

    `assignors` are names, the first is used if members ask for none. A classic group may be `upgraded` to a
    consumer group, and a consumer group `downgraded`, while they have members.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    may_upgrade: bool = True
    may_downgrade: bool = True


Describable = Callable[[Collection[str]], Collection[str]]
"""Gives those of some topics that a client may describe."""


def every_topic(names: Collection[str]) -> Collection[str]:
    """For a client that may describe all topics."""
    return names


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """ConsumerGroupHeartbeat. None, and -1 as the timeout, mean that nothing changed since the last one.

    `may_lack_id`: version 0, in which the coordinator makes the id; `new_member_id` is that id. `describable`
    are the topics that a regular expression of the group may match.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_GIVEN
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    may_lack_id: bool = False
    new_member_id: str = ""
    describable: Describable = every_topic

    @property
    def is_full(self) -> bool:
        """Whether the member tells everything, as it does when it does not know what the broker knows."""
        subscribes = self.topics is not None or self.regex is not None
        return subscribes and self.rebalance_timeout_ms != NOT_GIVEN and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat. `assignment` is None if it did not change."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


HeartbeatReply = Callable[[HeartbeatResult], None]


class RefusedError(Exception):
    """A request that the group refuses: the error code, and a message for the client."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class DescribedConsumer(NamedTuple):
    """A member as ConsumerGroupDescribe shows it. Partitions are by topic id."""

    subscription: MemberSubscription
    epoch: int
    assigned: Mapping[TopicId, Sequence[int]]
    target: Mapping[TopicId, Sequence[int]]


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """A group as ConsumerGroupDescribe shows it. `topic_names` has the names of all its topic ids."""

    error: ErrorCode
    group_id: str
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()
