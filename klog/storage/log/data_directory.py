"""One log directory of a broker as a whole: lock, identity, clean-stop marker, checkpoints.

Rules: Kafka's `LogManager`, `FileLock`, `CleanShutdownFileHandler`, `OffsetCheckpointFile` and
`MetaPropertiesEnsemble`. `loading` and `partition_log` work on the partition directories.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Mapping

from klog.formats import clean_shutdown, meta_properties
from klog.formats.clean_shutdown import CleanShutdown
from klog.formats.errors import StorageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import FileKind, TopicPartition
from klog.storage.files.checkpoint_files import read_identity, read_offsets, write_offsets
from klog.storage.files.directory_lock import holder_of, remove_unfinished
from klog.storage.files.files import storage_errors, write_atomically
from klog.storage.log.open_file import sync_file

_NO_BROKER_EPOCH = -1


class DirectoryLockedError(StorageError):
    """Another broker uses a log directory."""


class DataDirectory:
    """One log directory. The methods raise `StorageError` or `OSError` if the disk fails."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.checkpoint_lock = threading.Lock()  # held by whoever writes offset checkpoints
        self._lock_descriptor = -1

    def __repr__(self) -> str:
        return f"DataDirectory({self.path!r})"

    def file(self, kind: FileKind) -> str:
        """The path of a file of this kind."""
        return os.path.join(self.path, kind)

    def prepare(self) -> None:
        """Create the directory if it is missing."""
        with storage_errors("cannot be created", self.path):
            if not os.path.isdir(self.path):
                os.makedirs(self.path)
                sync_file(os.path.dirname(self.path))

    def take_lock(self) -> None:
        """Lock the directory until `release_lock`, and remove unfinished files.

        Raises `DirectoryLockedError` if another process has locked it.
        """
        with storage_errors("cannot be locked", self.file(FileKind.LOCK)):
            self._lock_descriptor = os.open(self.file(FileKind.LOCK), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release_lock()
            raise DirectoryLockedError(
                f"{holder_of(self.path) or 'another broker'} is using this log directory",
                file=self.path,
                cure="stop it, or give this broker a directory of its own in log.dirs",
            ) from error
        remove_unfinished(self.path)

    def release_lock(self) -> None:
        """Unlock the directory."""
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    # -- identity --------------------------------------------------------------------------------------------

    def read_identity(self) -> MetaProperties | None:
        """The broker and cluster that it belongs to; None for a new one. Raises StorageError, FormatError."""
        return read_identity(self.file(FileKind.META_PROPERTIES))

    def write_identity(self, broker_id: int, cluster_id: str) -> None:
        """Write `meta.properties` for this broker, unless it says so already. Raises `FormatError`."""
        known = self.read_identity()
        if known is not None and (known.node_id, known.cluster_id) == (broker_id, cluster_id):
            return
        directory_id = None if known is None else known.directory_id
        properties = meta_properties.create(
            0, node_id=broker_id, cluster_id=cluster_id, directory_id=directory_id, comments=("",)
        )
        write_atomically(self.file(FileKind.META_PROPERTIES), meta_properties.build(properties))

    # -- clean stop ------------------------------------------------------------------------------------------

    def take_clean_marker(self) -> bool:
        """Whether the last broker stopped cleanly. The marker is removed: a crash from now on is a crash."""
        path = self.file(FileKind.CLEAN_SHUTDOWN)
        was_clean = os.path.exists(path)
        if was_clean:
            os.unlink(path)
            sync_file(self.path)
        return was_clean

    def write_clean_marker(self) -> None:
        """Mark the directory as cleanly stopped: every log in it has been closed."""
        marker = CleanShutdown(0, _NO_BROKER_EPOCH)
        write_atomically(self.file(FileKind.CLEAN_SHUTDOWN), clean_shutdown.build(marker))

    # -- checkpoints -----------------------------------------------------------------------------------------

    def read_offsets(self, kind: FileKind) -> dict[TopicPartition, int]:
        """The offsets of a checkpoint; none if there is no file. Raises `FormatError`."""
        return read_offsets(self.file(kind))

    def write_offsets(self, kind: FileKind, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the offsets of a checkpoint."""
        write_offsets(self.file(kind), offsets)
