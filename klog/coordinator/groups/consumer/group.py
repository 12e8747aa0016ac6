"""A consumer group: takes the heartbeats of its members (KIP-848).

Rules: Kafka's `GroupMetadataManager`. An event and a time go in. Answers, records to write and timers
come out as effects. There is no I/O and no lock here: the caller serialises the events of a group.
"""

from __future__ import annotations

from klog.coordinator.groups.consumer.classic_members import ClassicMembers
from klog.coordinator.groups.consumer.records import RecordKind, write_key
from klog.coordinator.groups.consumer.values import (
    JOIN_EPOCH,
    NOT_GIVEN,
    STATIC_LEAVE_EPOCH,
    CurrentAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    HeartbeatReply,
    HeartbeatRequest,
    HeartbeatResult,
    MemberSubscription,
    Partitions,
    RefusedError,
    by_topic,
)
from klog.coordinator.groups.offsets.offsets import GroupView
from klog.coordinator.groups.values import (
    CONSUMER_KIND,
    CONSUMER_PROTOCOL,
    NO_TIMESTAMP,
    GroupState,
    Identity,
    ListedGroup,
    Now,
)
from klog.protocol.error_codes import ErrorCode


class ConsumerGroup(ClassicMembers):
    """One group. Not safe for threads."""

    # -- heartbeats ------------------------------------------------------------------------------------------

    def consumer_heartbeat(self, asked: HeartbeatRequest, reply: HeartbeatReply, now: Now) -> None:
        """A member joins, is alive, or leaves. `reply` is called when the group's new state is in the log."""
        leaves = asked.member_epoch < JOIN_EPOCH
        self._answer(
            reply,
            lambda: self._leave_consumer(asked) if leaves else self._beat(asked, now),
            HeartbeatResult,
        )

    def _beat(self, asked: HeartbeatRequest, now: Now) -> HeartbeatResult:
        joins = asked.member_epoch == JOIN_EPOCH
        member_id = asked.member_id or asked.new_member_id
        known = self._find(member_id, asked, joins=joins)
        before = self.records.current_of(member_id)
        member = self._update(member_id, known, asked)
        self._refresh(known, member, now, asked.describable)
        after = self._reconcile(member, asked.owned, now)
        self._start_session(member, now)
        tells_all = joins or asked.is_full or after.assigned != before.assigned
        return HeartbeatResult(
            ErrorCode.NONE,
            None,
            member_id,
            after.epoch,
            self.settings.heartbeat_interval_ms,
            after.assigned if tells_all else None,
        )

    def _find(self, member_id: str, asked: HeartbeatRequest, *, joins: bool) -> MemberSubscription | None:
        """The member that sends a heartbeat; None if it is new. Raises `RefusedError`."""
        self._require_space_for(member_id)
        if joins and asked.instance_id is not None:
            return self._find_static(member_id, asked.instance_id)
        known = self._known(member_id, None if joins else asked.instance_id, may_be_new=joins)
        if known is not None and not joins:
            _check_epoch(self.records.current_of(member_id), asked.member_epoch, asked.owned)
        return known

    def _find_static(self, member_id: str, instance_id: str) -> MemberSubscription | None:
        known = self.records.static_member(instance_id)
        if known is None or known.member_id == member_id:
            return known
        left = self.records.current_of(known.member_id).epoch == STATIC_LEAVE_EPOCH
        if known.classic is None and not left:
            message = (
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by another member."
            )
            raise RefusedError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        return self._replace(known, member_id)

    def _update(
        self, member_id: str, known: MemberSubscription | None, asked: HeartbeatRequest
    ) -> MemberSubscription:
        """Take over what a member says of itself."""
        old = known or MemberSubscription(member_id)
        timeout_ms = asked.rebalance_timeout_ms
        updated = old._replace(
            instance_id=old.instance_id if asked.instance_id is None else asked.instance_id,
            rack_id=old.rack_id if asked.rack_id is None else asked.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            topics=old.topics if asked.topics is None else tuple(sorted(set(asked.topics))),
            regex=old.regex if asked.regex is None else asked.regex,
            rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
            assignor=old.assignor if asked.assignor is None else asked.assignor,
            classic=None,
        )
        if updated != known:
            self.records.put(RecordKind.MEMBER, member_id, updated)
        return updated

    # -- leaving ---------------------------------------------------------------------------------------------

    def _leave_consumer(self, asked: HeartbeatRequest) -> HeartbeatResult:
        member = self._known(asked.member_id, asked.instance_id)
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"{asked.member_id} is no member of the group.")
        if asked.member_epoch == STATIC_LEAVE_EPOCH:
            # It comes back: its partitions wait for it until its session ends.
            current = self.records.current_of(member.member_id)
            away = CurrentAssignment(STATIC_LEAVE_EPOCH, current.epoch, assigned=current.assigned)
            self.records.put(RecordKind.CURRENT, member.member_id, away)
        else:
            self._remove(member.member_id)
        return HeartbeatResult(ErrorCode.NONE, None, asked.member_id, asked.member_epoch)

    # -- offsets ---------------------------------------------------------------------------------------------

    def commit_error(self, identity: Identity) -> ErrorCode:
        """Why offsets of this sender are not accepted now.

        A client that is no member may commit while the group is empty: it assigns partitions by itself.
        """
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if identity.generation_id < 0 and not self.records.members:
            return ErrorCode.NONE
        member = self.records.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not identity.knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._epoch_error(member, identity.generation_id)

    def transactional_commit_error(self, identity: Identity) -> ErrorCode:
        """Why offsets of this sender are not accepted in a transaction. It need not name its member."""
        if identity.generation_id < 0 and not identity.member_id and not self.is_dead:
            return ErrorCode.NONE
        return self.commit_error(identity)

    def fetch_error(self, identity: Identity) -> ErrorCode:
        """Why this sender gets no offsets. One that names neither a member nor an epoch gets all."""
        if not identity.member_id and identity.generation_id < 0:
            return ErrorCode.NONE
        member = self.records.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._epoch_error(member, identity.generation_id)

    def _epoch_error(self, member: MemberSubscription, epoch: int) -> ErrorCode:
        if self.records.current_of(member.member_id).epoch == epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def renew_session(self, member_id: str, now: Now) -> None:
        """A commit is no sign of life here: only heartbeats are."""

    # -- views and the end -----------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.records.members

    protocol_type = CONSUMER_PROTOCOL

    def uses(self, topic: str) -> bool:
        """Whether members subscribe to a topic."""
        return topic in self.records.subscribed

    def view(self) -> GroupView:
        """What the expiry of offsets depends on: topics that nobody subscribes to expire."""
        return GroupView(GroupState.STABLE, NO_TIMESTAMP, CONSUMER_PROTOCOL, self.records.subscribed)

    def die(self, _error: ErrorCode, _now: Now) -> None:
        """The group is deleted or moves to another coordinator. Whoever waits is answered by its write."""
        self.is_dead = True
        self._deadlines.clear()

    def tombstone_keys(self) -> list[bytes]:
        """The keys of all records of the group."""
        return [write_key(self.group_id, kind, name) for kind, name in self.records.written_keys()]

    def listed(self) -> ListedGroup:
        """The group as ListGroups shows it."""
        return ListedGroup(self.group_id, CONSUMER_PROTOCOL, self.state.value, CONSUMER_KIND)

    def described(self) -> DescribedConsumerGroup:
        """The group as ConsumerGroupDescribe shows it."""
        records = self.records
        members = [
            DescribedConsumer(
                member,
                records.current_of(member_id).epoch,
                by_topic(records.current_of(member_id).assigned),
                by_topic(records.targets.get(member_id, ())),
            )
            for member_id, member in records.members.items()
        ]
        return DescribedConsumerGroup(
            ErrorCode.NONE,
            self.group_id,
            None,
            self.state.value,
            records.epoch,
            records.assignment_epoch,
            self.assignor,
            members,
        )


def _check_epoch(current: CurrentAssignment, epoch: int, owned: Partitions | None) -> None:
    """Raises `RefusedError` if a member has another epoch than the one that it was sent last."""
    if epoch == current.epoch:
        return
    # The answer that told the new epoch may be lost. The member must have nothing that it should not have.
    is_previous = epoch == current.previous_epoch and epoch < current.epoch
    if is_previous and owned is not None and owned <= current.assigned:
        return
    side = "larger" if epoch > current.epoch else "smaller"
    message = (
        f"The consumer group member has a {side} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin."
    )
    raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH, message)
