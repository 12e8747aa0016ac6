"""Writes a cleaned segment: `.cleaned` files, indexed by the rule of `LogSegment.append`."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Sequence
from typing import Final, Protocol

from klog.formats.checksums import Bytes
from klog.formats.names import FileKind
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, IndexState
from klog.storage.cleaner.task import CLEANED, SegmentOverflowError
from klog.storage.files.files import storage_error, storage_errors
from klog.storage.reading.producer_state import AbortedTxn, pack_aborted
from klog.storage.repair.segment_scan import pack_offset_index, pack_time_index

KINDS: Final = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_NS_PER_MS: Final = 1_000_000


class RewritingTask(Protocol):
    """What the writer needs to know of the task that rewrites a log."""

    @property
    def index_interval_bytes(self) -> int:
        """The topic's `index.interval.bytes`."""

    def path(self, kind: FileKind, base_offset: int) -> str:
        """A file of the segment, without the suffix of unfinished files."""


class CleanedSegment:
    """The `.cleaned` files of the segment that starts at `base_offset`; older files with these names are
    removed.
    """

    def __init__(self, task: RewritingTask, base_offset: int) -> None:
        self._task = task
        self._base_offset = base_offset
        self.size_bytes = 0
        self._table = BatchTable()
        self._index = IndexState(base_offset, task.index_interval_bytes)
        self.remove()
        path = self._path(FileKind.LOG)
        with storage_errors("cannot be written", path):
            self._file = open(path, "xb", buffering=0)  # noqa: SIM115 (closed by finish or remove)

    def _path(self, kind: FileKind) -> str:
        return self._task.path(kind, self._base_offset) + CLEANED

    def append(self, parts: Sequence[Bytes]) -> int:
        """Write whole batches; returns their bytes. Raises `StorageError`, `SegmentOverflowError`."""
        if not parts:
            return 0
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        table, state = self._table, self._index
        kernel.scan(data, self.size_bytes, True, table)
        # They were checked when they were read, or have just been built.
        table.valid = array("q", (1,)) * len(table)
        if not kernel.index(table, state):
            raise SegmentOverflowError(
                f"an offset does not fit a segment that starts at {self._base_offset}",
                file=self._path(FileKind.LOG),
                cure="a broker splits such a segment when it loads the log",
            )
        self._write_all(data)
        self.size_bytes += len(data)
        return len(data)

    def _write_all(self, data: Bytes) -> None:
        view = memoryview(data)
        with storage_errors("cannot be written", self._path(FileKind.LOG)):
            while view:
                view = view[self._file.write(view) :]

    def finish(self, aborted: Sequence[AbortedTxn], modified_ms: int, *, durable: bool = True) -> None:
        """Complete the files, and force them to disk if they are to be `durable`.

        They get the modification time of the segments that they replace.
        """
        state = self._index
        if state.max_timestamp > state.last_index_timestamp:
            state.timestamps.append(state.max_timestamp)
            state.timestamp_offsets.append(state.max_timestamp_offset - self._base_offset)
        indexes = {
            FileKind.OFFSET_INDEX: pack_offset_index(state.offsets, state.positions),
            FileKind.TIME_INDEX: pack_time_index(state.timestamps, state.timestamp_offsets),
        }
        if aborted:
            indexes[FileKind.TXN_INDEX] = pack_aborted(aborted)
        path = self._path(FileKind.LOG)
        try:
            if durable:
                os.fsync(self._file.fileno())
            self._file.close()
            for kind, data in indexes.items():
                path = self._path(kind)
                with open(path, "wb") as file:
                    file.write(data)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
            for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
                path = self._path(kind)
                os.utime(path, ns=(modified_ms * _NS_PER_MS, modified_ms * _NS_PER_MS))
        except OSError as error:
            raise storage_error("cannot be written", path, error) from error

    def abandon(self) -> None:
        """Remove the files, unless their swap has begun: then they belong to the log."""
        self._file.close()
        if os.path.exists(self._path(FileKind.LOG)):
            self.remove()

    def remove(self) -> None:
        """Remove the files."""
        for kind in KINDS:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(kind))
