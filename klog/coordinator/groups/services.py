"""What the groups of all partitions of `__consumer_offsets` share: appends, timers, clocks and settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.commit_run import CommitRun
from klog.coordinator.groups.consumer.topics import NO_TOPICS, Topics
from klog.coordinator.groups.consumer.values import ConsumerGroupSettings
from klog.coordinator.groups.values import Now
from klog.coordinator.groups.writing import Writer
from klog.coordinator.runtime.log_reading import no_pause
from klog.coordinator.runtime.ownership import WhenReplicated, always_replicated
from klog.coordinator.transactions.values import NO_PRODUCER, Producer
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended, WrittenRun
from klog.replication.purgatory import Timer

# -- What the group coordinator counts since the start: Kafka's `group-coordinator-metrics` ------------------


@dataclass(slots=True)
class GroupCounts:
    """Offsets that were committed, expired or deleted by OffsetDelete, and rebalances that were completed.

    The counts may be read while others count; each is added to in one step of the interpreter.
    """

    commits: int = 0
    expirations: int = 0
    deletions: int = 0
    rebalances: int = 0


OnAppended = Callable[[Appended], None]
Wait = Callable[[Callable[[ErrorCode], None]], None]
"""Called once, without a lock: has a function called with the error that the client sees, now or later."""


class Append(Protocol):
    """Appends a batch to a partition of `__consumer_offsets`, in the epoch in which this broker leads it."""

    def __call__(
        self,
        partition: int,
        batch: bytearray,
        on_done: OnAppended,
        *,
        acks: int,
        leader_epoch: int,
        guard: object | None = None,
    ) -> None:
        """Calls `on_done` exactly once, now or later, from any thread. A transaction needs a `guard`."""


class RunAppend(Protocol):
    """Appends a run of commits to a partition of `__consumer_offsets`."""

    def write(self, partition: int, run: CommitRun, leader_epoch: int, now_ms: int) -> WrittenRun | None:
        """Writes it. None if nothing was written: the general append has to do it, or say what is wrong."""

    def written(self, partition: int, run: WrittenRun) -> None:
        """Tries what waits for the records. To be called after `write`, without a lock."""

    def wait(self, partition: int, run: WrittenRun, on_done: OnAppended) -> None:
        """Calls `on_done` when it is acknowledged, as `Append` does. To be called without a lock."""


_DEFAULTS: Final = ConsumerGroupSettings()


@dataclass(frozen=True, slots=True)
class GroupServices:
    """What the groups of all partitions share. `commit_acks` is `offsets.commit.required.acks`.

    `consumer_groups` gives the settings of a group (KIP-848) as they are now, `topics` the topics of the
    cluster. `pause` lets other threads run while groups are loaded, and `loading` is entered meanwhile.
    `when_replicated` is that of `OwnedTopic`.
    """

    append: Append
    run_append: RunAppend
    timer: Timer
    clock: Callable[[], Now]
    writer: Writer
    limits: GroupLimits
    commit_acks: int
    pause: Callable[[], None] = no_pause
    when_replicated: WhenReplicated = always_replicated
    loading: Callable[[], AbstractContextManager[None]] = nullcontext
    counts: GroupCounts = field(default_factory=GroupCounts)
    consumer_groups: Callable[[str], ConsumerGroupSettings] = lambda _group_id: _DEFAULTS
    topics: Callable[[], Topics] = lambda: NO_TOPICS


class Transactional(NamedTuple):
    """The producer in whose transaction offsets are committed, and the guard that its verification gave."""

    producer: Producer = NO_PRODUCER
    guard: object | None = None


PLAIN: Final = Transactional()
"""Offsets that are not part of a transaction."""
