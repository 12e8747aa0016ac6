"""Copies the valid batches of a segment into pieces, and notes what is damaged between them.

A batch is valid if its checksum matches and its offset does not decrease. After damage the next valid batch
is searched for, so only damaged batches are missing from a backup.
"""

from __future__ import annotations

import hashlib
import operator
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

from klog.backup import names
from klog.backup.model import Damage, Piece
from klog.backup.packing import Packer
from klog.backup.store import NewObject, Store
from klog.formats.checksums import Bytes
from klog.formats.constants import BATCH_HEADER_BYTES, CODEC_MASK
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.files.chunks import CHUNK_BYTES, chunks
from klog.storage.files.files import read_at
from klog.storage.reading.batch_search import MAX_BATCH_BYTES, first_filled_byte, next_valid_batch
from klog.storage.reading.reader import tail_problem

PIECE_BYTES: Final = 64 << 20
_LEAST_CHUNK_BYTES: Final = 16 << 10
SMALL_BYTES: Final = 1 << 20
MANY_WAITING: Final = 256
REUSED_MS: Final = 6 * 3_600_000
"""An object that no backup has is used if it is not older. It must be less than the grace time of a prune."""

OnBytes = Callable[[int], object]


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


class PieceWriter:
    """Writes pieces of partitions into a store, in the repository's compression.

    `on_bytes` receives how many bytes were read, `on_stored` how many were written; an object that is already
    there is not written again.
    """

    def __init__(
        self,
        store: Store,
        compression: str,
        *,
        piece_bytes: int,
        on_bytes: OnBytes,
        on_stored: OnBytes,
        now_ms: Callable[[], int],
    ) -> None:
        self.store = store
        self.piece_bytes = piece_bytes
        self.on_bytes = on_bytes
        self._compression = compression
        self._on_stored = on_stored
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._waiting: list[NewObject] = []

    def begin(self, partition: TopicPartition, segment: int, start_bytes: int, table: BatchTable) -> _Piece:
        """A new piece; `table` has its first batches, which decide whether it is compressed."""
        compressed = sum(
            size for size, flags in zip(table.size, table.attributes, strict=True) if flags & CODEC_MASK
        )
        compression = "none" if 2 * compressed > sum(table.size) else self._compression
        return _Piece(self.store, partition, segment, start_bytes, compression)

    def finish(self, piece: _Piece) -> Piece:
        """Store a piece, unless the same one is there already. A small one waits for `flush`."""
        try:
            made = piece.finished()
            if self._is_there(made):
                piece.new.discard()
            elif made.stored_bytes < SMALL_BYTES:
                piece.new.close()
                with self._lock:
                    self._waiting.append(piece.new)
                self._on_stored(made.stored_bytes)
            else:
                self.store.commit(piece.new)
                self._on_stored(made.stored_bytes)
        except BaseException:
            piece.new.discard()
            raise
        return made

    @property
    def has_many_waiting(self) -> bool:
        """Whether it is time for a `flush`."""
        return len(self._waiting) >= MANY_WAITING

    def flush(self) -> None:
        """Store the small pieces that wait. States that name them are written after this. Raises
        `StorageError`."""
        waiting = self._take_waiting()
        try:
            self.store.commit_all(waiting)
        finally:
            _discard(waiting)

    def discard(self) -> None:
        """Remove the pieces that wait."""
        _discard(self._take_waiting())

    def _take_waiting(self) -> list[NewObject]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def _is_there(self, made: Piece) -> bool:
        """Whether a run that was killed has stored the piece; an old one may just be pruned."""
        found = self.store.status(made.name)
        return (
            found is not None
            and found.size_bytes == made.stored_bytes
            and found.modified_ms > self._now_ms() - REUSED_MS
        )


def _discard(objects: Iterable[NewObject]) -> None:
    for new in objects:
        new.discard()


