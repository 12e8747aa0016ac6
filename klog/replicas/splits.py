"""Plans as values: splits of segments, each readable on its own, by any process and in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """Offsets (both inclusive) between which the data of one producer belongs to an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class FallbackSegment:
    """A segment of another replica with the same records from `first_offset` to before `end_offset`.

    Its batches start at positions from 0 to before `end_bytes`; `base_offset` is that of this segment.
    """

    file: str
    base_offset: int
    end_bytes: int
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SplitFile:
    """One of several files of a split: all `size_bytes` of it, of which the offsets from `first_offset` to
    before `end_offset` count. No batch begins below `base_offset`.
    """

    file: str
    base_offset: int
    size_bytes: int
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Split:
    """The batches of one segment that start at file positions `start_bytes` to before `end_bytes`.

    `file` is a path or URI that any task can open (`klog.replicas.files`). The split has the records of those
    batches from `first_offset` to before `end_offset`: the requested bounds, the choice of replica and (with
    read_committed) the last stable offset have already been applied. `aborted` lists the transactions that
    read_committed leaves out; it is empty for read_uncommitted. `base_offset` is the segment's. `number`
    counts the splits of a plan in order of (topic, partition, first_offset); plans list the longest first. A
    file that has grown since it was planned is read only as far as planned. Damaged offsets are read from the
    `fallbacks`, in their order; a fallback may hold more offsets than the split.

    If there are `files`, the split has the batches of all of them, one after the other. `file` is the first,
    and positions go on from one to the next.
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
    files: tuple[SplitFile, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the split."""
        return TopicPartition(self.topic, self.partition)

    @property
    def length_bytes(self) -> int:
        """Bytes of the file that the split covers."""
        return self.end_bytes - self.start_bytes

    def of_each_file(self) -> Iterator[Split]:
        """The split as one for each of its files."""
        if not self.files:
            yield self
        for each in self.files:
            first, end = max(self.first_offset, each.first_offset), min(self.end_offset, each.end_offset)
            if first < end:
                yield replace(
                    self,
                    file=each.file,
                    base_offset=each.base_offset,
                    start_bytes=0,
                    end_bytes=each.size_bytes,
                    first_offset=first,
                    end_offset=end,
                    aborted=tuple(
                        one for one in self.aborted if one.first_offset < end and first <= one.last_offset
                    ),
                    files=(),
                )


@dataclass(frozen=True, slots=True)
class LostRange:
    """A range that could not be read, as reports list it.

    Positions are bytes in `file` (None: unknown, or there is no file). The offsets from `first_offset` to
    before `end_offset` are missing, as far as the batches around the range show (None: unknown).
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
    """A difference between replicas: offsets from `first_offset` to before `end_offset` come from `chosen`.

    `other` holds different records there. Both are directories; `reason` says why the one was chosen.
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
    """The offsets of one partition that a plan reads: from `start_offset` to before `end_offset`.

    `log_start_offset`, `log_end_offset`, `high_watermark` and `last_stable_offset` come from the files (None:
    the files do not say). `directories` are those with a replica, the chosen one first.
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
    """Everything that a job reads, decided before it starts; the same inputs and options give the same plan.

    The longest `splits` come first. `lost` and `problems` are what the planner could not read; `skipped` are
    ignored files and directories with the reason (`.deleted`, `-future`, ...).
    """

    splits: tuple[Split, ...]
    partitions: tuple[PartitionPlan, ...]
    divergences: tuple[Divergence, ...] = ()
    lost: tuple[LostRange, ...] = ()
    problems: tuple[KlogError, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
