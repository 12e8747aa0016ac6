"""Ends the conversion of a partition whose tasks are all done: by the swap, or else by copying the rest."""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from klog.convert.partition_plan import PartitionPlan
from klog.convert.partition_state import PartitionState, Swap, is_state
from klog.convert.swapping import bases_of, swap_in
from klog.convert.tasks import NewSegment, TaskResult
from klog.formats.checkpoints import EpochCheckpoint, EpochEntry, build_epochs
from klog.formats.constants import INT64_MAX, MAGIC_POSITION, MAGIC_V2
from klog.formats.errors import CorruptRecordError, FormatError
from klog.formats.names import FileKind, FileName, segment_file
from klog.kernel.columns import BatchTable
from klog.storage.cleaner.output import KINDS
from klog.storage.cleaner.swap import DirectoryChanges
from klog.storage.cleaner.task import CLEANED
from klog.storage.files.checkpoint_files import read_leader_epochs
from klog.storage.files.chunks import chunks
from klog.storage.files.disk import Disk
from klog.storage.files.files import (
    open_for_reading,
    read_whole,
    storage_errors,
    sync_directory,
    write_atomically,
)
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.reading.producer_history import History
from klog.storage.reading.producer_state import ProducerState, newest_state
from klog.storage.repair.recovery_epochs import note_epochs

_COMPARED_BYTES: Final = 1 << 20
_COPIED: Final = (FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA)


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What became of a partition. `changed` is False if the new segments are those that were there."""

    plan: PartitionPlan
    segments: tuple[NewSegment, ...]
    batches_read: int = 0
    batches_written: int = 0
    records_compared: int | None = None
    changed: bool = True

    @property
    def new_bytes(self) -> int:
        """Bytes of the new segments."""
        return sum(segment.size_bytes for segment in self.segments)


def settle(directory: str, changes: DirectoryChanges | None = None) -> None:
    """Complete a swap that was interrupted. Raises `StorageError`."""
    state = PartitionState(directory)
    swap = state.swap()
    if swap is not None:
        swap_in(directory, swap, changes)
        state.end()


def finish(
    plan: PartitionPlan, results: Sequence[TaskResult], changes: DirectoryChanges | None = None
) -> PartitionOutcome:
    """Put the new segments in their place. Raises `KlogError`; then the originals are as they were."""
    state = PartitionState(plan.target)
    ordered = sorted(results, key=lambda result: result.number)
    segments = tuple(segment for result in ordered for segment in result.segments)
    _require_chain(plan, segments)
    changed = not plan.is_in_place or not _is_same(plan, segments)
    if plan.is_in_place and not changed:
        state.discard()
    else:
        if any(result.has_producers for result in ordered):
            write_snapshots(plan.directory, plan.target, bases_of(segments))
        if not plan.is_in_place:
            _copy_rest(plan, segments)
        write_epochs(plan, segments)
        replaces = plan.replaces if plan.is_in_place else ()
        swap = Swap(replaces, segments)
        if segments:
            state.begin_swap(plan, swap)
            swap_in(plan.target, swap, changes)
        state.end()
    compared = [result.records_compared for result in ordered]
    return PartitionOutcome(
        plan,
        segments,
        sum(result.batches_read for result in ordered),
        sum(result.batches_written for result in ordered),
        sum(filter(None, compared)) if compared and None not in compared else None,
        changed,
    )


def _require_chain(plan: PartitionPlan, segments: Sequence[NewSegment]) -> None:
    """Raise `CorruptRecordError` if segments overlap: a segment of the original holds offsets of the next."""
    following = [base for base in plan.kept if plan.replaces and base > plan.replaces[-1]]
    bases = [*(segment.base_offset for segment in segments[1:]), *following[:1]]
    for segment, base in zip(segments, bases, strict=False):
        if segment.next_offset > base:
            raise CorruptRecordError(
                f"offset {segment.next_offset - 1} lies before the segment that starts at {base}",
                file=plan.directory,
                cure="`klog verify` shows the damage; nothing was changed",
            )


def _is_same(plan: PartitionPlan, segments: Sequence[NewSegment]) -> bool:
    if tuple(bases_of(segments)) != plan.replaces:
        return False
    for segment in segments:
        path = os.path.join(plan.directory, segment_file(FileKind.LOG, segment.base_offset))
        if os.path.getsize(path) != segment.size_bytes or not _same_files(path, path + CLEANED):
            return False
    return True


def _same_files(one: str, other: str) -> bool:
    with open_for_reading(one) as a, open_for_reading(other) as b:
        while part := a.read(_COMPARED_BYTES):
            if part != b.read(_COMPARED_BYTES):
                return False
        return not b.read(1)


def _copy_rest(plan: PartitionPlan, segments: Sequence[NewSegment]) -> None:
    """Copy the files of segments that stay as they are, and the partition's own files."""
    files = list_partition(plan.directory)
    names = [FileName(kind, base) for base in plan.kept for kind in KINDS]
    starts = {*plan.kept, *bases_of(segments)}
    last = max(starts, default=0)
    names += [FileName(FileKind.PRODUCER_SNAPSHOT, at) for at in files.snapshots if at in starts or at > last]
    wanted = [str(name) for name in names] + [str(kind) for kind in _COPIED]
    if not plan.tasks:
        wanted = [name for name in files.sizes if not is_state(name)]
    os.makedirs(plan.target, exist_ok=True)
    copy_files(plan.directory, plan.target, [name for name in wanted if name in files.sizes])


