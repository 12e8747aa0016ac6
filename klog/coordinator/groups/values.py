"""Requests and answers of the group coordinator, as plain values.

Rules: Kafka's JoinGroup, SyncGroup, LeaveGroup, OffsetCommit and OffsetFetch messages, without what differs
between their versions. Times and timeouts are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from klog.protocol.error_codes import ErrorCode

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""
NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
CONSUMER_PROTOCOL: Final = "consumer"

# The first version of OffsetCommit and OffsetFetch in which members know their epochs (KIP-848).
EPOCHS_FROM: Final = 9

# The types of groups, under the names that ListGroups answers.
CLASSIC_KIND: Final = "classic"
CONSUMER_KIND: Final = "consumer"


Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors with a member's metadata for each, in the order that the member prefers."""


class Now(NamedTuple):
    """The time of an event, in ms: by the wall clock, for records, and by a clock that is never set back."""

    wall_ms: int
    timer_ms: int


class GroupState(Enum):
    """The states of a group, under the names that DescribeGroups answers."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Identity(NamedTuple):
    """Who sends a request: a member of a generation. A static member has an instance id (KIP-345).

    For a member of a consumer group the generation is its epoch, which requests of old versions do not know.
    """

    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    instance_id: str | None = None
    knows_epochs: bool = True


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member that joins.

    `new_member_id` is the id that it is given if it has none, made unique by the caller. A client that
    `knows_required_ids` (version 4) is told its id first, and joins with it (KIP-394). One that
    `may_skip_assignment` (version 9) can lead a group without making assignments (KIP-814).
    """

    member_id: str
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    instance_id: str | None = None
    knows_required_ids: bool = True
    may_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    """A member as the leader sees it: `metadata` is that of the selected protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a JoinGroup request. `members` is for the leader only."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member that asks for its assignment; the leader brings those of all members.

    `protocol_type` and `protocol_name` are None in versions that do not have them.
    """

    identity: Identity
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncResult(NamedTuple):
    """The answer to a SyncGroup request."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves; a static member may be named by its instance id alone."""

    member_id: str
    instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for one partition.

    `expire_timestamp_ms` is set by old clients only (OffsetCommit versions 2 to 4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


class FetchedOffset(NamedTuple):
    """The answer to OffsetFetch for one partition."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it. Metadata and assignment are empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as DescribeGroups shows it."""

    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()


class ListedGroup(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    kind: str = CLASSIC_KIND
