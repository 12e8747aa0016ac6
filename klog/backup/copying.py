"""Copies the valid batches of a segment into pieces, and notes what is damaged between them.

A batch is valid if its checksum matches and its offset does not decrease. After damage the next valid batch
is searched for, so only damaged batches are missing from a backup.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import BinaryIO, Final

from klog.backup.model import Damage, Piece
from klog.backup.pieces import PieceWriter, SegmentPieces
from klog.formats.checksums import Bytes
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.files.chunks import CHUNK_BYTES, chunks
from klog.storage.files.files import read_at
from klog.storage.reading.batch_search import MAX_BATCH_BYTES, first_filled_byte, next_valid_batch
from klog.storage.reading.tail import tail_problem

_LEAST_CHUNK_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """What to copy: the batches of `file` from `start_bytes` to before `size_bytes`, below `end_offset`.

    `next_offset` is the lowest offset that the first batch may have. `is_last` says that the segment is the
    last one of a log that a broker may be writing: bytes at its end may be a batch that is not complete yet.
    """

    path: str
    base_offset: int
    start_bytes: int
    size_bytes: int
    next_offset: int
    end_offset: int
    following_offset: int | None
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """The pieces and the damage of a part, and where its valid batches end.

    `is_complete` says that no valid batch follows `end_bytes`. The last batch begins at `last_batch_bytes`,
    -1 if there is none, and has this header.
    """

    pieces: tuple[Piece, ...]
    damage: tuple[Damage, ...]
    end_bytes: int
    next_offset: int
    is_complete: bool
    last_batch_bytes: int = -1
    last_batch_header: str = ""


def copy_part(file: BinaryIO, part: SegmentPart, partition: TopicPartition, writer: PieceWriter) -> Copied:
    """Copy a part of a segment. Raises `StorageError`."""
    copy = _Copy(file, part, partition, writer)
    try:
        return copy.run()
    finally:
        copy.discard()


class _Copy:
    def __init__(
        self, file: BinaryIO, part: SegmentPart, partition: TopicPartition, writer: PieceWriter
    ) -> None:
        self._file = file
        self._part = part
        self._writer = writer
        self._table = BatchTable()
        self._made = SegmentPieces(writer, partition, part.base_offset, part.next_offset, part.start_bytes)
        self._damage: list[Damage] = []

    def discard(self) -> None:
        """Remove a piece that was begun."""
        self._made.discard()

    def run(self) -> Copied:
        position: int | None = self._part.start_bytes
        is_complete = True
        while position is not None:
            if self._copy_run(position):
                is_complete = False
                break
            position = self._after_damage()
        self._made.finish_piece()
        return Copied(
            tuple(self._made.pieces),
            tuple(self._damage),
            self._made.end_bytes,
            self._made.next_offset,
            is_complete and not self._has_unfinished_tail(),
            *self._made.last,
        )

    def _copy_run(self, position: int) -> bool:
        """Copy consecutive valid batches. True if they end at the offset that the part ends at."""
        table, part = self._table, self._part
        self._made.end_bytes = position
        self._rest: Bytes = b""
        for data in chunks(
            self._file,
            table,
            start_bytes=position,
            end_bytes=part.size_bytes,
            max_batch_bytes=MAX_BATCH_BYTES,
            chunk_bytes=min(CHUNK_BYTES, max(_LEAST_CHUNK_BYTES, part.size_bytes - position)),
            keeps_previous=True,  # it may still be hashed
        ):
            self._writer.on_bytes(table.consumed_bytes)
            wanted, is_bound = self._wanted(data)
            if wanted:
                self._made.add(data, table, 0, wanted)
            if is_bound:
                return True
            if wanted < len(table):
                return False
        return False

    def _wanted(self, data: memoryview) -> tuple[int, bool]:
        """How many of the first batches are valid and below the end, and whether the end comes next."""
        table, part = self._table, self._part
        if len(table) == 0:
            return 0, False
        if kernel.verify(data, table) == 0 and self._ascends():
            return len(table), False
        due = self._made.next_offset
        most = part.end_offset if part.following_offset is None else part.following_offset
        for row in range(len(table)):
            last = table.last_offset[row]
            if last >= part.end_offset:
                return row, True
            if not table.valid[row] or self._first(row) < due or last < due or last >= most:
                return row, False
            if row + 1 < len(table) and due <= self._first(row + 1) <= last and table.valid[row + 1]:
                return row, False  # the checksum does not cover the offset: it is this one that is wrong
            due = last + 1
        return len(table), False

    def _ascends(self) -> bool:
        """Whether the offsets of all batches are known, ascend, and belong to this part."""
        table, part = self._table, self._part
        most = part.end_offset if part.following_offset is None else part.following_offset
        return (
            OFFSET_UNKNOWN not in table.base_offset
            and table.base_offset[0] >= self._made.next_offset
            and table.last_offset[-1] < min(part.end_offset, most)
            and all(map(operator.le, table.base_offset, table.last_offset))
            and all(map(operator.lt, table.last_offset, table.base_offset[1:]))
        )

    def _first(self, row: int) -> int:
        """The base offset; of a compressed set of magic 0 or 1 the only one in its header, the last."""
        first = self._table.base_offset[row]
        return self._table.last_offset[row] if first == OFFSET_UNKNOWN else first

    def _after_damage(self) -> int | None:
        """The position of the next valid batch after the damage at the end of a run; None if none follows."""
        part, start = self._part, self._made.end_bytes
        if start >= part.size_bytes or first_filled_byte(self._file, start, part.size_bytes) is None:
            return None  # the rest was only preallocated
        found = next_valid_batch(self._file, start + 1, part.size_bytes, from_offset=self._made.next_offset)
        if found is None and part.is_last:
            return None
        self._made.finish_piece()
        end_offset = part.following_offset
        position = None
        if found is not None:
            position = found.position[0]
            first = found.base_offset[0]
            end_offset = found.last_offset[0] if first == OFFSET_UNKNOWN else first
        self._damage.append(
            Damage(part.path, start, self._made.next_offset, end_offset, self._what_is_wrong(start))
        )
        if found is not None and end_offset is not None:
            self._made.next_offset = max(self._made.next_offset, end_offset)
        return position

    def _has_unfinished_tail(self) -> bool:
        part = self._part
        return (
            part.is_last
            and self._made.end_bytes < part.size_bytes
            and first_filled_byte(self._file, self._made.end_bytes, part.size_bytes) is not None
        )

    def _what_is_wrong(self, position: int) -> str:
        table = BatchTable()
        left = self._part.size_bytes - position
        data = read_at(self._file, position, min(BATCH_HEADER_BYTES, left))
        kernel.scan(data, position, False, table)
        if not len(table) and len(data) < table.need_bytes <= min(left, MAX_BATCH_BYTES):
            data = read_at(self._file, position, table.need_bytes)
            kernel.scan(data, position, True, table)
        if len(table):
            kernel.verify(data[: table.size[0]], table)
            if not table.valid[0]:
                return (
                    f"the batch fails its checksum (stored {table.crc[0]}, computed {table.computed_crc[0]})"
                )
            return (
                f"the batch has offset {table.last_offset[0]}, at least {self._made.next_offset} is expected"
            )
        problem = tail_problem(table, data)
        return "no valid batch is found here" if problem is None else problem.what


def same_batch(file: BinaryIO, position_bytes: int, header: str) -> bool:
    """Whether a batch with this header (hex) is at a position."""
    expected = bytes.fromhex(header)
    return bool(expected) and read_at(file, position_bytes, len(expected)) == expected
