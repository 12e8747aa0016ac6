"""Writes batches of a partition as pieces: immutable objects of a repository.

A piece that is stored already is not stored again. Small ones wait, because many are stored faster together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Set
from typing import Final

from klog.backup import names
from klog.backup.hashing import BackgroundHash
from klog.backup.model import Piece, ProducerSummary
from klog.backup.moment.open_transactions import OpenTransactions
from klog.backup.packing import Packer
from klog.backup.store import NewObject, Store
from klog.formats.constants import BATCH_HEADER_BYTES, CODEC_MASK, TRANSACTIONAL_BIT
from klog.formats.names import TopicPartition
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable

PIECE_BYTES: Final = 64 << 20
_SMALL_BYTES: Final = 1 << 20
_MANY_WAITING: Final = 256
# A piece with more of them has no summary, so that states stay small.
_MOST_PRODUCERS: Final = 256
REUSED_MS: Final = 6 * 3_600_000
"""An object that no backup has is used if it is not older. It must be less than the grace time of a prune."""

OnBytes = Callable[[int], object]


class PieceWriter:
    """Writes pieces of partitions into a store, in the repository's compression.

    `on_bytes` receives how many bytes were read, `on_stored` how many were written; an object that is already
    there is not written again, unless it is among `lost`.
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
        self.lost: Set[str] = frozenset()
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
            elif made.stored_bytes < _SMALL_BYTES:
                piece.new.close()
                with self._lock:
                    self._waiting.append(piece.new)
                self._on_stored(made.stored_bytes)
            else:
                self.store.commit(piece.new)
                self._on_stored(made.stored_bytes)
        except BaseException:
            piece.discard()
            raise
        return made

    @property
    def has_many_waiting(self) -> bool:
        """Whether it is time for a `flush`."""
        return len(self._waiting) >= _MANY_WAITING

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
            and made.name not in self.lost
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
        self._hash = BackgroundHash()
        self._packer = Packer(compression, self.new.write)
        self._first_offset = self._end_offset = -1
        self._max_timestamp_ms = -1
        self._has_transactions = False
        self._transactions = OpenTransactions()

    def follow(self, data: memoryview, table: BatchTable, first_row: int, end_row: int) -> None:
        """Note the transactions in rows of a table, which was scanned from `data`."""
        flags = set(table.attributes[first_row:end_row])
        if any(each & TRANSACTIONAL_BIT for each in flags):
            self._has_transactions = True
            deque(self._transactions.follow(data, table, first_row, end_row), maxlen=0)

    def add(self, data: memoryview, first_offset: int, end_offset: int, max_timestamp_ms: int) -> None:
        """Add batches. Another thread hashes them: they must not change until the next ones are added."""
        if self._first_offset < 0:
            self._first_offset = first_offset
        self._end_offset = end_offset
        self._max_timestamp_ms = max(self._max_timestamp_ms, max_timestamp_ms)
        self.size_bytes += len(data)
        self._hash.begin(data)
        self._packer.add(data)
        self._hash.wait_for_earlier()

    def discard(self) -> None:
        """Remove what was not committed."""
        self._hash.close()
        self.new.discard()

    def finished(self) -> Piece:
        """The piece as it is to be named."""
        self._packer.finish()
        sha256 = self._hash.hexdigest()
        self._hash.close()
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
            self._has_transactions,
            self._producers(),
        )

    def _producers(self) -> tuple[ProducerSummary, ...] | None:
        if not self._has_transactions:
            return None
        found = self._transactions.summary()
        return found if len(found) <= _MOST_PRODUCERS else None


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
        """Add rows of a table at `end_bytes`. `data` are the bytes that were scanned into the table.

        They may still be hashed until the next call, or that of `finish_piece`, is over.
        """
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
            self._piece.discard()

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
        piece.add(
            batches,
            first_offset,
            self.next_offset,
            max(table.max_timestamp[first_row:end_row]),
        )
        piece.follow(data, table, first_row, end_row)
        header = batches[table.position[last] - start :][:BATCH_HEADER_BYTES]
        self.end_bytes += end - start
        self.last = self.end_bytes - table.size[last], bytes(header).hex()
