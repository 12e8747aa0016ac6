"""What a backup repository holds, as immutable values. `README.md` beside this file draws the layout.

A backup of a partition is its log: pieces of its segments, byte for byte. Names of objects are relative to
the repository and divided by `/`. Times are in ms since 1970, offsets and positions as in Kafka; an end is
exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT32_MAX
from klog.formats.names import TopicPartition

FORMAT_VERSION: Final = 1
"""Of `klog-backup.json` and all other documents. A klog that does not know a version does not touch it."""


class ProducerSummary(NamedTuple):
    """What a piece changes for a transactional producer.

    The timestamp and the coordinator epoch are those of its last marker in the piece, -1 if it has none. The
    rest is about its batches after that marker, or is -1: the epoch and offset of the first one, the offset
    after the last one, and the timestamp of the first one.
    """

    producer_id: int
    marker_ms: int
    coordinator_epoch: int
    epoch: int = -1
    first_offset: int = -1
    end_offset: int = -1
    first_ms: int = -1


def fits_segment(base_offset: int, end_offset: int) -> bool:
    """Whether the offsets below an end fit into a segment: its indexes have them relative to its base."""
    return end_offset - 1 - base_offset <= INT32_MAX


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole, valid, consecutive batches of one segment: one object.

    The pieces of a segment, in their order, are the segment as it is restored. `start_bytes` is the position
    in the segment at the source: between two pieces that do not join, there was damage. `end_offset` is the
    offset after the last batch. `first_offset` is the base offset of the first one (for a compressed set of
    magic 0 or 1, whose header does not say it, the lowest possible offset). `max_timestamp_ms` is the
    largest timestamp of the batches, -1 for none. `sha256` is that of the batches. The object may be
    compressed and encrypted, and has `stored_bytes`. Unless it `has_transactions`, no batch is transactional.
    `producers` are those of transactions; None if they are not known, or too many.
    """

    segment_base_offset: int
    start_bytes: int
    size_bytes: int
    first_offset: int
    end_offset: int
    max_timestamp_ms: int
    sha256: str
    name: str
    stored_bytes: int
    has_transactions: bool = True
    producers: tuple[ProducerSummary, ...] | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A small file as it was at the source, or a document; `sha256` is that of the object's plain bytes."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SnapshotObject:
    """The newest producer snapshot at or below the end of a partition's state; `offset` is its own."""

    offset: int
    stored: StoredObject


