"""The state of the cleaner: which logs are cleaned, paused or set aside. It has no threads and no clock.

Rules: Kafka's `LogCleanerManager`. The state of a log is none, in progress, aborted, or paused n times. The
caller holds a lock around every call, and waits until `paused` is true if it has to.
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
    """What the cleaner does with a log; a paused log has the number of its pauses instead."""

    IN_PROGRESS = auto()
    ABORTED = auto()


State = Activity | int
"""An activity, or how many times the log is paused."""


@dataclass(frozen=True, slots=True)
class Grab:
    """The log to clean (None: there is none), and what was found meanwhile.

    `resets` are new checkpoints of logs whose old one was outside of the log. `max_dirty_ratio` is that of
    the dirtiest log, cleanable or not. `max_delay_ms` is the time by which the maximum compaction lag is
    exceeded.
    """

    dirty: DirtyLog | None
    resets: Mapping[TopicPartition, int]
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0


@dataclass(slots=True)
class CleanerManager:
    """The states of all logs. `uncleanable` are the logs whose cleaning failed, by log directory."""

    states: dict[TopicPartition, State] = field(default_factory=dict)
    uncleanable: dict[str, set[TopicPartition]] = field(default_factory=dict)

    # -- choosing --------------------------------------------------------------------------------------------

    def is_free(self, partition: TopicPartition, log_directory: str) -> bool:
        """Whether the cleaner may change the log."""
        return self.reason(partition, log_directory) is None

    def reason(self, partition: TopicPartition, log_directory: str) -> Reason | None:
        """Why the cleaner may not change the log, None if it may."""
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
        )

    def begin_deleting(self, partitions: Iterable[TopicPartition]) -> None:
        """The free ones of these compacted logs, marked as in progress: the cleaner applies retention to
        them.
        """
        for partition in partitions:
            self.states[partition] = Activity.IN_PROGRESS

    def done(self, partition: TopicPartition) -> bool:
        """A cleaning or deletion has ended, with success or not. Returns False if it was aborted.

        An aborted log is paused now. Raises `UsageError` if neither was in progress.
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
        """Abort a cleaning, or keep one from starting. It is in force when `paused` is true.

        Raises `UsageError` if it is being aborted already.
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
        """Pause the logs with nothing in progress; returns them."""
        paused = [partition for partition in partitions if partition not in self.states]
        self.states.update(dict.fromkeys(paused, 1))
        return paused

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each. Raises `UsageError` if one is not paused."""
        for partition in partitions:
            state = self.states.get(partition)
            if not isinstance(state, int):
                raise UsageError(f"{partition} is not paused, but {_word(state)}")
            if state == 1:
                del self.states[partition]
            else:
                self.states[partition] = state - 1

    def paused(self, partition: TopicPartition) -> bool:
        """Whether the log is paused."""
        return isinstance(self.states.get(partition), int)

    def aborted(self, partition: TopicPartition) -> bool:
        """Whether a cleaning in progress has to stop."""
        return self.states.get(partition) is Activity.ABORTED

    # -- giving up -------------------------------------------------------------------------------------------

    def mark_uncleanable(self, partition: TopicPartition, log_directory: str) -> None:
        """Do not clean the log again until the broker restarts."""
        self.uncleanable.setdefault(log_directory, set()).add(partition)

    def keep_uncleanable(self, existing: Iterable[TopicPartition]) -> None:
        """Forget logs that no longer exist."""
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