def copy_files(source: str, target: str, names: Sequence[str]) -> None:
    """Copy files with their times and owners. Raises `StorageError`."""
    disk = Disk()
    for name in names:
        original, copy = os.path.join(source, name), os.path.join(target, name)
        with storage_errors("cannot be copied", original):
            disk.copy_part(original, 0, os.path.getsize(original), copy)
            shutil.copystat(original, copy)
    sync_directory(target)


# -- Producer snapshots at the starts of the new segments, from the original batches -------------------------
# Rules: Kafka takes a snapshot when it rolls a segment (`ProducerStateManager`). It stores the last batch of
# each producer as the producer sent it, so that a retry of that batch is recognised. Therefore the originals
# are followed. No producer expires, since that would need a clock.


def write_snapshots(directory: str, target: str, bases: Iterable[int]) -> None:
    """Write the snapshots at these offsets that are missing, except at the start of the log.

    Raises `StorageError`.
    """
    files = list_partition(directory)
    missing = sorted(set(bases) - set(files.snapshots) - set(files.segments[:1]))
    if missing:
        _Follower(files, missing, target).run()


class _Follower:
    """Follows the producers through the originals, and writes a snapshot at each of the offsets."""

    def __init__(self, files: PartitionFiles, offsets: list[int], target: str) -> None:
        self._files = files
        self._wanted = offsets[::-1]
        self._target = target
        self._state = _newest(files, offsets[0])

    def run(self) -> None:
        for base, following in pairwise((*self._files.segments, INT64_MAX)):
            if following <= self._state.end_offset:
                continue
            table = BatchTable()
            with open_for_reading(self._files.file(FileKind.LOG, base)) as file:
                for data in chunks(file, table):
                    self._follow(data, table)
                    if not self._wanted:
                        return

    def _follow(self, data: memoryview, table: BatchTable) -> None:
        state = self._state
        row = bisect_left(table.last_offset, state.end_offset)
        while row < len(table) and self._wanted:
            end = bisect_left(table.last_offset, self._wanted[-1], row)
            state.follow(data, table, row, end)
            row = max(row, end)
            if end < len(table):
                state.end_offset = self._wanted.pop()
                path = os.path.join(self._target, segment_file(FileKind.PRODUCER_SNAPSHOT, state.end_offset))
                write_atomically(path, state.snapshot())


def _newest(files: PartitionFiles, offset: int) -> ProducerState:
    """The producers of the newest valid snapshot up to an offset; none if there is no snapshot."""
    state = newest_state(
        (at for at in reversed(files.snapshots) if at <= offset),
        lambda at: read_whole(files.file(FileKind.PRODUCER_SNAPSHOT, at)),
        history=History(),
    )
    return ProducerState(0, History()) if state is None else state


# The `leader-epoch-checkpoint` of a converted log, if batches get a leader epoch that it does not have.
# Messages of magic 0 and 1 have no leader epoch, so a checkpoint knows nothing of them. After a clean stop
# Kafka does not look for epochs in batches. A leader of epoch 0 would then note that its epoch starts at the
# log's end.

_OLD_EPOCH: Final = 0
"""What messages before the first epoch of the checkpoint get (`EpochOfOffset`)."""


def write_epochs(plan: PartitionPlan, segments: Sequence[NewSegment]) -> None:
    """Add the epoch of messages that had none to the checkpoint in the target. Raises `StorageError`."""
    if not segments or not _is_old(plan):
        return
    try:
        entries = read_leader_epochs(plan.directory)
    except FormatError:
        return  # a broker that cannot read it makes it anew from the batches
    first = EpochEntry(_OLD_EPOCH, segments[0].base_offset)
    if not entries:
        entries = _of_batches(plan, first)
    elif entries[0].start_offset <= first.start_offset:
        return
    elif entries[0].epoch <= _OLD_EPOCH:
        entries = (first, *entries[1:])
    else:
        entries = (first, *entries)
    path = os.path.join(plan.target, FileKind.LEADER_EPOCH_CHECKPOINT)
    write_atomically(path, build_epochs(EpochCheckpoint(entries)))


def _is_old(plan: PartitionPlan) -> bool:
    """Whether the log begins with messages of magic 0 or 1."""
    source = plan.tasks[0].sources[0]
    with open_for_reading(_log(plan, source.base_offset)) as file:
        file.seek(source.start_bytes + MAGIC_POSITION)
        return file.read(1) < bytes((MAGIC_V2,))


def _of_batches(plan: PartitionPlan, first: EpochEntry) -> tuple[EpochEntry, ...]:
    """The epochs of a log that has no checkpoint."""
    found = [first]
    table = BatchTable()
    for base in sorted((*plan.replaces, *plan.kept)):
        with open_for_reading(_log(plan, base)) as file:
            for _ in chunks(file, table):
                note_epochs(table, len(table), found)
    return tuple(found)


def _log(plan: PartitionPlan, base_offset: int) -> str:
    return os.path.join(plan.directory, segment_file(FileKind.LOG, base_offset))
