"""Brings the state of a partition up to date: copies what is new in its segments, and keeps the other pieces.

No lock of the broker is needed. The broker may delete, compact, truncate or roll segments meanwhile: the
directory is listed again after the copying. If anything but the end of the log has changed, the changed
segments are read again, so that all pieces belong to the log at one moment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import BinaryIO, Final

from klog.backup import names
from klog.backup.copying import SegmentPart, copy_part, same_batch
from klog.backup.known_segments import KnownSegment, known_segments, last_seen, place_after
from klog.backup.matching import Behind, LogFiles
from klog.backup.model import Damage, PartitionState, Piece, SegmentSeen, SnapshotObject, StoredObject
from klog.backup.pieces import PIECE_BYTES, PieceWriter
from klog.backup.scanning import (
    Listed,
    LogDirectory,
    is_racy,
    list_replica,
    read_log_directory,
)
from klog.backup.store import StoreError
from klog.formats.constants import INT64_MAX
from klog.formats.errors import FormatError, KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.replicas.files import open_input, read_small
from klog.replicas.open_segment import OpenSegment
from klog.replicas.recorded_ends import recorded_end
from klog.replicas.replica_contents import current_segments
from klog.replicas.replica_files import Found, Replica, SegmentFile, read_replica
from klog.storage.reading.producer_state import unpack_snapshot

MOST_TRIES: Final = 8
MOST_PIECES: Final = 32
"""A closed segment with more pieces is stored once more in few: each append of a continuous backup made
one."""


class _ReplacedError(StorageError):
    """A file is not the one that was listed."""


@dataclass(frozen=True, slots=True)
class CopyRules:
    """`log_end` takes what is above the high watermark, too. `now_ms` is the clock; `pause` waits
    (seconds)."""

    now_ms: Callable[[], int]
    pause: Callable[[float], object]
    log_end: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a partition, None if it was deleted, and small files beside the log that cannot be read.

    `is_in_doubt` says that a running broker's log is shorter than its files say: a topic may just have been
    deleted and created again. `fingerprint` is that of the state; None if it is what the source has shown.
    `stays_as_before` says that it is the state in the backup, of another replica, which this one would
    follow.
    """

    state: PartitionState | None
    problems: tuple[KlogError, ...] = ()
    is_in_doubt: bool = False
    fingerprint: str | None = None
    stays_as_before: bool = False


