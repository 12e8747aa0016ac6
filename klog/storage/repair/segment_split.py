"""Divides a segment whose offsets exceed what its indexes can hold, as Kafka does.

Rules: Kafka's `LocalLog.splitOverflowedSegment` (KAFKA-6264). A new segment begins with the first batch, and
with each batch whose last offset does not fit the index of the segment before it. Each is named by its first
offset. Nothing is written here: the plan of a recovery reads the parts in the old file, and its run writes
them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, cast

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError, StorageError
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading
from klog.storage.files.seekable import SeekableStream

OpenSegment = Callable[[str], BinaryIO]


class Part(NamedTuple):
    """The bytes of a `.log` (`path`) from `start_bytes` to `end_bytes`, which become a segment."""

    path: str
    base_offset: int
    start_bytes: int
    end_bytes: int


class _Section(SeekableStream):
    """A part of a file, read as a file."""

    def __init__(self, file: BinaryIO, start_bytes: int, end_bytes: int) -> None:
        super().__init__(file)
        self._file = file
        self._start = start_bytes
        self.size_bytes = end_bytes - start_bytes

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        wanted = max(0, min(len(buffer), self.size_bytes - self._position))
        self._file.seek(self._start + self._position)
        got: int = self._file.readinto(memoryview(buffer)[:wanted])  # type: ignore[attr-defined]
        self._position += got
        return got


def open_part(part: Part) -> BinaryIO:
    """The part as a stream of its own. Raises `StorageError`."""
    return cast(BinaryIO, _Section(open_for_reading(part.path), part.start_bytes, part.end_bytes))


def divide(path: str) -> tuple[Part, ...]:
    """The parts of the segment at `path`. Empty if Kafka cannot split it, because other bytes follow the last
    batch, a single batch is too long, or no offset can follow it. Raises `StorageError`.
    """
    table = BatchTable()
    starts: list[tuple[int, int]] = []
    end = 0
    with open_for_reading(path) as file:
        for data in chunks(file, table):
            for row in range(len(table)):
                last = table.last_offset[row]
                if not starts or not 0 <= last - starts[-1][0] <= INT32_MAX:
                    first = _first_offset(data, table, row)
                    if first < 0 or not 0 <= last - first <= INT32_MAX or last >= INT64_MAX:
                        return ()
                    starts.append((first, table.position[row]))
            end = table.origin + table.consumed_bytes
        whole = file.seek(0, io.SEEK_END) == end
    if not whole or len({base for base, _ in starts}) < len(starts):
        return ()
    ends = [start for _, start in starts[1:]] + [end]
    return tuple(Part(path, base, start, stop) for (base, start), stop in zip(starts, ends, strict=True))


def _first_offset(data: memoryview, table: BatchTable, row: int) -> int:
    """The offset of a batch's first record, -1 if it cannot be read.

    In a compressed message set of magic 0 or 1 only the messages store it, so Kafka decompresses the set
    here, too.
    """
    first = table.base_offset[row]
    if first != OFFSET_UNKNOWN or table.magic[row] == 2:
        return first
    # Imported here, because loading Construct costs a tenth of a broker's start and is rarely needed.
    from klog.formats import message_set

    start = table.position[row] - table.origin
    try:
        wrapper = message_set.parse(data[start : start + table.size[row]], check_crc=False)
        return message_set.absolute_offsets(wrapper, message_set.inner(wrapper))[0]
    except (FormatError, IndexError):
        return OFFSET_UNKNOWN


def require_same(part: Part, path: str) -> None:
    """Check that a file that exists is this part, written by an earlier run; no other file is replaced.

    Raises `StorageError`.
    """
    with open_part(part) as new, open_for_reading(path) as old:
        same = old.seek(0, 2) == part.end_bytes - part.start_bytes
        old.seek(0)
        new_bytes, old_bytes = bytearray(1 << 20), bytearray(1 << 20)
        while same and (got := new.readinto(new_bytes)):  # type: ignore[attr-defined]
            same = old.readinto(old_bytes) == got and new_bytes == old_bytes  # type: ignore[attr-defined]
    if not same:
        raise StorageError(
            f"segment is too long for its index, and part of it would replace {os.path.basename(path)}",
            file=part.path,
            position_bytes=part.start_bytes,
            cure="move the other file away if it does not belong to the log, and recover again",
        )
