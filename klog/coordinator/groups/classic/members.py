"""The members of a group: who they are, which protocols they support, who of them waits, and who leads.

Rules: Kafka's `GroupMetadata` and `MemberMetadata`; static members of KIP-345.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from klog.coordinator.groups.values import (
    NO_MEMBER,
    DescribedMember,
    Identity,
    JoinedMember,
    JoinResult,
    LeavingMember,
    Protocols,
    SyncResult,
)
from klog.protocol.error_codes import ErrorCode


@dataclass(slots=True)
class Member:
    """A member of a group.

    `is_new` until it is part of a generation. `deadline_ms` is when its session ends if it shows no sign of
    life (0: no timer runs). `join_reply` and `sync_reply` are set while it waits in JoinGroup or SyncGroup.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    deadline_ms: int = 0
    join_reply: Callable[[JoinResult], None] | None = None
    sync_reply: Callable[[SyncResult], None] | None = None

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id."""
        return self.instance_id is not None

    @property
    def outlives_its_session(self) -> bool:
        """Whether it stays though it sends no heartbeats, because it waits for an answer of the group."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; empty if it does not support that."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


class Members:
    """All members of one group, with the ids that were handed out to members that have not joined yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        self.waiting_to_join = 0  # how many members wait in JoinGroup
        self.pending: dict[str, int] = {}  # ids that were handed out, and when they are given up
        self.pending_sync: set[str] = set()
        self.leader_id: str | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> Member | None:
        """The member with this id."""
        return self._by_id.get(member_id)

    def static_member_id(self, instance_id: str) -> str | None:
        """The id of the member that has this instance id."""
        return self._static.get(instance_id)

    @property
    def all_wait_to_join(self) -> bool:
        """Whether every member waits in JoinGroup, and no id that was handed out is unused."""
        return self.waiting_to_join == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # -- who is a member -------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._count(member.protocols, 1)
        self.waiting_to_join += member.join_reply is not None
        self.pending.pop(member.member_id, None)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Forget a member or a pending id. If it led, another member leads."""
        self.pending.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        self._count(member.protocols, -1)
        self.waiting_to_join -= member.join_reply is not None
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._by_id), None)
        return member

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member another id. It keeps its assignment, and leads on if it led."""
        old = member.member_id
        del self._by_id[old]
        member.member_id = new_member_id
        member.deadline_ms = 0  # its timer had the old id
        self._by_id[new_member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = new_member_id
        if old in self.pending_sync:
            self.pending_sync.discard(old)
            self.pending_sync.add(new_member_id)
        if self.leader_id == old:
            self.leader_id = new_member_id

    def update(
        self, member: Member, protocols: Protocols, *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Take over what a member says of itself when it joins again."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def wait_to_join(self, member: Member, reply: Callable[[JoinResult], None]) -> None:
        """Let a member wait in JoinGroup. A request in which it waited before is forgotten, as in Kafka."""
        self.waiting_to_join += member.join_reply is None
        member.join_reply = reply

    def stop_waiting(self, member: Member) -> Callable[[JoinResult], None] | None:
        """The member waits no longer; what it waited with, None if it did not wait."""
        reply, member.join_reply = member.join_reply, None
        self.waiting_to_join -= reply is not None
        return reply

    def error_of(self, identity: Identity | LeavingMember) -> ErrorCode:
        """Why a request is not from a member of this group."""
        if identity.instance_id is not None:
            current = self._static.get(identity.instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != identity.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if identity.member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    # -- protocols and leader --------------------------------------------------------------------------------

    def _count(self, protocols: Protocols, step: int) -> None:
        # A name that a member gives twice counts once.
        for name in {name for name, _ in protocols}:
            self._supported[name] += step

    def _supported_by_all(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self._supported[name] == len(self._by_id))

    def have_in_common(self, protocols: Protocols) -> bool:
        """Whether all members support at least one of these protocols."""
        return any(self._supported_by_all(name for name, _ in protocols))

    def select_protocol(self) -> str:
        """The protocol for which most members vote.

        Each votes for the first in its list that all members support. Of equals the first that got a vote
        wins. Raises `ValueError` if there is none: `have_in_common` is asked before a member is added.
        """
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(self._supported_by_all(name for name, _ in member.protocols))] += 1
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Let a member lead that waits in JoinGroup; False if nobody waits."""
        leader = self._by_id.get(self.leader_id or NO_MEMBER)
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self:
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    # -- views -----------------------------------------------------------------------------------------------

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """All members as the leader sees them."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self
        )

    def described(self, protocol_name: str | None, *, in_detail: bool) -> tuple[DescribedMember, ...]:
        """All members as DescribeGroups shows them; `in_detail` with metadata and assignments."""
        return tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol_name) if in_detail else b"",
                member.assignment if in_detail else b"",
            )
            for member in self
        )
