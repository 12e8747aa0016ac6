"""Makes a log directory that a broker can open, out of links to the segments of a backup.

The directory has the names and the small files of a log directory. Segments that are whole are links to the
backup's files, which the broker only reads. The parts of others are copied: what a damaged or unfinished end
leaves, gzipped copies, and objects of a store. Each partition ends with an empty segment of the directory's
own, so that nothing is ever appended to a file of the backup.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from klog.formats import checkpoints, partition_metadata
from klog.formats.checkpoints import EpochCheckpoint
from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition, segment_file
from klog.formats.partition_metadata import PartitionMetadata
from klog.replicas.concurrency import map_concurrently
from klog.replicas.files import is_remote, local_path, open_input, read_small
from klog.replicas.replica_contents import Extent, map_segments
from klog.replicas.replicas import MergedLog
from klog.replicas.splitting import Piece, narrowed
from klog.server.read_only.backup import Backup
from klog.server.read_only.damage_search import ServedSegment
from klog.storage.files.checkpoint_files import write_offsets
from klog.storage.files.disk import Disk
from klog.storage.files.files import storage_error
from klog.storage.log.data_directory import DataDirectory

_COPIED_BYTES: Final = 1 << 20
_MAX_CONCURRENT_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class Scratch:
    """How much of the backup is linked and how much had to be copied, in bytes; and all segments."""

    linked_bytes: int = 0
    copied_bytes: int = 0
    segments: tuple[ServedSegment, ...] = ()


def make_scratch(
    backup: Backup, directory: Path, cluster_id: str, on_partition: Callable[[int, int], None]
) -> Scratch:
    """Fill an empty directory with the partitions of a backup.

    `on_partition` is called with how many are done and how many there are. Raises StorageError.
    """
    copies = _copies(backup)
    _require_space(directory, sum(piece.length_bytes for piece in copies.values()))
    done = 0
    counting = Lock()

    def make(partition: TopicPartition) -> Scratch:
        nonlocal done
        made = _partition(directory / str(partition), partition, backup.logs[partition], copies)
        with counting:
            done += 1
            on_partition(done, len(backup.logs))
        return made

    remote = any(is_remote(piece.segment.log) for piece in copies.values())
    try:
        made = map_concurrently(make, sorted(backup.logs), remote=remote, most=_MAX_CONCURRENT_PARTITIONS)
    except OSError as error:
        raise storage_error("cannot be written", error.filename or directory, error) from error
    _write_checkpoints(directory, backup.logs)
    DataDirectory(str(directory)).write_identity(max(backup.broker_id, 0), cluster_id)
    return Scratch(
        sum(one.linked_bytes for one in made),
        sum(one.copied_bytes for one in made),
        tuple(segment for one in made for segment in one.segments),
    )


def _copies(backup: Backup) -> dict[Extent, Piece]:
    """What has to be copied: the extents that cannot be served where they are."""
    pieces = [
        Piece(partition, extent, extent.first_offset, extent.end_offset, None)
        for partition, log in backup.logs.items()
        for extent in log.extents
        if not _is_whole(extent)
    ]
    return {piece.extent: piece for piece in map_segments(narrowed, pieces)}


def _require_space(directory: Path, needed_bytes: int) -> None:
    free_bytes, _ = Disk().space_below(str(directory), str(directory))
    if needed_bytes > free_bytes:
        raise StorageError(
            f"{needed_bytes} bytes have to be copied here, {free_bytes} are free",
            file=str(directory),
            cure="set TMPDIR to a larger disk; or copy the backup to a local disk and unpack it, "
            "where it is served in place",
        )


def _write_checkpoints(directory: Path, logs: Mapping[TopicPartition, MergedLog]) -> None:
    """All that is there counts as flushed and as replicated: recovery reads only the empty last segments."""
    ends = {partition: log.log_end_offset for partition, log in logs.items()}
    starts = {partition: log.log_start_offset for partition, log in logs.items()}
    for kind, offsets in (
        (FileKind.RECOVERY_POINT_CHECKPOINT, ends),
        (FileKind.REPLICATION_CHECKPOINT, ends),
        (FileKind.LOG_START_CHECKPOINT, starts),
    ):
        write_offsets(str(directory / kind), offsets)


def _partition(
    target: Path, partition: TopicPartition, log: MergedLog, copies: Mapping[Extent, Piece]
) -> Scratch:
    target.mkdir()
    linked = copied = 0
    segments = []
    following = [*(extent.first_offset for extent in log.extents[1:]), log.log_end_offset]
    for extent, next_offset in zip(log.extents, following, strict=False):
        piece = copies.get(extent)
        base, start_bytes, size_bytes = extent.segment.base_offset, 0, extent.end.end_bytes
        if piece is None:
            _link(target, extent, with_indexes=extent is not log.extents[-1])
            linked += size_bytes
        else:
            start_bytes = piece.start.position_bytes
            base = base if start_bytes == 0 else piece.start.offset
            size_bytes = _copy(target / segment_file(FileKind.LOG, base), piece)
            copied += size_bytes
        file = local_path(extent.segment.log)
        segments.append(
            ServedSegment(
                partition, str(target), base, size_bytes, file, start_bytes, next_offset, piece is None
            )
        )
    last = target / segment_file(FileKind.LOG, log.log_end_offset)
    if not last.exists():
        last.touch()
    chosen = log.all_contents[0].replica
    if chosen.topic_id is not None:
        metadata = partition_metadata.build(PartitionMetadata(chosen.topic_id))
        (target / FileKind.PARTITION_METADATA).write_bytes(metadata)
    if chosen.epochs:
        epochs = checkpoints.build_epochs(EpochCheckpoint(chosen.epochs))
        (target / FileKind.LEADER_EPOCH_CHECKPOINT).write_bytes(epochs)
    for offset, path in chosen.snapshots:
        if offset <= log.log_end_offset:
            (target / segment_file(FileKind.PRODUCER_SNAPSHOT, offset)).write_bytes(read_small(path))
    return Scratch(linked, copied, tuple(segments))


def _is_whole(extent: Extent) -> bool:
    """Whether the file can be served as it is: it is local and plain, and nothing follows its last batch."""
    segment, end = extent.segment, extent.end
    return (
        not is_remote(segment.log)
        and not segment.gzipped
        and extent.first_offset == segment.base_offset
        and extent.end_offset == end.end_offset
        and end.end_bytes == segment.size_bytes
    )


def _link(target: Path, extent: Extent, *, with_indexes: bool) -> None:
    """Link a segment, and its indexes if they are complete: a broker that was killed leaves those of the last
    segment unfinished, and recovery makes them anew.
    """
    segment = extent.segment
    kinds = {FileKind.LOG: segment.log}
    if with_indexes and segment.offset_index is not None and segment.time_index is not None:
        kinds |= {FileKind.OFFSET_INDEX: segment.offset_index, FileKind.TIME_INDEX: segment.time_index}
        if segment.txn_index is not None:
            kinds[FileKind.TXN_INDEX] = segment.txn_index
    for kind, path in kinds.items():
        (target / segment_file(kind, segment.base_offset)).symlink_to(os.path.abspath(local_path(path)))


def _copy(target: Path, piece: Piece) -> int:
    """Copy the batches of an extent into a segment; how many bytes they have."""
    left = piece.length_bytes
    with open_input(piece.segment.log) as source, open(target, "wb") as copy:
        source.seek(piece.start.position_bytes)
        while left > 0 and (data := source.read(min(left, _COPIED_BYTES))):
            copy.write(data)
            left -= len(data)
    return piece.length_bytes - left
