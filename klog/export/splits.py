"""What the planner hands out: splits of segments, each readable on its own, by any process, in any order."""

from __future__ import annotations

from dataclasses import dataclass

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """Offsets (both inclusive) in which the data of one producer belongs to an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class FallbackSegment:
    """A segment of another replica that agrees about offsets from `first_offset` to before `end_offset`.

    Its batches start at positions from 0 to before `end_bytes`; `base_offset` is its own.
    """

    file: str
    base_offset: int
    end_bytes: int
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Split:
    """The batches of one segment that start at file positions `start_bytes` to before `end_bytes`.

    `file` is a path or URI that any task can open (`klog.export.files`). Of those batches the records with
    offsets from `first_offset` to before `end_offset` are wanted: bounds, replica choice and, read_committed,
    the last stable offset are in these two numbers already. `aborted` holds what read_committed drops here;
    it is empty for read_uncommitted. `base_offset` is the segment's. `number` counts the splits of a plan
    in order of (topic, partition, first_offset); plans list them longest first. `size_bytes` of the file is
    as it was when it was planned: a file that has grown since is read only as far as planned. What is damaged
    is read from the `fallbacks`, in their order; those may hold more offsets than the split.
    """

    number: int
    topic: str
    partition: int
    file: str
    base_offset: int
    start_bytes: int
    end_bytes: int
    first_offset: int
    end_offset: int
    aborted: tuple[AbortedRange, ...] = ()
    fallbacks: tuple[FallbackSegment, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the split is of."""
        return TopicPartition(self.topic, self.partition)

    @property
    def length_bytes(self) -> int:
        """Bytes of the file that the split covers."""
        return self.end_bytes - self.start_bytes


@dataclass(frozen=True, slots=True)
class LostRange:
    """Something that could not be read, as reports list it.

    Positions are bytes in `file` (None: unknown, or no file at all), offsets are those that are missing:
    from `first_offset` to before `end_offset` as far as neighbours tell (None: unknown).
    """

    topic: str
    partition: int
    file: str
    start_bytes: int | None
    end_bytes: int | None
    first_offset: int | None
    end_offset: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """Replicas of a partition disagree: offsets `first_offset` to before `end_offset` were taken from
    `chosen` (a directory), and `other` holds something else there. `reason` says why that one was chosen.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    chosen: str
    other: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a plan takes of one partition: offsets from `start_offset` to before `end_offset`.

    `log_start_offset`, `log_end_offset`, `high_watermark` and `last_stable_offset` are those that were found
    (None: not known from the files). `directories` are those that hold a replica, the chosen one first.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    last_stable_offset: int | None
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a job does, decided before it starts; the same inputs and options give the same plan.

    `splits` are longest first. `lost` and `problems` are what the planner itself could not read, `skipped`
    the files and directories that are passed over, with the reason (`.deleted`, `-future`, ...).
    """

    splits: tuple[Split, ...]
    partitions: tuple[PartitionPlan, ...]
    divergences: tuple[Divergence, ...] = ()
    lost: tuple[LostRange, ...] = ()
    problems: tuple[KlogError, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
