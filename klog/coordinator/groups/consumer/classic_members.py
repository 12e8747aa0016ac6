"""Members of a consumer group that use the classic protocol, while a group changes from one to the other.

Rules: KIP-848, "Online migration"; Kafka's `GroupMetadataManager`. Such a member joins and syncs, and is told
the epoch as its generation and what the coordinator assigned. It never leads. A heartbeat tells it to join
again if there is something new for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.client.consumer_protocol import Subscription, decode_subscription
from klog.coordinator.groups.classic.rebalance import JoinReply, SyncReply
from klog.coordinator.groups.consumer.embedded_protocol import assignment_of, by_id
from klog.coordinator.groups.consumer.epochs import rejoin_timer, sync_timer
from klog.coordinator.groups.consumer.membership import Membership
from klog.coordinator.groups.consumer.records import RecordKind
from klog.coordinator.groups.consumer.values import (
    NO_PARTITIONS,
    ClassicMember,
    MemberState,
    MemberSubscription,
    Partitions,
    RefusedError,
)
from klog.coordinator.groups.values import (
    CONSUMER_PROTOCOL,
    NO_MEMBER,
    Identity,
    JoinRequest,
    JoinResult,
    LeavingMember,
    Now,
    SyncRequest,
    SyncResult,
)
from klog.formats.errors import FormatError
from klog.protocol.error_codes import ErrorCode


class ClassicMembers(Membership):
    """The requests of members of the classic protocol."""

    # -- joining ---------------------------------------------------------------------------------------------

    def join(self, asked: JoinRequest, reply: JoinReply, now: Now) -> None:
        """JoinGroup: `reply` is called when the group's new state is in the log."""

        def refusal(error: ErrorCode, _message: str | None = None) -> JoinResult:
            return JoinResult(error, asked.member_id)

        self._answer(reply, lambda: self._join(asked, now), refusal)

    def _join(self, asked: JoinRequest, now: Now) -> JoinResult:
        member_id = asked.member_id or asked.new_member_id
        self._require_space_for(member_id)
        self._require_protocol_of(asked)
        if not asked.member_id and asked.instance_id is None and asked.knows_required_ids:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        subscription = _subscription_of(asked)
        known = self._joining(member_id, asked)
        member = self._update_classic(member_id, known, asked, subscription)
        self._refresh(known, member, now)
        current = self._reconcile(member, self._owned(subscription), now)
        self._cancel(rejoin_timer(member_id))
        self._start_session(member, now)
        self._start(sync_timer(member_id), member.rebalance_timeout_ms, now)
        name = asked.protocols[0][0]
        return JoinResult(ErrorCode.NONE, member_id, current.epoch, CONSUMER_PROTOCOL, name)

    def _require_protocol_of(self, asked: JoinRequest) -> None:
        """Members of the classic protocol must have one in common, because the group may become classic."""
        others = [
            {name for name, _ in member.classic.protocols}
            for member_id, member in self.records.members.items()
            if member.classic is not None and member_id != asked.member_id
        ]
        common = {name for name, _ in asked.protocols}.intersection(*others)
        if asked.protocol_type != CONSUMER_PROTOCOL or not common:
            message = "The member's protocols are not those of the group."
            raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)

    def _joining(self, member_id: str, asked: JoinRequest) -> MemberSubscription | None:
        """The member as it was; None if it is new."""
        if asked.instance_id is None:
            return self._known(member_id, None, may_be_new=True)
        if asked.member_id:
            return self._known(member_id, asked.instance_id)
        known = self.records.static_member(asked.instance_id)
        return None if known is None else self._replace(known, member_id)

    def _update_classic(
        self,
        member_id: str,
        known: MemberSubscription | None,
        asked: JoinRequest,
        subscription: Subscription,
    ) -> MemberSubscription:
        old = known or MemberSubscription(member_id)
        updated = old._replace(
            instance_id=asked.instance_id,
            rack_id=subscription.rack_id or old.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            topics=tuple(sorted(set(subscription.topics))),
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            classic=ClassicMember(asked.session_timeout_ms, asked.protocols),
        )
        if updated != known:
            self.records.put(RecordKind.MEMBER, member_id, updated)
        return updated

    def _owned(self, subscription: Subscription) -> Partitions:
        return by_id(subscription.owned, self.topics())

    # -- assignments -----------------------------------------------------------------------------------------

    def sync(self, asked: SyncRequest, reply: SyncReply, now: Now) -> None:
        """SyncGroup: the member gets what it may read."""

        def refusal(error: ErrorCode, _message: str | None = None) -> SyncResult:
            return SyncResult(error)

        self._answer(reply, lambda: self._sync(asked, now), refusal)

    def _sync(self, asked: SyncRequest, now: Now) -> SyncResult:
        member, classic = self._classic_member(asked.identity)
        name = classic.protocols[0][0] if classic.protocols else None
        for theirs, ours in ((asked.protocol_type, CONSUMER_PROTOCOL), (asked.protocol_name, name)):
            if theirs is not None and theirs != ours:
                raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol is another one.")
        current = self.records.current_of(member.member_id)
        revokes = current.state is MemberState.UNREVOKED_PARTITIONS
        if self.records.epoch > current.epoch and not revokes:
            # There is a new epoch: the member joins again, and then asks for its part in that.
            self._await_rejoin(member, now)
            raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS, "The group has a new epoch.")
        self._cancel(sync_timer(member.member_id))
        self._start_session(member, now)
        assignment = assignment_of(classic, current.assigned, self.topics())
        return SyncResult(ErrorCode.NONE, assignment, asked.protocol_type, asked.protocol_name)

    # -- signs of life ---------------------------------------------------------------------------------------

    def heartbeat(self, identity: Identity, now: Now) -> ErrorCode:
        """Heartbeat: REBALANCE_IN_PROGRESS tells the member to join again."""
        try:
            member, _ = self._classic_member(identity)
        except RefusedError as refused:
            return refused.error
        self._start_session(member, now)
        current = self.records.current_of(member.member_id)
        if current.epoch >= self.records.epoch and (
            current.state is MemberState.STABLE
            or (current.state is MemberState.UNRELEASED_PARTITIONS and self._waits(member.member_id))
        ):
            return ErrorCode.NONE
        self._await_rejoin(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _waits(self, member_id: str) -> bool:
        """Whether another member still has a partition that this one is to get."""
        missing = (
            self.records.targets.get(member_id, NO_PARTITIONS) - self.records.current_of(member_id).assigned
        )
        return any(self.records.owner_of(partition) is not None for partition in missing)

    def _await_rejoin(self, member: MemberSubscription, now: Now) -> None:
        timer = rejoin_timer(member.member_id)
        if timer not in self._deadlines:
            self._start(timer, member.rebalance_timeout_ms, now)

    def _classic_member(self, identity: Identity) -> tuple[MemberSubscription, ClassicMember]:
        """The member that sends a request. Raises `RefusedError`."""
        member = self._known(identity.member_id, identity.instance_id)
        if member is None or member.classic is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not use the classic protocol.")
        if identity.generation_id != self.records.current_of(member.member_id).epoch:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION, "The member is of another generation.")
        return member, member.classic

    def leave(self, leaving: Sequence[LeavingMember], _now: Now) -> list[ErrorCode]:
        """LeaveGroup: the error of each member."""
        errors: list[ErrorCode] = []
        gone: list[str] = []
        for each in leaving:
            try:
                member_id = self._leaving(each)
                repeated = member_id in gone
                errors.append(ErrorCode.UNKNOWN_MEMBER_ID if repeated else ErrorCode.NONE)
                if not repeated:
                    gone.append(member_id)
            except RefusedError as refused:
                errors.append(refused.error)
        if gone:
            self._remove(*gone)
            self._write()
        return errors

    def _leaving(self, leaving: LeavingMember) -> str:
        member_id = leaving.member_id
        if not member_id and leaving.instance_id is not None:
            found = self.records.static_member(leaving.instance_id)
            member_id = NO_MEMBER if found is None else found.member_id
        member = self._known(member_id, leaving.instance_id)
        if member is None or member.classic is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not use the classic protocol.")
        return member.member_id


def _subscription_of(asked: JoinRequest) -> Subscription:
    try:
        return decode_subscription(asked.protocols[0][1])
    except FormatError as error:
        message = f"The member's subscription cannot be read: {error}"
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message) from None
