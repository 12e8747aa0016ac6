"""A rebalance of a group: its phases, its generations, and the sessions of its members.

Rules: Kafka's `GroupCoordinator` and its delayed operations; KIP-62, KIP-134 (initial delay). An event and a
time go in, effects come out. There is no I/O and no lock here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

from klog.client.consumer_protocol import subscribed_topics
from klog.coordinator.groups.classic.members import Member, Members
from klog.coordinator.groups.effects import (
    JOIN_TIMER,
    MEMBER_TIMER_KIND,
    SYNC_TIMER,
    Effect,
    Reply,
    Schedule,
    TimerKey,
    WriteGroup,
    member_timer,
)
from klog.coordinator.groups.records import GroupMetadata, MemberMetadata
from klog.coordinator.groups.values import (
    CONSUMER_PROTOCOL,
    NO_MEMBER,
    GroupState,
    JoinResult,
    Now,
    SyncResult,
)
from klog.formats.errors import FormatError
from klog.protocol.error_codes import ErrorCode

# A new member sends no heartbeats before its first generation. It is given up after this time.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000

JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """`initial_delay_ms` is `group.initial.rebalance.delay.ms`, `max_size` is `group.max.size`."""

    initial_delay_ms: int
    max_size: int


@dataclass(frozen=True, slots=True)
class _JoinPhase:
    """When members have to have joined.

    A phase ends early if all members wait, except the initial delay of a group that was empty. That is
    extended by up to `remaining_ms` while members come.
    """

    due_ms: int
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0


class Rebalance:
    """The members of one group, its state, and the phases of its rebalances.

    Every event adds to `effects`, which the caller takes. `Group` adds the requests.
    """

    def __init__(self, group_id: str, limits: GroupLimits, now: Now) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = now.wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        # Of the present generation; None if they are not known.
        self.subscribed_topics: frozenset[str] | None = None
        self.members = Members()
        self.effects: list[Effect] = []
        self._limits = limits
        self._join_phase: _JoinPhase | None = None
        self._sync_due_ms: int | None = None
        self._joined_meanwhile = False

    def start_loaded(self, leader_id: str | None, now: Now) -> None:
        """Go on with the members that the group's record names: their sessions start now."""
        self.find_subscribed_topics()
        if not len(self.members):
            return
        if leader_id is not None and leader_id in self.members:
            self.members.leader_id = leader_id
        self.state = GroupState.STABLE
        for member in self.members:
            self._renew_session(member, now)
        if len(self.members) > self._limits.max_size:
            self._prepare_rebalance(now)

    def find_subscribed_topics(self) -> None:
        """Find out what the members of this generation subscribe to, if they are consumers."""
        self.subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL:
            metadata = [member.metadata(self.protocol_name) for member in self.members]
            with suppress(FormatError):
                self.subscribed_topics = frozenset(chain.from_iterable(map(subscribed_topics, metadata)))

    def take_effects(self) -> list[Effect]:
        """The effects since the last call."""
        taken, self.effects = self.effects, []
        return taken

    def _enter(self, state: GroupState, now: Now) -> None:
        self.state = state
        self.state_since_ms = now.wall_ms

    # -- a rebalance -----------------------------------------------------------------------------------------

    def _rebalance_if_possible(self, now: Now) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY):
            self._prepare_rebalance(now)

    def rebalance(self, now: Now) -> None:
        """Let all members join again."""
        self._rebalance_if_possible(now)

    def _prepare_rebalance(self, now: Now) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._forget_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._sync_due_ms = None
        timeout_ms = self.members.rebalance_timeout_ms
        if self.state is GroupState.EMPTY:
            delay_ms = self._limits.initial_delay_ms
            phase = _JoinPhase(now.timer_ms + delay_ms, True, delay_ms, max(timeout_ms - delay_ms, 0))
        else:
            phase = _JoinPhase(now.timer_ms + timeout_ms)
        self._enter(GroupState.PREPARING_REBALANCE, now)
        self._start_join_phase(phase)
        self._complete_join_if_all_wait(now)

    def _start_join_phase(self, phase: _JoinPhase) -> None:
        self._join_phase = phase
        self.effects.append(Schedule(JOIN_TIMER, phase.due_ms))

    def _complete_join_if_all_wait(self, now: Now) -> None:
        phase = self._join_phase
        if phase is not None and not phase.is_initial and self.members.all_wait_to_join:
            self._complete_join(now)

    def _join_phase_is_over(self, phase: _JoinPhase, now: Now) -> None:
        if phase.is_initial and self._joined_meanwhile and phase.remaining_ms:
            self._joined_meanwhile = False
            delay_ms = min(self._limits.initial_delay_ms, phase.remaining_ms)
            remaining_ms = max(phase.remaining_ms - phase.delay_ms, 0)
            self._start_join_phase(_JoinPhase(now.timer_ms + delay_ms, True, delay_ms, remaining_ms))
        else:
            self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        """Begin the next generation with the members that wait, and with the static ones."""
        self._join_phase = None
        for member in [each for each in self.members if each.join_reply is None and not each.is_static]:
            self._remove(member)
        if len(self.members) and not self.members.elect_joined_leader():
            # Nobody joined. Static members may be away until their sessions end.
            self._start_join_phase(_JoinPhase(now.timer_ms + self.members.rebalance_timeout_ms))
            return
        self.generation_id += 1
        self.members.pending_sync.clear()
        self.protocol_name = self.members.select_protocol() if len(self.members) else None
        self.find_subscribed_topics()
        if not len(self.members):
            self._enter(GroupState.EMPTY, now)
            self.effects.append(WriteGroup(self.metadata(), _ignore))
            return
        self._enter(GroupState.COMPLETING_REBALANCE, now)
        for member in self.members:
            self._answer_join(member, self._joined(member))
            member.is_new = False
            self._renew_session(member, now)
            self.members.pending_sync.add(member.member_id)
        self._sync_due_ms = now.timer_ms + self.members.rebalance_timeout_ms
        self.effects.append(Schedule(SYNC_TIMER, self._sync_due_ms))

    def _sync_phase_is_over(self, now: Now) -> None:
        """Remove the members that did not ask for their assignment."""
        self._sync_due_ms = None
        if self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        if not self.members.pending_sync:
            return
        for member_id in list(self.members.pending_sync):
            member = self.members.get(member_id)
            if member is not None:
                self._remove(member)
        self.members.pending_sync.clear()
        self._prepare_rebalance(now)

    def _forget_assignments(self, error: ErrorCode, now: Now) -> None:
        for member in self.members:
            member.assignment = b""
            if member.sync_reply is not None:
                self._answer_sync(member, SyncResult(error))
                self._renew_session(member, now)

    # -- sessions --------------------------------------------------------------------------------------------

    def renew_session(self, member_id: str, now: Now) -> None:
        """A member has shown that it is alive."""
        member = self.members.get(member_id)
        if member is not None:
            self._renew_session(member, now)

    def _renew_session(self, member: Member, now: Now) -> None:
        self._extend_session(member, now.timer_ms + member.session_timeout_ms)

    def _extend_session(self, member: Member, deadline_ms: int) -> None:
        # A timer that fires too early starts itself again, so a later deadline needs no new timer.
        earlier = deadline_ms < member.deadline_ms or not member.deadline_ms
        member.deadline_ms = deadline_ms
        if earlier:
            self.effects.append(Schedule(member_timer(member.member_id), deadline_ms))

    def _remove(self, member: Member) -> None:
        self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.members.remove(member.member_id)

    def _remove_and_rebalance(self, member: Member, now: Now) -> None:
        self._remove(member)
        self._rebalance_if_possible(now)
        self._complete_join_if_all_wait(now)

    # -- timers ----------------------------------------------------------------------------------------------

    def on_timer(self, timer: TimerKey, now: Now) -> None:
        """A timer that was scheduled fires. One that is no longer needed does nothing."""
        if timer == JOIN_TIMER:
            phase = self._join_phase
            if phase is not None and self._is_due(timer, phase.due_ms, now):
                self._join_phase_is_over(phase, now)
        elif timer == SYNC_TIMER:
            if self._sync_due_ms is not None and self._is_due(timer, self._sync_due_ms, now):
                self._sync_phase_is_over(now)
        elif timer.kind == MEMBER_TIMER_KIND:
            self._session_timer(timer, now)

    def _is_due(self, timer: TimerKey, due_ms: int, now: Now) -> bool:
        if now.timer_ms < due_ms:
            self.effects.append(Schedule(timer, due_ms))
            return False
        return True

    def _session_timer(self, timer: TimerKey, now: Now) -> None:
        pending_until_ms = self.members.pending.get(timer.member_id)
        if pending_until_ms is not None:
            if self._is_due(timer, pending_until_ms, now):
                self.members.remove(timer.member_id)
                self._complete_join_if_all_wait(now)
            return
        member = self.members.get(timer.member_id)
        if member is not None and self._is_due(timer, member.deadline_ms, now):
            # The answer that it waits for starts its session again.
            member.deadline_ms = 0
            if not member.outlives_its_session:
                self._remove_and_rebalance(member, now)

    # -- answers ---------------------------------------------------------------------------------------------

    def _joined(self, member: Member) -> JoinResult:
        """The answer to a member of the present generation."""
        leader_id = self.members.leader_id or NO_MEMBER
        # A member that does not lead, and the leader of a stable group, needs no list of members.
        leads = member.member_id == leader_id and self.state is GroupState.COMPLETING_REBALANCE
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            leader_id,
            self.members.joined(self.protocol_name) if leads else (),
        )

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        reply = self.members.stop_waiting(member)
        if reply is not None:
            self.effects.append(Reply(reply, result))

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            self.effects.append(Reply(reply, result))

    def metadata(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadata:
        """The group as its record says, with the present assignments or with these."""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                member.assignment if assignments is None else assignments[member.member_id],
            )
            for member in self.members
        )
        return GroupMetadata(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.members.leader_id,
            self.state_since_ms,
            members,
        )


def _ignore(error: ErrorCode, now: Now) -> None:
    """An empty group that could not be written is Empty all the same."""