def copy_partition(
    listed: Listed, previous: PartitionState | None, writer: PieceWriter, rules: CopyRules
) -> Outcome:
    """The state of a replica now, whose pieces are all stored.

    `previous` is the state before. Raises `StorageError`.
    """
    state = previous
    for attempt in range(MOST_TRIES):
        again: Listed | None
        try:
            outcome = _copy_once(listed, state, writer, rules)
            again = _listed_again(listed)
            if again is None:
                return Outcome(None)
            state = outcome.state
            is_last_try = attempt == MOST_TRIES - 1
            if _is_same_log(listed, again) and (is_last_try or not outcome.is_in_doubt):
                return outcome
        except StoreError:
            raise
        except StorageError as error:
            if not isinstance(error, _ReplacedError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
        rules.pause(min(0.05 * 2**attempt, 1.0))
        source = listed.log_directory.source.directory
        again = _listed_again(listed, read_log_directory(source, []))
        if again is None:
            return Outcome(None)
        listed = again
    raise StorageError(
        f"the segments of {listed.partition} change faster than they can be read",
        file=listed.path,
        cure="the backup before is kept; run it again",
    )


def _listed_again(listed: Listed, directory: LogDirectory | None = None) -> Listed | None:
    """The listing now, with the checkpoints of the one before, or those of `directory`."""
    found = list_replica(listed.name, listed.path, directory or listed.log_directory)
    if isinstance(found, StorageError):
        raise found
    return found


def _is_same_log(before: Listed, after: Listed) -> bool:
    """Whether the log has at most grown at its end between two listings."""
    old, new = before.segments(), after.segments()
    is_swapping = any(file.entry.name.endswith(".swap") for file in (*old, *new))
    if len(new) < len(old) or (is_swapping and old != new):
        return False
    if old[:-1] != new[: max(0, len(old) - 1)]:
        return False
    if not old:
        return True
    last, same = old[-1], new[len(old) - 1]
    is_same_file = last.entry.name == same.entry.name and last.stat[3:] == same.stat[3:]
    return is_same_file and last.stat[0] <= same.stat[0]


def _copy_once(
    listed: Listed, previous: PartitionState | None, writer: PieceWriter, rules: CopyRules
) -> Outcome:
    found = Found()
    replica = read_replica(listed.path, listed.name, [file.entry for file in listed.files], found)
    log = LogFiles(current_segments(replica, found.skipped))
    segments, directory, partition = log.segments, listed.log_directory, listed.partition
    replica = replace(replica, high_watermark=directory.high_watermarks.get(partition))
    committed_end = listed.bound()
    bound = INT64_MAX if committed_end is None or rules.log_end else committed_end
    log_start = max(directory.log_starts.get(partition, 0), *(one.base_offset for one in segments[:1]), 0)
    read_time_ms = rules.now_ms()
    stats = {file.entry.path: file.stat for file in listed.files}
    known = known_segments(listed, replica, log, previous, log_start, bound)
    if isinstance(known, Behind):
        return _kept_outcome(listed, known, replica)
    log_start = max(log_start, known.log_start_offset)
    kept = known.kept
    copied: dict[int, KnownSegment] = {}
    for segment, following in zip_longest(segments, [one.base_offset for one in segments[1:]]):
        if following is not None and following <= log_start:
            continue  # it holds deleted records only
        if kept is not None and segment.base_offset < kept.segment.base_offset:
            continue
        if copied and segment.base_offset > bound:
            break
        task = _SegmentTask(
            segment,
            stats[segment.log],
            following,
            bound,
            may_grow=following is None and directory.is_running,
            is_racy=is_racy(stats[segment.log], read_time_ms),
            place=place_after(kept, segment, log.end.end_offset if following is None else following)
            if kept is not None and segment == kept.segment
            else None,
        )
        copied[segment.base_offset] = task.copy(known.segments.get(segment.base_offset), partition, writer)
    pieces = (*known.pieces(), *(piece for each in copied.values() for piece in each.pieces))
    last_base = max(copied, default=0)
    log_end = max([last_base, *(piece.end_offset for piece in pieces[-1:])])
    end_offset = min(bound, log_end)
    damage = [damage for each in copied.values() for damage in each.damage]
    known_end, record = recorded_end(replica)
    # What is above the high watermark was not copied.
    is_short = log_end < known_end and log.end.end_offset < known_end
    if is_short and not any(one.end_offset is None for one in damage):
        file = segments[-1].log if segments else listed.path
        what = f"the log ends at {log_end}, but {record}"
        damage.append(Damage(file, None, log_end, known_end, what))
    state = PartitionState(
        partition=partition,
        topic_id=replica.topic_id,
        pieces=pieces,
        log_start_offset=min(log_start, end_offset),
        end_offset=end_offset,
        high_watermark=replica.high_watermark,
        epochs=tuple(entry for entry in replica.epochs if entry.start_offset <= end_offset),
        snapshot=_snapshot(replica, end_offset, previous, writer, found),
        source=directory.source.directory,
        broker_id=directory.source.broker_id,
        read_time_ms=read_time_ms,
        empty_segments=tuple(
            base
            for base, each in copied.items()
            if not each.pieces and (kept is None or base != kept.segment.base_offset)
        ),
        damage=tuple(damage),
        seen=tuple(each.seen for each in copied.values()) if kept is None else last_seen(pieces, copied),
    )
    return Outcome(state, tuple(found.problems), is_short and directory.is_running)


def _snapshot(
    replica: Replica,
    end_offset: int,
    previous: PartitionState | None,
    writer: PieceWriter,
    found: Found,
) -> SnapshotObject | None:
    """Store the newest valid producer snapshot at or below an offset."""
    for offset, path in reversed(replica.snapshots):
        if offset > end_offset:
            continue
        data = read_small(path)
        try:
            unpack_snapshot(data)
        except FormatError as error:
            found.problems.append(error.at(path))
            continue
        sha256 = hashlib.sha256(data).hexdigest()
        content_id = writer.store.content_id(sha256)
        stored = StoredObject(names.snapshot(replica.partition, offset, content_id), len(data), sha256)
        kept = SnapshotObject(offset, stored)
        if previous is None or previous.snapshot != kept:
            writer.store.put(stored.name, data)
        return kept
    return None


def _kept_outcome(listed: Listed, behind: Behind, replica: Replica) -> Outcome:
    """The state before. What is wrong with this replica is named, and records of it that are not in the
    state."""
    state, end_offset = behind.state, behind.end_offset
    known_end, record = recorded_end(replica)
    problems = []
    if behind.diverged is not None:
        what = (
            f"has other records from offset {behind.diverged} on than the replica in the backup, "
            "which has a higher leader epoch"
        )
        cure = "they are not in the backup; a broker would truncate them"
        problems.append(StorageError(what, file=listed.path, cure=cure))
    if end_offset < known_end:
        problems.append(StorageError(f"the log ends at {end_offset}, but {record}", file=listed.path))
    elif listed.log_directory.source.has(state) and end_offset < state.end_offset:
        what = f"the log ends at {end_offset}, but it was read up to {state.end_offset} before"
        problems.append(StorageError(what, file=listed.path, cure="the backup keeps what it has"))
    if state.damage:
        problems.append(StorageError("is damaged at its source, as in the backup before", file=listed.path))
    is_in_doubt = end_offset < known_end and listed.log_directory.is_running
    return Outcome(state, tuple(problems), is_in_doubt, stays_as_before=True)


@dataclass(frozen=True, slots=True)
class _SegmentTask:
    """One segment of a listing. `may_grow` says that a broker may be writing at its end. `place` is where its
    pieces are in a state of another replica: the base offset, and what is added to their positions.
    """

    segment: SegmentFile
    stat: tuple[int, int, int, int, int]
    following: int | None
    end_offset: int
    may_grow: bool
    is_racy: bool
    place: tuple[int, int] | None = None

    def copy(
        self, before: KnownSegment | None, partition: TopicPartition, writer: PieceWriter
    ) -> KnownSegment:
        """Copy what is not in the backup `before`. Raises `StorageError`, also if the file was replaced."""
        is_closed = self.following is not None
        if before is not None and is_closed and _is_scattered(before.pieces):
            before = None
        if before is not None and before.seen.stat == self.stat and before.seen.is_complete:
            return before
        if self.segment.gzipped:
            with OpenSegment(self.segment) as opened:
                return self._copy_from(opened.file, opened.size_bytes, None, partition, writer)
        with open_input(self.segment.log) as file:
            if not _is_file(file, self.stat):
                raise _ReplacedError("was replaced", file=self.segment.log)
            if before is not None and not (
                before.seen.stat[3:] == self.stat[3:]
                and before.seen.end_bytes <= self.stat[0]
                and same_batch(file, before.seen.last_batch_bytes, before.seen.last_batch_header)
            ):
                before = None
            return self._copy_from(file, self.stat[0], before, partition, writer)

    def _copy_from(
        self,
        file: BinaryIO,
        size_bytes: int,
        before: KnownSegment | None,
        partition: TopicPartition,
        writer: PieceWriter,
    ) -> KnownSegment:
        base, added_bytes = self.place or (self.segment.base_offset, 0)
        kept = () if before is None else before.pieces
        start_bytes = 0 if before is None else before.seen.end_bytes
        part = SegmentPart(
            self.segment.log,
            base,
            start_bytes,
            size_bytes,
            kept[-1].end_offset if kept else base,
            self.end_offset,
            self.following,
            self.may_grow,
        )
        done = copy_part(file, part, partition, writer)
        damage = () if before is None else before.damage
        damage = tuple(each for each in damage if (each.position_bytes or 0) < start_bytes)
        last = (done.last_batch_bytes, done.last_batch_header)
        if before is not None and not done.pieces:
            last = (before.seen.last_batch_bytes, before.seen.last_batch_header)
        seen = SegmentSeen(base, () if self.is_racy else self.stat, done.end_bytes, done.is_complete, *last)
        copy_damage = getattr(file, "damage", None)
        if isinstance(copy_damage, StorageError):
            damage += (
                Damage(self.segment.log, done.end_bytes, done.next_offset, self.following, copy_damage.what),
            )
        pieces = done.pieces
        if added_bytes:
            pieces = tuple(replace(each, start_bytes=each.start_bytes + added_bytes) for each in pieces)
        return KnownSegment((*kept, *pieces), seen, (*damage, *done.damage))


def _is_scattered(pieces: Sequence[Piece]) -> bool:
    """Whether a segment has many small pieces."""
    return (
        len(pieces) > MOST_PIECES and sum(each.size_bytes for each in pieces) < len(pieces) * PIECE_BYTES // 4
    )


def _is_file(file: BinaryIO, stat: tuple[int, ...]) -> bool:
    """Whether an open file is the one that was listed."""
    status = os.fstat(file.fileno())
    return (status.st_ino, status.st_dev) == stat[3:5]
