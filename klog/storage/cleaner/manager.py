"""Which logs are being cleaned, held back or given up: the cleaner's state, without thread or clock.

Rules: Kafka's `LogCleanerManager`. A log is in one of the states none, in progress, aborted (told to stop) or
paused n times. Whoever drives it holds a lock around every call, and waits where `paused` is awaited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.storage.cleaner.selection import DirtyLog, Reason, dirtiest, dirty_log
from klog.storage.cleaner.view import LogView


class Activity(Enum):
    """What the cleaner does with a log now; a log that is paused has a number instead."""

    IN_PROGRESS = auto()
    ABORTED = auto()


State = Activity | int
"""An activity, or how many times the log is paused."""


@dataclass(frozen=True, slots=True)
class Grab:
    """The log to clean (None: there is none), and what was seen on the way.

    `resets` are new checkpoints of logs whose old one was outside of them. `max_dirty_ratio` is that of the
    dirtiest log, cleanable or not; `max_delay_ms` by how much the maximum compaction lag is exceeded.
    """

    dirty: DirtyLog | None
    resets: Mapping[TopicPartition, int]
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    delayed_logs: int = 0
    cleanable_logs: int = 0


@dataclass(slots=True)
class CleanerManager:
    """The states of all logs. `uncleanable` are, by log directory, those whose cleaning failed."""

    states: dict[TopicPartition, State] = field(default_factory=dict)
    uncleanable: dict[str, set[TopicPartition]] = field(default_factory=dict)

    # -- choosing --------------------------------------------------------------------------------------------

    def is_free(self, partition: TopicPartition, log_directory: str) -> bool:
        """Whether the cleaner may touch the log."""
        return self.reason(partition, log_directory) is None

    def reason(self, partition: TopicPartition, log_directory: str) -> Reason | None:
        """Why the cleaner may not touch the log, None where it may."""
        if partition in self.states:
            return Reason.BUSY
        if partition in self.uncleanable.get(log_directory, ()):
            return Reason.UNCLEANABLE
        return None

    def grab(self, logs: Iterable[LogView], checkpoints: Mapping[TopicPartition, int], now_ms: int) -> Grab:
        """Choose the dirtiest of `logs` (free, compacted ones) and mark it as in progress."""
        judged = [dirty_log(log, checkpoints.get(log.partition), now_ms) for log in logs]
        resets = {one.log.partition: one.first_dirty_offset for one in judged if one.reset_checkpoint}
        candidates = [one for one in judged if one.total_bytes]
        chosen = dirtiest(candidates)
        if chosen is not None:
            self.states[chosen.log.partition] = Activity.IN_PROGRESS
        return Grab(
            chosen,
            resets,
            max_dirty_ratio=max((one.ratio for one in candidates), default=0.0),
            max_delay_ms=max((one.compaction_delay_ms for one in judged), default=0),
            delayed_logs=sum(one.compaction_delay_ms > 0 for one in judged),
            cleanable_logs=sum(one.reason is None for one in candidates),
        )

    def begin_deleting(self, partitions: Iterable[TopicPartition]) -> None:
        """Retention is applied to compacted logs (free ones) by the cleaner itself."""
        for partition in partitions:
            self.states[partition] = Activity.IN_PROGRESS

    def done(self, partition: TopicPartition) -> bool:
        """A cleaning or deletion has ended, well or not; True unless it had been aborted.

        An aborted log is paused now. Raises `UsageError` where neither was under way.
        """
        state = self.states.get(partition)
        if state is Activity.IN_PROGRESS:
            del self.states[partition]
            return True
        if state is Activity.ABORTED:
            self.states[partition] = 1
            return False
        raise UsageError(f"{partition} is not being cleaned, but {_word(state)}")

    # -- holding back ----------------------------------------------------------------------------------------

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Stop a cleaning, or keep one from starting; in force once `paused` says so.

        Raises `UsageError` where it is being aborted already.
        """
        state = self.states.get(partition)
        if state is None:
            self.states[partition] = 1
        elif state is Activity.IN_PROGRESS:
            self.states[partition] = Activity.ABORTED
        elif isinstance(state, int):
            self.states[partition] = state + 1
        else:
            raise UsageError(f"cleaning of {partition} is being aborted already")

    def pause_if_idle(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Pause those about which nothing is under way; returns them."""
        paused = [partition for partition in partitions if partition not in self.states]
        self.states.update(dict.fromkeys(paused, 1))
        return paused

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each. Raises `UsageError` where one is not paused."""
        for partition in partitions:
            state = self.states.get(partition)
            if not isinstance(state, int):
                raise UsageError(f"{partition} is not paused, but {_word(state)}")
            if state == 1:
                del self.states[partition]
            else:
                self.states[partition] = state - 1

    def paused(self, partition: TopicPartition) -> bool:
        """Whether the cleaner keeps off the log."""
        return isinstance(self.states.get(partition), int)

    def aborted(self, partition: TopicPartition) -> bool:
        """Whether a cleaning under way has to stop."""
        return self.states.get(partition) is Activity.ABORTED

    # -- giving up -------------------------------------------------------------------------------------------

    def mark_uncleanable(self, partition: TopicPartition, log_directory: str) -> None:
        """Do not clean the log again, until the broker starts anew."""
        self.uncleanable.setdefault(log_directory, set()).add(partition)

    def keep_uncleanable(self, existing: Iterable[TopicPartition]) -> None:
        """Forget logs that are gone."""
        there = set(existing)
        kept = {directory: partitions & there for directory, partitions in self.uncleanable.items()}
        self.uncleanable = {directory: partitions for directory, partitions in kept.items() if partitions}

    def move(self, partition: TopicPartition, source: str, target: str) -> None:
        """A log has moved to another log directory."""
        if partition in self.uncleanable.get(source, ()):
            self.uncleanable[source].discard(partition)
            self.mark_uncleanable(partition, target)


def _word(state: State | None) -> str:
    if isinstance(state, int):
        return f"paused {state} times"
    return "idle" if state is None else state.name.lower().replace("_", " ")
