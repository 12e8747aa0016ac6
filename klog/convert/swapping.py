"""Replaces the segments of a log by converted ones, so that a crash at any time loses nothing.

Rules: those of Kafka's `LogLoader` for a segment split. As long as a file is named `.cleaned`, the swap has
not happened: the new files are renamed to `.swap` from the last segment to the first. Once all are named
`.swap`, they are the log: a broker that starts removes what they replace and gives them their names. klog
itself goes on from any step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from klog.convert.partition_state import Swap
from klog.convert.tasks import NewSegment
from klog.formats.names import FileKind, segment_file
from klog.storage.cleaner.swap import DirectoryChanges, mark_deleted, remove
from klog.storage.cleaner.task import CLEANED, DELETED, SWAP
from klog.storage.files.files import list_directory, storage_errors


def swap_in(directory: str, swap: Swap, changes: DirectoryChanges | None = None) -> None:
    """Carry out a swap, or go on with one that was interrupted. Raises `StorageError`."""
    changes = DirectoryChanges() if changes is None else changes
    with storage_errors("converted segments cannot be swapped in", directory):
        _to_swap(directory, swap, changes)
        if os.path.exists(_log(directory, swap.segments[0]) + SWAP):
            # None of the new files has its name, so files without a suffix are old ones.
            _mark_old(directory, swap, changes)
        _to_final(directory, swap, changes)
    remove(_deleted(directory, swap), changes)


def _to_swap(directory: str, swap: Swap, changes: DirectoryChanges) -> None:
    for segment in reversed(swap.segments):
        for path in _paths(directory, segment):
            if os.path.exists(path + CLEANED):
                changes.rename(path + CLEANED, path + SWAP)
    changes.sync(directory)


def _mark_old(directory: str, swap: Swap, changes: DirectoryChanges) -> None:
    starts = {segment.base_offset for segment in swap.segments}
    for base in swap.replaces:
        mark_deleted(directory, [base], changes, keep_snapshot_of=base if base in starts else None)
    changes.sync(directory)


def _to_final(directory: str, swap: Swap, changes: DirectoryChanges) -> None:
    for segment in swap.segments:
        for path in _paths(directory, segment):
            if os.path.exists(path + SWAP):
                changes.rename(path + SWAP, path)
    changes.sync(directory)


def _paths(directory: str, segment: NewSegment) -> list[str]:
    """The files of a new segment, the `.log` first."""
    return [
        os.path.join(directory, segment_file(FileKind(kind), segment.base_offset)) for kind in segment.files
    ]


def _log(directory: str, segment: NewSegment) -> str:
    return os.path.join(directory, segment_file(FileKind.LOG, segment.base_offset))


def _deleted(directory: str, swap: Swap) -> Sequence[str]:
    """The `.deleted` files of the old segments."""
    starts = {f"{base:020d}" for base in swap.replaces}
    return [
        os.path.join(directory, entry.name)
        for entry in list_directory(directory)
        if entry.name.endswith(DELETED) and entry.name.partition(".")[0] in starts
    ]


def bases_of(segments: Iterable[NewSegment]) -> list[int]:
    """The base offsets of segments."""
    return [segment.base_offset for segment in segments]
