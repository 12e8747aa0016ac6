"""A schedule: a cluster and what happens to it. It is a value, so it can be cut and printed."""

from __future__ import annotations

from dataclasses import dataclass, field

CHAOS_MS = 6_000
"""How long faults happen in a long schedule.

Timeouts are a twelfth of Kafka's defaults or less, so that little of a schedule is spent waiting for them.
With a third less again, some defects are not found any more.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens `at_ms` after the start."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Crash(Fault):
    """A broker's process ends and starts again later. With `power`, unflushed bytes are lost, too."""

    broker: int
    down_ms: int
    power: bool = False


@dataclass(frozen=True, slots=True)
class Pause(Fault):
    """A broker's process stands still."""

    broker: int
    for_ms: int


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Nothing arrives from `source` at `target`. Names are those of processes: b1, tree, clients."""

    source: str
    target: str
    for_ms: int


@dataclass(frozen=True, slots=True)
class Slow(Fault):
    """Messages from `source` to `target` take long, some longer than requests wait."""

    source: str
    target: str
    for_ms: int


@dataclass(frozen=True, slots=True)
class Expire(Fault):
    """The session of a broker ends, and the broker hears of it."""

    broker: int


@dataclass(frozen=True, slots=True)
class Depose(Fault):
    """The znode of the controller is deleted."""


@dataclass(frozen=True, slots=True)
class SlowController(Fault):
    """Messages of the broker that is the controller take long, as by `Slow`."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class SkewClock(Fault):
    """The wall clock of a broker is set, forward or back."""

    broker: int
    by_ms: int


@dataclass(frozen=True, slots=True)
class Configure(Fault):
    """A config of a topic is set."""

    topic: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CreateTopic(Fault):
    """A topic is created with these replicas."""

    topic: str
    replicas: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic(Fault):
    """A topic is deleted."""

    topic: str


@dataclass(frozen=True, slots=True)
class AddPartition(Fault):
    """A topic gets one more partition with these replicas."""

    topic: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reassign(Fault):
    """A partition is moved to other brokers; without any, its reassignment is cancelled."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElectPreferred(Fault):
    """Preferred leaders are elected where possible."""


@dataclass(frozen=True, slots=True)
class ElectUnclean(Fault):
    """An operator elects leaders that are not in sync, where there is no leader."""


@dataclass(frozen=True, slots=True)
class ShutDown(Fault):
    """A broker asks for a controlled shutdown, stops cleanly, and starts again later."""

    broker: int
    down_ms: int


@dataclass(frozen=True, slots=True)
class DeleteRecords(Fault):
    """Records below the high watermark are deleted from a partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class FailDirectory(Fault):
    """A log directory of a broker fails. It is there again when the broker starts the next time."""

    broker: int
    directory: int


@dataclass(frozen=True, slots=True)
class MoveReplica(Fault):
    """An operator moves a replica of a broker to another of its log directories, if it has several."""

    broker: int
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Flush(Fault):
    """A broker flushes its logs."""

    broker: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that decides what a run does. `topics` are created at the start, as (name, replicas, configs)."""

    seed: int
    brokers: tuple[int, ...] = (1, 2, 3)
    topics: tuple[tuple[str, tuple[tuple[int, ...], ...], tuple[tuple[str, str], ...]], ...] = ()
    faults: tuple[Fault, ...] = field(default=())
    loss: float = 0.0
    chaos_ms: int = CHAOS_MS
    # The mean time between two records of a producer.
    tick_ms: int = 100
    # How many log directories each broker has.
    log_dirs: int = 1
