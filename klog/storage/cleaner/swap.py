"""Replaces segments by the cleaned segment made from them, so that a crash at any time loses nothing.

Rules: Kafka's `LocalLog.replaceSegments`, and `LogLoader` for an interrupted one: while a file is named
`.cleaned` the swap has not happened; once all are named `.swap`, the next start completes it. klog takes one
more step than Kafka: it forces the directory to disk between the two halves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from klog.formats.names import FileKind, segment_file
from klog.storage.cleaner.output import KINDS
from klog.storage.cleaner.task import CLEANED, DELETED, SWAP, CleanedGroup
from klog.storage.files.files import storage_errors, sync_directory


class DirectoryChanges:
    """The changes of a swap, one method each, so that tests can interrupt them. All raise `OSError`."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name."""
        os.rename(source, target)

    def sync(self, directory: str) -> None:
        """Force the names in a directory to disk."""
        sync_directory(directory)

    def unlink(self, path: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def swap_in(
    directory: str,
    group: CleanedGroup,
    changes: DirectoryChanges | None = None,
    *,
    held: AbstractContextManager[object] | None = None,
    let_go: Callable[[], None] = lambda: None,
    take_up: Callable[[], None] = lambda: None,
) -> list[str]:
    """Swap the group's files in; returns the `.deleted` files that must be removed, now or later.

    The owner of the log holds its lock (`held`) only while names that it uses change, not while the disk is
    written. `let_go` is called before that for the old segments, and `take_up` after it for the new one.
    Raises `StorageError`.
    """
    changes = DirectoryChanges() if changes is None else changes
    new = [os.path.join(directory, segment_file(kind, group.base_offset)) for kind in KINDS]
    with storage_errors("cleaned segment cannot be swapped in", directory):
        for path in _there(new, CLEANED):
            changes.rename(path + CLEANED, path + SWAP)
        changes.sync(directory)
        with held or contextlib.nullcontext():
            let_go()
            gone = mark_deleted(directory, group.replaces, changes, keep_snapshot_of=group.base_offset)
            for path in _there(new, SWAP):
                changes.rename(path + SWAP, path)
            take_up()
        changes.sync(directory)
    return gone


def discard(directory: str, group: CleanedGroup) -> None:
    """Remove the files of a group whose swap was refused. Raises `OSError`."""
    changes = DirectoryChanges()
    for kind in KINDS:
        changes.unlink(os.path.join(directory, segment_file(kind, group.base_offset)) + SWAP)
    changes.sync(directory)


def mark_deleted(
    directory: str,
    base_offsets: Sequence[int],
    changes: DirectoryChanges,
    *,
    keep_snapshot_of: int | None = None,
) -> list[str]:
    """Rename the files of segments, and the producer snapshots at their start, to `.deleted`.

    Returns the new names. Raises `OSError`.
    """
    gone = []
    for base_offset in base_offsets:
        kinds = KINDS if base_offset == keep_snapshot_of else (*KINDS, FileKind.PRODUCER_SNAPSHOT)
        paths = [os.path.join(directory, segment_file(kind, base_offset)) for kind in kinds]
        for path in _there(paths, ""):
            changes.rename(path, path + DELETED)
            gone.append(path + DELETED)
    return gone


def remove(paths: Sequence[str], changes: DirectoryChanges | None = None) -> None:
    """Remove files that no longer belong to the log. Raises `StorageError`."""
    changes = DirectoryChanges() if changes is None else changes
    for path in paths:
        with storage_errors("cannot be removed", path):
            changes.unlink(path)


def _there(paths: Sequence[str], suffix: str) -> list[str]:
    return [path for path in paths if os.path.exists(path + suffix)]
