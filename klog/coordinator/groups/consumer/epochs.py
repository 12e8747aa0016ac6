"""The epochs of a consumer group: the group's, its target assignment's, and those of its members.

Rules: KIP-848; Kafka's `GroupMetadataManager`. A change of members, subscriptions or topics makes a new group
epoch. The next heartbeat computes a target assignment for it, and each member comes to that epoch when it has
given up what it must. An event and a time go in, effects come out. There is no I/O and no lock here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from klog.coordinator.groups.consumer.assignors import ASSIGNORS, AssignedMember, select_assignor
from klog.coordinator.groups.consumer.reconciliation import reconcile
from klog.coordinator.groups.consumer.records import GroupEpoch, RecordKind
from klog.coordinator.groups.consumer.regexes import matching_topics
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.consumer.topics import Topics
from klog.coordinator.groups.consumer.values import (
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    AssignedPartition,
    ConsumerGroupSettings,
    ConsumerGroupState,
    CurrentAssignment,
    Describable,
    HeartbeatResult,
    MemberState,
    MemberSubscription,
    Partitions,
    RefusedError,
    ResolvedRegex,
    TopicId,
)
from klog.coordinator.groups.consumer.writes import Answer, GroupWrites, WriteRecords
from klog.coordinator.groups.effects import Reply, Schedule, TimerKey
from klog.coordinator.groups.values import JoinResult, Now, SyncResult
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)

# As in Kafka, so that a change of ACLs counts at last.
_REMATCH_MS: Final = 600_000

ResultT = TypeVar("ResultT", JoinResult, SyncResult, HeartbeatResult)

Effect: TypeAlias = Reply[JoinResult] | Reply[SyncResult] | Reply[HeartbeatResult] | Schedule | WriteRecords


def session_timer(member_id: str) -> TimerKey:
    """The timer of a member's session."""
    return TimerKey("session", member_id)


def revocation_timer(member_id: str) -> TimerKey:
    """The timer by which a member must have given up its partitions."""
    return TimerKey("revocation", member_id)


def rejoin_timer(member_id: str) -> TimerKey:
    """The timer by which a member of the classic protocol must join again."""
    return TimerKey("rejoin", member_id)


def sync_timer(member_id: str) -> TimerKey:
    """The timer by which a member of the classic protocol must ask for its assignment."""
    return TimerKey("member sync", member_id)


_MEMBER_TIMERS = (session_timer, revocation_timer, rejoin_timer, sync_timer)


