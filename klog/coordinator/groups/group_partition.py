"""The groups of one partition of `__consumer_offsets`, while this broker leads it in one epoch.

It serialises the events of its groups and carries out their effects in order: appends, timers, answers. The
rules are in `group` and `offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from klog.coordinator.groups.classic.group import Group, load_group
from klog.coordinator.groups.commit_run import CommitRun
from klog.coordinator.groups.consumer import epochs
from klog.coordinator.groups.consumer.conversion import downgrade, may_downgrade
from klog.coordinator.groups.consumer.group import ConsumerGroup
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.consumer.writes import WriteRecords
from klog.coordinator.groups.effects import Effect, Schedule, WriteGroup
from klog.coordinator.groups.entries import AnyGroup, GroupEntry, GroupTimer
from klog.coordinator.groups.loading import LoadedGroups
from klog.coordinator.groups.offsets.offsets import Commits, GroupOffsets
from klog.coordinator.groups.services import PLAIN, GroupServices, OnAppended, Transactional, Wait
from klog.coordinator.groups.values import (
    EPOCHS_FROM,
    NO_TIMESTAMP,
    CommittedOffset,
    GroupState,
    Identity,
    Now,
)
from klog.coordinator.groups.writing import commit_error, consumer_error, group_error
from klog.coordinator.runtime.tasks import OrderedEffects
from klog.formats.errors import FormatError
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended, WrittenRun

_log = logging.getLogger(__name__)

_INSTALLED_AT_ONCE: Final = 8
_NOT_TAKEN: Final = None, None


class GroupPartition(OrderedEffects):
    """All groups of one partition. Safe for threads."""

    def __init__(self, number: int, leader_epoch: int, services: GroupServices) -> None:
        super().__init__()
        self.number = number
        self.leader_epoch = leader_epoch
        self.entries: dict[str, GroupEntry] = {}
        self.closed = False
        # The groups that may have offsets in the open transaction of a producer.
        self._in_transactions: dict[int, set[str]] = {}
        self._services = services
        self._takes_runs = services.writer.is_plain

    def __len__(self) -> int:
        """How many groups it has."""
        return len(self.entries)

    # -- events ----------------------------------------------------------------------------------------------

    def now(self) -> Now:
        """The time of an event."""
        return self._services.clock()

    def get(self, group_id: str) -> GroupEntry | None:
        """The group; None if there is none. The caller holds the lock."""
        return self.entries.get(group_id)

    def get_or_create(self, group_id: str) -> GroupEntry:
        """The group, empty if it is new. The caller holds the lock."""
        entry = self.entries.get(group_id)
        if entry is None:
            entry = GroupEntry(Group(group_id, self._services.limits, self.now()))
            self.entries[group_id] = entry
        return entry

    def put_effects(self, entry: GroupEntry) -> None:
        """Let the group's effects be carried out when the lock is left."""
        self._put_effects(entry, entry.group)
        if isinstance(entry.group, ConsumerGroup) and may_downgrade(entry.group, self._services.limits):
            self.make_classic(entry, entry.group)

    def _put_effects(self, entry: GroupEntry, group: AnyGroup) -> None:
        for effect in group.take_effects():
            self._put_effect(entry, group, effect)

    def _put_effect(self, entry: GroupEntry, group: AnyGroup, effect: Effect | epochs.Effect) -> None:
        if isinstance(effect, Schedule):
            self._tasks.put(lambda: self._schedule(entry, effect))
        elif isinstance(effect, WriteGroup | WriteRecords):
            self._tasks.put(lambda: self._write_group(entry, group, effect))
        else:
            self._tasks.put(effect.send)

    # -- the kinds of groups ---------------------------------------------------------------------------------

    def new_consumer_group(self, group_id: str, records: GroupRecords | None = None) -> ConsumerGroup:
        """A consumer group, empty or with what its records say."""
        settings = partial(self._services.consumer_groups, group_id)
        return ConsumerGroup(group_id, settings, self._services.topics, records)

    def change_kind(self, entry: GroupEntry, group: AnyGroup) -> None:
        """Let another group take the place of one, with its offsets. The caller holds the lock."""
        old, entry.group = entry.group, group
        # Members of the old group join again, with the protocol that the new one has.
        old.die(ErrorCode.REBALANCE_IN_PROGRESS, self.now())
        self._put_effects(entry, old)
        self._tasks.put(lambda: self._stop_timers(entry))

    def make_classic(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """Change a consumer group to a classic one with the same members. The caller holds the lock."""
        services = self._services
        classic, records = downgrade(group, services.limits, services.topics(), self.now())
        self.change_kind(entry, classic)
        written = WriteRecords(tuple(records), _logged_only)
        self._tasks.put(lambda: self._write_group(entry, classic, written))
        self._put_effects(entry, classic)

    # -- timers ----------------------------------------------------------------------------------------------

    def _schedule(self, entry: GroupEntry, wanted: Schedule) -> None:
        running = entry.timers.get(wanted.timer)
        if running is not None and not running.fired:
            if running.due_ms <= wanted.due_ms:
                return  # it fires earlier, and the group then schedules it again
            self._services.timer.cancel(running)
        if self.closed:
            return

        def fire(timer: GroupTimer) -> None:
            with self.lock():
                if entry.timers.get(wanted.timer) is timer:
                    del entry.timers[wanted.timer]
                entry.group.on_timer(wanted.timer, self.now())
                self.put_effects(entry)

        timer = entry.timers[wanted.timer] = GroupTimer(wanted.due_ms, fire)
        self._services.timer.add(timer)

    def _stop_timers(self, entry: GroupEntry) -> None:
        for timer in entry.timers.values():
            self._services.timer.cancel(timer)
        entry.timers.clear()

    # -- records ---------------------------------------------------------------------------------------------

    def _write_group(self, entry: GroupEntry, group: AnyGroup, wanted: WriteGroup | WriteRecords) -> None:
        def done(appended: Appended) -> None:
            is_classic = isinstance(wanted, WriteGroup)
            error = group_error(appended.error) if is_classic else consumer_error(appended.error)
            if error:
                self._log_failure(group_id, appended.error)
            with self.lock():
                before = group.state
                wanted.on_written(error, self.now())
                if before is GroupState.COMPLETING_REBALANCE and group.state is GroupState.STABLE:
                    self._services.counts.rebalances += 1
                self._put_effects(entry, group)

        group_id, writer, now_ms = group.group_id, self._services.writer, self.now().wall_ms
        try:
            if isinstance(wanted, WriteGroup):
                batch = writer.group(group_id, wanted.metadata, now_ms)
            else:
                batch = writer.consumer_group(group_id, wanted.records, now_ms)
        except FormatError as refused:
            _log.error("group %r cannot be written: %s", group_id, refused)
            done(Appended(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._append(batch, done, self._services.commit_acks)

    def _append(self, batch: bytearray, on_done: OnAppended, acks: int, guard: object | None = None) -> None:
        self._services.append(
            self.number, batch, on_done, acks=acks, leader_epoch=self.leader_epoch, guard=guard
        )

    def _log_failure(self, group_id: str, error: ErrorCode) -> None:
        _log.warning(
            "group %r: records could not be written to __consumer_offsets-%d: %s",
            group_id,
            self.number,
            error.name,
        )

    def put_commits(self, entry: GroupEntry, commits: Commits, on_done: Callable[[ErrorCode], None]) -> None:
        """Let commits be written when the lock is left; `on_done` gets the error that the client sees."""
        entry.offsets.begin(commits)
        done = self._settled(len(commits), partial(_settle, entry.offsets, commits), on_done)
        self._put_batch(entry, commits, PLAIN, done)

    def put_transactional_commits(
        self,
        entry: GroupEntry,
        within: Transactional,
        commits: Commits,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """As `put_commits`, for offsets that count when the producer's transaction is committed."""
        offsets, producer_id = entry.offsets, within.producer.producer_id
        offsets.begin_transactional(producer_id, commits)
        self._in_transactions.setdefault(producer_id, set()).add(entry.group.group_id)

        def settle(appended: Appended) -> None:
            if appended.error:
                offsets.failed_transactional(producer_id, commits)
            else:
                offsets.written_transactional(producer_id, commits, appended.first_offset)

        self._put_batch(entry, commits, within, self._settled(len(commits), settle, on_done))

    def _settled(
        self, count: int, settle: Callable[[Appended], None], on_done: Callable[[ErrorCode], None]
    ) -> OnAppended:
        """What ends the append of `count` commits: `settle` is called with the lock, `on_done` without."""

        def done(appended: Appended) -> None:
            with self.lock():
                settle(appended)
                if not appended.error:
                    self._services.counts.commits += count
            on_done(commit_error(appended.error))

        return done

    def _put_batch(
        self, entry: GroupEntry, commits: Commits, within: Transactional, done: OnAppended
    ) -> None:
        """Let a batch of commits be written."""

        def write() -> None:
            group_id = entry.group.group_id
            try:
                now_ms = self.now().wall_ms
                batch = self._services.writer.commits(group_id, commits, now_ms, within.producer)
            except FormatError as refused:
                _log.error("offsets of group %r cannot be written: %s", group_id, refused)
                done(Appended(ErrorCode.UNKNOWN_SERVER_ERROR))
                return
            self._append(batch, done, self._services.commit_acks, within.guard)

        self._tasks.put(write)

    def commit_run(self, run: CommitRun, group_id: str, keys: Sequence[PartitionKey]) -> Wait | bool:
        """Take the commits of a run, if they can be written at once; `keys` are theirs.

        True if the offsets are committed, a function that waits for that if they are written, False if
        anything else has to be done: then nothing has changed.
        """
        if not self._takes_runs:
            return False
        self._tasks.hold()
        try:
            with self._lock:
                written, wait = self._commit_run(run, group_id, keys)
        finally:
            self._tasks.let_go()
        if written is None:
            return False
        self._services.run_append.written(self.number, written)
        return True if wait is None else wait

    def _commit_run(
        self, run: CommitRun, group_id: str, keys: Sequence[PartitionKey]
    ) -> tuple[WrittenRun | None, Wait | None]:
        entry = self.entries.get(group_id)
        # What was decided before is written before.
        if entry is None or self.closed or not self._tasks.is_empty:
            return _NOT_TAKEN
        group, member_id = entry.group, run.member
        if group.commit_error(Identity(member_id, run.generation, run.instance, run.version >= EPOCHS_FROM)):
            return _NOT_TAKEN
        now = self._services.clock()
        now_ms = now.wall_ms
        written = self._services.run_append.write(self.number, run, self.leader_epoch, now_ms)
        if written is None:
            return _NOT_TAKEN
        group.renew_session(member_id, now)
        self.put_effects(entry)
        offsets = entry.offsets
        if written.is_acknowledged:
            offsets.store_all(keys, run.offsets(), now_ms, written.first_offset)
            self._services.counts.commits += len(keys)
            return written, None
        # They are replicated together, and of those for one partition the last counts.
        commits = {
            key: CommittedOffset(*commit, now_ms, NO_TIMESTAMP)
            for key, commit in zip(keys, run.offsets(), strict=True)
        }
        offsets.begin(commits)

        def wait(on_done: Callable[[ErrorCode], None]) -> None:
            done = self._settled(len(keys), partial(_settle, offsets, commits), on_done)
            self._services.run_append.wait(self.number, written, done)

        return written, wait

    def put_removals(self, entry: GroupEntry, keys: Iterable[PartitionKey], *, with_group: bool) -> None:
        """Let tombstones be written when the lock is left.

        A failure is only logged: the offsets are forgotten here, and are back after the next load.
        """
        group = entry.group
        group_keys = group.tombstone_keys() if with_group else ()
        batch = self._services.writer.removals(group.group_id, keys, self.now().wall_ms, group_keys)
        if batch is None:
            return

        def done(appended: Appended) -> None:
            if appended.error:
                self._log_failure(group.group_id, appended.error)

        self._tasks.put(lambda: self._append(batch, done, acks=0))

    # -- the end of groups -----------------------------------------------------------------------------------

    def forget(self, entry: GroupEntry, error: ErrorCode) -> None:
        """The group is dead; requests that wait are answered `error`. The caller holds the lock."""
        entry.group.die(error, self.now())
        self.put_effects(entry)
        self.entries.pop(entry.group.group_id, None)
        self._tasks.put(lambda: self._stop_timers(entry))

    def remove_if_dead(self, entry: GroupEntry) -> bool:
        """Whether the group is empty and has no offsets; then it is dead. The caller holds the lock."""
        if not entry.group.is_empty or not entry.offsets.is_empty:
            return False
        self.forget(entry, ErrorCode.UNKNOWN_MEMBER_ID)
        return True

    def remove_expired(self, retention_ms: int) -> None:
        """Forget the offsets that are past their retention, and groups that have nothing left."""
        with self.lock():
            now_ms = self.now().wall_ms
            for entry in list(self.entries.values()):
                removed = list(entry.offsets.remove_expired(entry.group.view(), now_ms, retention_ms))
                self._services.counts.expirations += len(removed)
                self._write_tombstones(entry, removed)

    def remove_offsets(self, keys: Iterable[PartitionKey]) -> None:
        """Forget the offsets of these partitions in all groups."""
        gone = list(keys)
        with self.lock():
            for entry in list(self.entries.values()):
                self._write_tombstones(entry, entry.offsets.remove(gone))

    def remove_committed(self, entry: GroupEntry, keys: Iterable[PartitionKey]) -> None:
        """Forget these offsets of one group. The caller holds the lock."""
        removed = list(entry.offsets.remove(keys))
        self._services.counts.deletions += len(removed)
        self._write_tombstones(entry, removed)

    def _write_tombstones(self, entry: GroupEntry, removed: Iterable[PartitionKey]) -> None:
        """Write the tombstones of offsets, and of the group if it has nothing left."""
        keys = list(removed)
        dead = self.remove_if_dead(entry)
        self.put_removals(entry, keys, with_group=dead)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A transaction has ended, with a marker in this partition."""
        with self.lock():
            for group_id in self._in_transactions.pop(producer_id, ()):
                entry = self.entries.get(group_id)
                if entry is not None:
                    entry.offsets.complete(producer_id, committed=committed)

    def install(self, loaded: LoadedGroups) -> None:
        """Take over what was read from the log, some groups at a time: other threads run between them."""
        group_ids = list(loaded.group_ids())
        for first in range(0, len(group_ids), _INSTALLED_AT_ONCE):
            with self.lock():
                now = self.now()
                for group_id in group_ids[first : first + _INSTALLED_AT_ONCE]:
                    group = self._loaded(group_id, loaded, now)
                    entry = GroupEntry(group, loaded.offsets.get(group_id) or GroupOffsets())
                    self.entries[group_id] = entry
                    for producer_id in entry.offsets.open_producers:
                        self._in_transactions.setdefault(producer_id, set()).add(group_id)
                    self.put_effects(entry)
            self._services.pause()

    def _loaded(self, group_id: str, loaded: LoadedGroups, now: Now) -> AnyGroup:
        limits, metadata = self._services.limits, loaded.groups.get(group_id)
        if metadata is not None:
            return load_group(group_id, limits, metadata, now)
        records = loaded.consumers.get(group_id)
        if records is None or not records.exists:
            return Group(group_id, limits, now)
        group = self.new_consumer_group(group_id, records)
        group.start_loaded(now)
        return group

    def close(self) -> None:
        """This broker leads the partition no longer: requests that wait are answered NOT_COORDINATOR."""
        with self.lock():
            self.closed = True
            for entry in list(self.entries.values()):
                self.forget(entry, ErrorCode.NOT_COORDINATOR)


def _settle(offsets: GroupOffsets, commits: Commits, appended: Appended) -> None:
    if appended.error:
        offsets.failed(commits)
    else:
        offsets.written(commits, appended.first_offset)


def _logged_only(error: ErrorCode, now: Now) -> None:
    """The members of a changed group join again, which writes the group once more."""
