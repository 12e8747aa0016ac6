"""A group of consumers: takes the requests of its members.

Rules: Kafka's `GroupCoordinator`; KIP-62, KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member
ids are required), KIP-814. An event and a time go in. Answers, records to write and timers come out as
effects. There is no I/O and no lock here: the caller serialises the events of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.coordinator.groups.classic.members import Member
from klog.coordinator.groups.classic.rebalance import (
    NEW_MEMBER_TIMEOUT_MS,
    GroupLimits,
    JoinReply,
    Rebalance,
    SyncReply,
)
from klog.coordinator.groups.effects import Reply, Schedule, WriteGroup, member_timer
from klog.coordinator.groups.offsets.offsets import GroupView
from klog.coordinator.groups.records import GroupMetadata, group_key
from klog.coordinator.groups.values import (
    NO_MEMBER,
    DescribedGroup,
    GroupState,
    Identity,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    Now,
    Protocols,
    SyncRequest,
    SyncResult,
)
from klog.protocol.error_codes import ErrorCode


class Group(Rebalance):
    """One group. Not safe for threads."""

    # -- joining ---------------------------------------------------------------------------------------------

    def join(self, asked: JoinRequest, reply: JoinReply, now: Now) -> None:
        """A member joins. Its session timeout is within the broker's limits."""
        if not self._has_space_for(asked.member_id):
            self.members.remove(asked.member_id)
            self._refuse(reply, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif self.state is GroupState.DEAD:
            self._refuse(reply, ErrorCode.COORDINATOR_NOT_AVAILABLE, asked.member_id)
        elif not self._has_protocol_for(asked):
            self._refuse(reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, asked.member_id)
        elif asked.member_id:
            self._join_with_id(asked, reply, now)
        else:
            self._join_without_id(asked, reply, now)
        self._complete_join_if_all_wait(now)

    def _has_space_for(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            already_waits = member is not None and member.join_reply is not None
            return already_waits or self.members.waiting_to_join < self._limits.max_size
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member is not None or len(self.members) < self._limits.max_size
        return True

    def _has_protocol_for(self, asked: JoinRequest) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(asked.protocol_type and asked.protocols)
        return self.protocol_type == asked.protocol_type and self.members.have_in_common(asked.protocols)

    def _join_without_id(self, asked: JoinRequest, reply: JoinReply, now: Now) -> None:
        member_id = asked.new_member_id
        if asked.instance_id is not None:
            known = self.members.get(self.members.static_member_id(asked.instance_id) or NO_MEMBER)
            if known is not None:
                self._replace_static(known, asked, reply, now)
                return
        elif asked.knows_required_ids:
            due_ms = now.timer_ms + asked.session_timeout_ms
            self.members.pending[member_id] = due_ms
            self.effects.append(Schedule(member_timer(member_id), due_ms))
            self._refuse(reply, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return
        self._add(member_id, asked, reply, now)

    def _join_with_id(self, asked: JoinRequest, reply: JoinReply, now: Now) -> None:
        if asked.member_id in self.members.pending and asked.instance_id is None:
            self._add(asked.member_id, asked, reply, now)
            return
        error = self.members.error_of(Identity(asked.member_id, instance_id=asked.instance_id))
        member = self.members.get(asked.member_id)
        if error or member is None:
            self._refuse(reply, error, asked.member_id)
            return
        changed = member.protocols != asked.protocols
        is_leader = self.members.leader_id == member.member_id
        if self.state is GroupState.COMPLETING_REBALANCE and not changed:
            # The answer was lost on its way.
            self.effects.append(Reply(reply, self._joined(member)))
        elif self.state is GroupState.STABLE and not changed and not is_leader:
            self.effects.append(Reply(reply, self._joined(member)))
        else:
            self._update(member, asked)
            self.members.wait_to_join(member, reply)
            self._rebalance_if_possible(now)

    def _add(self, member_id: str, asked: JoinRequest, reply: JoinReply, now: Now) -> None:
        member = Member(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.client_host,
            asked.rebalance_timeout_ms,
            asked.session_timeout_ms,
            asked.protocols,
            is_new=True,
            join_reply=reply,
        )
        if self.state is GroupState.PREPARING_REBALANCE and self.generation_id == 0:
            self._joined_meanwhile = True
        if not len(self.members):
            self.protocol_type = asked.protocol_type
        self.members.add(member)
        self._extend_session(member, now.timer_ms + NEW_MEMBER_TIMEOUT_MS)
        self._rebalance_if_possible(now)

    def _update(self, member: Member, asked: JoinRequest) -> None:
        self.members.update(
            member,
            asked.protocols,
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            session_timeout_ms=asked.session_timeout_ms,
        )

    def _refuse(self, reply: JoinReply, error: ErrorCode, member_id: str) -> None:
        self.effects.append(Reply(reply, JoinResult(error, member_id)))

    # -- static members that come again ----------------------------------------------------------------------

    def _replace_static(self, member: Member, asked: JoinRequest, reply: JoinReply, now: Now) -> None:
        """A static member has started again: it takes its own place under a new member id."""
        old_id, old_leader_id = member.member_id, self.members.leader_id or NO_MEMBER
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self.members.rename(member, asked.new_member_id)
        self._update(member, asked)
        self.members.wait_to_join(member, reply)
        self._renew_session(member, now)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be making assignments for the old id.
            self._prepare_rebalance(now)
        elif self.state is GroupState.STABLE:
            if self.members.select_protocol() != self.protocol_name:
                self._prepare_rebalance(now)
                return

            def written(error: ErrorCode, then: Now) -> None:
                if error:
                    self._restore_static(member, old_id, before, then)
                    result = self._joined_again(member, old_leader_id, error=error)
                    self.effects.append(Reply(reply, result))
                elif asked.may_skip_assignment:
                    self._answer_join(member, self._joined_again(member, self.members.leader_id or NO_MEMBER))
                else:
                    # An old client that is told to lead would make assignments. It is told that the
                    # member led which is gone.
                    self._answer_join(member, self._joined_again(member, old_leader_id))

            self.effects.append(WriteGroup(self.metadata(), written))

    def _joined_again(self, member: Member, leader_id: str, error: ErrorCode = ErrorCode.NONE) -> JoinResult:
        leads = not error and member.member_id == leader_id
        return JoinResult(
            error,
            NO_MEMBER if error else member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            leader_id,
            self.members.joined(self.protocol_name) if leads else (),
            skip_assignment=leads,
        )

    def _restore_static(
        self, member: Member, old_id: str, before: tuple[Protocols, int, int], now: Now
    ) -> None:
        if self.members.get(member.member_id) is not member:
            return
        protocols, rebalance_timeout_ms, session_timeout_ms = before
        self.members.stop_waiting(member)
        self.members.update(
            member,
            protocols,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
        )
        self.members.rename(member, old_id)
        self._renew_session(member, now)

    # -- assignments -----------------------------------------------------------------------------------------

    def error_of(self, identity: Identity) -> ErrorCode:
        """Why a request is not from a member of the present generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.error_of(identity)
        if not error and identity.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def sync(self, asked: SyncRequest, reply: SyncReply, now: Now) -> None:
        """A member asks for its assignment. The leader brings all."""
        member = self.members.get(asked.identity.member_id)
        error = self.error_of(asked.identity) or self._protocol_error(asked)
        if not error and self.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if not error and self.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error or member is None:
            self.effects.append(Reply(reply, SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID)))
            return
        self.members.pending_sync.discard(member.member_id)
        member.sync_reply = reply
        if self.state is GroupState.STABLE:
            self._answer_assignment(member, now)
        elif member.member_id == self.members.leader_id:
            self._write_assignments(asked.assignments)

    def _protocol_error(self, asked: SyncRequest) -> ErrorCode:
        for theirs, ours in (
            (asked.protocol_type, self.protocol_type),
            (asked.protocol_name, self.protocol_name),
        ):
            if theirs is not None and theirs != ours:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _write_assignments(self, given: Mapping[str, bytes]) -> None:
        assignments = {member.member_id: given.get(member.member_id, b"") for member in self.members}
        generation_id = self.generation_id

        def written(error: ErrorCode, now: Now) -> None:
            # Members may have come or gone while the record was written. Then a rebalance has begun.
            if self.state is not GroupState.COMPLETING_REBALANCE or self.generation_id != generation_id:
                return
            if error:
                self._forget_assignments(error, now)
                self._rebalance_if_possible(now)
                return
            for member in self.members:
                member.assignment = assignments.get(member.member_id, b"")
            self._enter(GroupState.STABLE, now)
            for member in self.members:
                if member.sync_reply is not None:
                    self._answer_assignment(member, now)

        self.effects.append(WriteGroup(self.metadata(assignments), written))

    def _answer_assignment(self, member: Member, now: Now) -> None:
        result = SyncResult(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol_name)
        self._answer_sync(member, result)
        self._renew_session(member, now)

    def commit_error(self, identity: Identity) -> ErrorCode:
        """Why offsets of this sender are not accepted now.

        A client that is no member may commit while the group is empty: it assigns partitions by itself.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if identity.generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if identity.generation_id < 0 and not identity.member_id and identity.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.error_of(identity)
        if not error and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def transactional_commit_error(self, identity: Identity) -> ErrorCode:
        """Why offsets of this sender, as part of a transaction, are not accepted now.

        A producer that names no member is accepted in every state: older clients do not know their member.
        """
        named = identity.generation_id >= 0 or identity.member_id or identity.instance_id is not None
        is_empty = identity.generation_id < 0 and self.state is GroupState.EMPTY
        if self.state is not GroupState.DEAD and (is_empty or not named):
            return ErrorCode.NONE
        return self.error_of(identity)

    # -- signs of life ---------------------------------------------------------------------------------------

    def heartbeat(self, identity: Identity, now: Now) -> ErrorCode:
        """A member is alive; the error tells it to join again."""
        error = self.error_of(identity)
        member = self.members.get(identity.member_id)
        if error or member is None or self.state is GroupState.EMPTY:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        self._renew_session(member, now)
        rebalances = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE

    def leave(self, leaving: Sequence[LeavingMember], now: Now) -> list[ErrorCode]:
        """Members leave; the error of each. The group is not dead."""
        return [self._leave(each, now) for each in leaving]

    def _leave(self, leaving: LeavingMember, now: Now) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id and leaving.instance_id is not None:
            member_id = self.members.static_member_id(leaving.instance_id) or NO_MEMBER
        if member_id in self.members.pending:
            self.members.remove(member_id)
            self._complete_join_if_all_wait(now)
            return ErrorCode.NONE
        error = self.members.error_of(LeavingMember(member_id, leaving.instance_id))
        member = self.members.get(member_id)
        if error or member is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        self._remove_and_rebalance(member, now)
        return ErrorCode.NONE

    # -- answers and views -----------------------------------------------------------------------------------

    def die(self, error: ErrorCode, now: Now) -> None:
        """The group is deleted or moves to another coordinator: all that wait are answered."""
        self._enter(GroupState.DEAD, now)
        self._join_phase = None
        self._sync_due_ms = None
        for member in self.members:
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state is GroupState.EMPTY

    def uses(self, topic: str) -> bool:
        """Whether members subscribe to a topic. If the topics are not known, they may."""
        if self.is_empty:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def view(self) -> GroupView:
        """What the expiry of offsets depends on."""
        return GroupView(self.state, self.state_since_ms, self.protocol_type, self.subscribed_topics)

    def tombstone_keys(self) -> list[bytes]:
        """The keys of the group's records. A group that never had a generation has none."""
        return [group_key(self.group_id)] if self.generation_id > 0 else []

    def described(self) -> DescribedGroup:
        """The group as DescribeGroups shows it."""
        in_detail = self.state is GroupState.STABLE
        return DescribedGroup(
            ErrorCode.NONE,
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            (self.protocol_name or "") if in_detail else "",
            self.members.described(self.protocol_name, in_detail=in_detail),
        )

    def listed(self) -> ListedGroup:
        """The group as ListGroups shows it."""
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value)


def load_group(group_id: str, limits: GroupLimits, metadata: GroupMetadata, now: Now) -> Group:
    """A group as its record says: Stable if it has members, otherwise Empty.

    Sessions start now. A group that has more members than it may have is rebalanced.
    """
    group = Group(group_id, limits, now)
    group.generation_id = metadata.generation_id
    group.protocol_type = metadata.protocol_type
    group.protocol_name = metadata.protocol_name
    group.state_since_ms = metadata.state_timestamp_ms
    for each in metadata.members:
        protocols = ((metadata.protocol_name or "", each.subscription),)
        member = Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout_ms,
            each.session_timeout_ms,
            protocols,
            each.assignment,
        )
        group.members.add(member)
    group.start_loaded(metadata.leader_id, now)
    return group