@dataclass(frozen=True, slots=True)
class SegmentSeen:
    """A segment file as the last run saw it: the same values mean the same content.

    `stat` has size, mtime and ctime in ns, inode and device. The times are 0 if the file was written so
    shortly before that a change might not show. `end_bytes` is the position that was read up to, and
    `is_complete` says that no valid batch follows there. The last batch before `end_bytes` begins at
    `last_batch_bytes`, and `last_batch_header` is its header in hex: a log that was truncated and written
    again does not have it there.
    """

    base_offset: int
    stat: tuple[int, ...]
    end_bytes: int
    is_complete: bool
    last_batch_bytes: int = -1
    last_batch_header: str = ""


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a source file that holds no valid batches.

    Offsets from `first_offset` to before `end_offset` (None: up to the end of the log) are not in the backup.
    """

    file: str
    position_bytes: int | None
    first_offset: int
    end_offset: int | None
    what: str


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition at a run: the log from `log_start_offset` to `end_offset`.

    `pieces` ascend by segment and position. `end_offset` is the high watermark if a broker was running and
    had written it down, else the log end offset. No new piece has a batch above it, but those of earlier runs
    may: a broker that has crashed has an older high watermark in its checkpoint. `high_watermark` is None if
    no checkpoint names it. Every offset below the end had arrived at `read_time_ms`, by the clock of the
    machine that read. `epochs` begin at or below the end. `empty_segments` are the base offsets of segments
    without a batch: only their names say where the log begins, or goes on. `source` is the directory of the
    replica that was read, with `broker_id` (None: unknown).
    """

    partition: TopicPartition
    topic_id: str | None
    pieces: tuple[Piece, ...]
    log_start_offset: int
    end_offset: int
    high_watermark: int | None
    epochs: tuple[EpochEntry, ...]
    snapshot: SnapshotObject | None
    source: str
    broker_id: int | None
    read_time_ms: int
    empty_segments: tuple[int, ...] = ()
    damage: tuple[Damage, ...] = ()
    seen: tuple[SegmentSeen, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of the log."""
        return sum(piece.size_bytes for piece in self.pieces)

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp, -1 for none."""
        return max((piece.max_timestamp_ms for piece in self.pieces), default=-1)

    def segments(self) -> dict[int, tuple[Piece, ...]]:
        """The pieces of each segment, by base offset in ascending order; an empty segment has none."""
        found: dict[int, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.segment_base_offset, []).append(piece)
        for base in self.empty_segments:
            found.setdefault(base, [])
        return {base: tuple(pieces) for base, pieces in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class PartitionRef:
    """Where the state of a partition is: in `states`, the name of an object with states of several
    partitions.

    `source` is the log directory it was read from, of the broker `broker_id` (None: unknown), and
    `fingerprint` a hash of all that listings of the partition's directories showed: if it is the same,
    nothing has changed. The other values repeat the state's.
    """

    states: str
    source: str
    fingerprint: str
    log_start_offset: int
    end_offset: int
    size_bytes: int
    read_time_ms: int
    is_damaged: bool = False
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A log directory that a run has read, with what its `meta.properties` says (None: nothing)."""

    directory: str
    broker_id: int | None = None
    cluster_id: str | None = None

    def has(self, found: PartitionRef | PartitionState) -> bool:
        """Whether a partition was read from here. Brokers on several machines have the same paths."""
        is_other = None not in (self.broker_id, found.broker_id) and self.broker_id != found.broker_id
        return found.source == self.directory and not is_other


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a run could not back up, or not completely; `partition` is None if it concerns
    others."""

    partition: TopicPartition | None
    what: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup: the result of one run. It exists once its manifest does.

    `id` begins with the time in UTC at which the run ended, so ids sort by time. `changes` are on top of the
    partitions of the object `table` (None: none): a reference replaces one there, None removes it. `patterns`
    are those of the topics that were asked for; a partition of another topic, or from a directory that is not
    among `sources`, is carried over from the backup before, as it was. `metadata` is the cluster's metadata,
    in the JSON form of `klog.cluster_metadata`. `unseen` are partitions that were asked for and that the run
    has not found, or not completely, although they need not be gone; an older klog wrote None. `read_bytes`
    and `stored_bytes` are what this run has read and written.
    """

    id: str
    begin_ms: int
    end_ms: int
    klog_version: str
    cluster_id: str | None
    sources: tuple[Source, ...]
    patterns: tuple[str, ...] = ()
    table: str | None = None
    changes: Mapping[TopicPartition, PartitionRef | None] = field(default_factory=dict)
    metadata: StoredObject | None = None
    problems: tuple[Problem, ...] = ()
    unseen: frozenset[TopicPartition] | None = None
    read_bytes: int = 0
    stored_bytes: int = 0

    def covers(self, topic: str, ref: PartitionRef) -> bool:
        """Whether the run was to look at a partition; otherwise it was carried over as it was."""
        return any(each.has(ref) for each in self.sources) and is_wanted(topic, self.patterns)

    def has_failed(self, partition: TopicPartition) -> bool:
        """Whether the run has not looked at a partition that it was asked for, or not completely."""
        if self.unseen is None:  # a problem without a partition may be of any
            return any(each.partition in (None, partition) for each in self.problems)
        return partition in self.unseen or any(each.partition == partition for each in self.problems)


def is_wanted(topic: str, patterns: Sequence[str]) -> bool:
    """Whether a topic matches one of the regular expressions as a whole; none stands for all topics."""
    return not patterns or any(re.fullmatch(pattern, topic) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Encryption:
    """How all other objects are encrypted: the method, the id of the data key that new ones are under, and a
    keyed hash (hex) of the other members of `klog-backup.json`.
    """

    method: str
    key: str
    check: str


@dataclass(frozen=True, slots=True)
class RepositoryInfo:
    """`klog-backup.json`: what is the same for all objects.

    `compression` is `none`, `gzip` or `zstd`, for pieces whose batches are not compressed.
    """

    id: str
    compression: str = "zstd"
    encryption: Encryption | None = None
    version: int = FORMAT_VERSION