class _Piece:
    """A piece that grows."""

    def __init__(
        self,
        store: Store,
        partition: TopicPartition,
        segment: int,
        start_bytes: int,
        compression: str,
    ) -> None:
        self.new = store.create()
        self.size_bytes = 0
        self._store = store
        self._partition = partition
        self._segment = segment
        self._start_bytes = start_bytes
        self._compression = compression
        self._hash = hashlib.sha256()
        self._packer = Packer(compression, self.new.write)
        self._first_offset = self._end_offset = -1
        self._max_timestamp_ms = -1

    def add(self, data: memoryview, first_offset: int, end_offset: int, max_timestamp_ms: int) -> None:
        """Add batches."""
        if self._first_offset < 0:
            self._first_offset = first_offset
        self._end_offset = end_offset
        self._max_timestamp_ms = max(self._max_timestamp_ms, max_timestamp_ms)
        self.size_bytes += len(data)
        self._hash.update(data)
        self._packer.add(data)

    def finished(self) -> Piece:
        """The piece as it is to be named."""
        self._packer.finish()
        sha256 = self._hash.hexdigest()
        name = names.piece(
            self._partition,
            self._segment,
            self._first_offset,
            self._end_offset,
            self._store.content_id(sha256),
            self._compression,
        )
        self.new.seal(name)
        return Piece(
            self._segment,
            self._start_bytes,
            self.size_bytes,
            self._first_offset,
            self._end_offset,
            self._max_timestamp_ms,
            sha256,
            name,
            self.new.stored_bytes,
        )


class SegmentPieces:
    """Divides the valid batches of one segment into pieces, and stores them.

    `next_offset` is the lowest offset that the next batch may have, `end_bytes` the position in the segment
    after the last one. `last` is the position of that one and its header in hex.
    """

    def __init__(
        self, writer: PieceWriter, partition: TopicPartition, segment: int, next_offset: int, end_bytes: int
    ) -> None:
        self.pieces: list[Piece] = []
        self.next_offset = next_offset
        self.end_bytes = end_bytes
        self.last = (-1, "")
        self._writer = writer
        self._partition = partition
        self._segment = segment
        self._piece: _Piece | None = None

    def add(self, data: memoryview, table: BatchTable, first_row: int, end_row: int) -> None:
        """Add rows of a table at `end_bytes`. `data` are the bytes that were scanned into the table."""
        while first_row < end_row:
            if self._piece is None:
                self._piece = self._writer.begin(self._partition, self._segment, self.end_bytes, table)
            room = self._writer.piece_bytes - self._piece.size_bytes
            start = table.position[first_row]
            following = first_row + 1
            while following < end_row and table.position[following] + table.size[following] - start <= room:
                following += 1
            self._add_rows(self._piece, data, table, first_row, following)
            if following < end_row or self._piece.size_bytes >= self._writer.piece_bytes:
                self.finish_piece()
            first_row = following

    def finish_piece(self) -> None:
        """Store the piece that was begun: the next batch does not follow it, or none follows."""
        piece, self._piece = self._piece, None
        if piece is not None:
            self.pieces.append(self._writer.finish(piece))

    def discard(self) -> None:
        """Remove a piece that was begun."""
        if self._piece is not None:
            self._piece.new.discard()

    def _add_rows(
        self, piece: _Piece, data: memoryview, table: BatchTable, first_row: int, end_row: int
    ) -> None:
        last = end_row - 1
        start, end = table.position[first_row], table.position[last] + table.size[last]
        first_offset = table.base_offset[first_row]
        if first_offset == OFFSET_UNKNOWN:
            first_offset = self.next_offset
        self.next_offset = table.last_offset[last] + 1
        batches = data[start - table.origin : end - table.origin]
        piece.add(batches, first_offset, self.next_offset, max(table.max_timestamp[first_row:end_row]))
        header = batches[table.position[last] - start :][:BATCH_HEADER_BYTES]
        self.end_bytes += end - start
        self.last = self.end_bytes - table.size[last], bytes(header).hex()


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
