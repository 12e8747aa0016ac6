"""Ends the conversion of a partition whose tasks are all done: by the swap, or else by copying the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klog.convert.epochs import write_epochs
from klog.convert.partition_plan import PartitionPlan
from klog.convert.partition_state import PartitionState, Swap, is_state
from klog.convert.snapshots import write_snapshots
from klog.convert.swapping import bases_of, swap_in
from klog.convert.tasks import NewSegment, TaskResult
from klog.formats.errors import CorruptRecordError
from klog.formats.names import FileKind, FileName, segment_file
from klog.storage.cleaner.output import KINDS
from klog.storage.cleaner.swap import DirectoryChanges
from klog.storage.cleaner.task import CLEANED
from klog.storage.files.disk import Disk
from klog.storage.files.files import open_for_reading, storage_error, sync_directory
from klog.storage.files.partition_files import list_partition

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
        try:
            disk.copy_part(original, 0, os.path.getsize(original), copy)
            shutil.copystat(original, copy)
        except OSError as error:
            raise storage_error("cannot be copied", original, error) from error
    sync_directory(target)