class GroupEpochs:
    """The state of one group and what changes it. `ConsumerGroup` adds the requests."""

    def __init__(
        self,
        group_id: str,
        settings: Callable[[], ConsumerGroupSettings],
        topics: Callable[[], Topics],
        state: GroupRecords | None = None,
    ) -> None:
        """`settings` and `topics` give the group's configs and the topics of the cluster as they are now."""
        self.group_id = group_id
        self.topics = topics
        self._settings = settings
        self.records = state or GroupRecords()
        self.effects: list[Effect] = []
        self.is_dead = False
        self._writes = GroupWrites(self.records)
        self._deadlines: dict[TimerKey, int] = {}
        self._topics: Topics | None = None
        # The topics that regular expressions were matched against, and when.
        self._matched: Topics | None = None
        self._matched_ms = 0

    # -- views -----------------------------------------------------------------------------------------------

    @property
    def settings(self) -> ConsumerGroupSettings:
        """The group's configs as they are now."""
        return self._settings()

    @property
    def state(self) -> ConsumerGroupState:
        """The state in answers to clients."""
        records = self.records
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not records.members:
            return ConsumerGroupState.EMPTY
        if records.epoch > records.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self._has_target(member_id) for member_id in records.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _has_target(self, member_id: str) -> bool:
        current = self.records.current_of(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.records.assignment_epoch

    @property
    def assignor(self) -> str:
        """The assignor that members ask for, or the broker's."""
        return select_assignor(
            (member.assignor for member in self.records.members.values()), self.settings.assignors
        )

    def take_effects(self) -> list[Effect]:
        """The effects since the last call."""
        taken, self.effects = self.effects, []
        return taken

    # -- records ---------------------------------------------------------------------------------------------

    def _write(self, answer: Answer | None = None) -> None:
        """Write what has changed. `answer` is called when this and all before it is in the log."""
        write = self._writes.begin(answer)
        if write is not None:
            begun = write

            def written(error: ErrorCode, _: Now) -> None:
                self._writes.done(begun, error)

            self.effects.append(WriteRecords(begun.records, written))

    def _answer(
        self,
        reply: Callable[[ResultT], None],
        decide: Callable[[], ResultT],
        refusal: Callable[[ErrorCode, str | None], ResultT],
    ) -> None:
        """Decide about a request, and answer it as soon as the group's new state is in the log.

        `refusal` makes the answer of an error.
        """
        try:
            result = decide()
        except RefusedError as refused:
            result = refusal(refused.error, refused.message)

        def answer(error: ErrorCode) -> None:
            self.effects.append(Reply(reply, refusal(error, None) if error else result))

        self._write(answer)

    # -- the group's epoch -----------------------------------------------------------------------------------

    def _topics_changed(self, topics: Topics, now: Now, describable: Describable | None) -> bool:
        """Whether what the group subscribes to has changed since its epoch was set. `describable` are the
        topics that the caller's regular expressions may match; None leaves all expressions as they are.
        """
        self._topics = topics
        used = {member.regex for member in self.records.members.values() if member.regex}
        for regex in [each for each in self.records.regexes if each not in used]:
            self.records.put(RecordKind.REGEX, regex)
        is_new = not used <= self.records.regexes.keys()
        if describable is not None and (is_new or self._matches_are_old(topics, now)):
            self._match_regexes(sorted(used), topics, now, describable)
        return topics.hash_of(self.records.subscribed) != self.records.metadata_hash

    def _matches_are_old(self, topics: Topics, now: Now) -> bool:
        """Whether expressions are to be matched again: the topics have changed, or rights may have."""
        if not self.records.regexes:
            return False
        return topics is not self._matched or now.timer_ms - self._matched_ms >= _REMATCH_MS

    def _match_regexes(self, used: list[str], topics: Topics, now: Now, describable: Describable) -> None:
        """Match all expressions. As in Kafka, the rights of the member count whose heartbeat it is."""
        found = {regex: matching_topics(regex, topics.names) for regex in used}
        allowed = set(describable(sorted(set().union(*found.values()))))
        for regex, names in found.items():
            matched = tuple(name for name in names if name in allowed)
            known = self.records.regexes.get(regex)
            if known is None or known.topics != matched:
                self.records.put(RecordKind.REGEX, regex, ResolvedRegex(matched, 0, now.wall_ms))
        self._matched, self._matched_ms = topics, now.timer_ms

    def _next_epoch(self) -> None:
        records = self.records
        if records.has_partition_metadata:
            records.put(RecordKind.PARTITION_METADATA)
        metadata_hash = records.metadata_hash
        if self._topics is not None:
            metadata_hash = self._topics.hash_of(records.subscribed)
        records.put(RecordKind.EPOCH, value=GroupEpoch(records.epoch + 1, metadata_hash))
        _log.debug("group %r: epoch %d", self.group_id, records.epoch)

    # -- the target ------------------------------------------------------------------------------------------

    def _assign(self, topics: Topics) -> None:
        """Compute a target assignment for the group's epoch, if there is none yet."""
        records = self.records
        if records.epoch <= records.assignment_epoch:
            return
        known = [topic for name in records.subscribed if (topic := topics.get(name)) is not None]
        counts = {topic.topic_id: topic.partitions for topic in known}
        ids = {topic.name: topic.topic_id for topic in known}
        subscriptions: dict[tuple[object, ...], frozenset[TopicId]] = {}

        def topics_of(member: MemberSubscription) -> frozenset[TopicId]:
            # Most members of a group subscribe to the same.
            key = member.topics, member.regex
            found = subscriptions.get(key)
            if found is None:
                names = records.subscription_of(member)
                found = subscriptions[key] = frozenset(ids[name] for name in names if name in ids)
            return found

        members = {
            member_id: AssignedMember(
                member.instance_id, topics_of(member), records.targets.get(member_id, NO_PARTITIONS)
            )
            for member_id, member in records.members.items()
        }
        assigned: dict[str, Partitions] = ASSIGNORS[self.assignor](members, counts)
        for member_id, target in assigned.items():
            if records.targets.get(member_id) != target:
                records.put(RecordKind.TARGET, member_id, target)
        records.put(RecordKind.ASSIGNMENT_EPOCH, value=records.epoch)

    # -- members ---------------------------------------------------------------------------------------------

    def _reconcile(self, member: MemberSubscription, owned: Partitions | None, now: Now) -> CurrentAssignment:
        """Bring a member nearer to its target."""
        records, member_id = self.records, member.member_id

        def is_free(partition: AssignedPartition) -> bool:
            return records.owner_of(partition) in (None, member_id)

        before = records.current_of(member_id)
        target = records.targets.get(member_id, NO_PARTITIONS)
        after = reconcile(before, target, records.assignment_epoch, owned, is_free)
        if after != before or member_id not in records.current:
            records.put(RecordKind.CURRENT, member_id, after)
            if after.state is not MemberState.UNREVOKED_PARTITIONS:
                self._cancel(revocation_timer(member_id))
            elif member.classic is None:
                self._start(revocation_timer(member_id), member.rebalance_timeout_ms, now)
        return after

    def _forget(self, member_id: str) -> None:
        """Remove a member's records and timers."""
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER):
            self.records.put(kind, member_id)
        for timer in _MEMBER_TIMERS:
            self._cancel(timer(member_id))

    def _remove(self, *member_ids: str) -> None:
        """Members are gone: their partitions are for others in the next epoch."""
        for member_id in member_ids:
            self._forget(member_id)
        used = {member.regex for member in self.records.members.values()}
        for regex in [each for each in self.records.regexes if each not in used]:
            self.records.put(RecordKind.REGEX, regex)
        self._next_epoch()

    # -- timers ----------------------------------------------------------------------------------------------

    def _start(self, timer: TimerKey, timeout_ms: int, now: Now) -> None:
        due_ms = now.timer_ms + timeout_ms
        known_ms = self._deadlines.get(timer)
        self._deadlines[timer] = due_ms
        # A timer that fires too early starts itself again, so a later deadline needs no new timer.
        if known_ms is None or due_ms < known_ms:
            self.effects.append(Schedule(timer, due_ms))

    def _cancel(self, timer: TimerKey) -> None:
        self._deadlines.pop(timer, None)

    def _start_session(self, member: MemberSubscription, now: Now) -> None:
        classic = member.classic
        timeout_ms = self.settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        self._start(session_timer(member.member_id), timeout_ms, now)

    def start_loaded(self, now: Now) -> None:
        """Go on with the members that the records name: their sessions start now."""
        for member in self.records.members.values():
            self._start_session(member, now)
            current = self.records.current_of(member.member_id)
            gives_up = current.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None
            if gives_up and current.epoch != STATIC_LEAVE_EPOCH:
                self._start(revocation_timer(member.member_id), member.rebalance_timeout_ms, now)

    def on_timer(self, timer: TimerKey, now: Now) -> None:
        """A timer that was scheduled fires. One that is no longer needed does nothing."""
        due_ms = self._deadlines.get(timer)
        if due_ms is None or timer.member_id not in self.records.members:
            return
        if now.timer_ms < due_ms:
            self.effects.append(Schedule(timer, due_ms))
            return
        _log.info(
            "group %r: member %s is removed, its %s timed out", self.group_id, timer.member_id, timer.kind
        )
        self._remove(timer.member_id)
        self._write()
