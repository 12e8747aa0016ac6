"""Blocks: runs of whole batches of a partition, read from its pieces when they are first needed.

A block has about 1 MiB. It begins where the one before it ends, or at the start of a piece. So a reader that
goes on from where it was reads each byte once; one that begins in the middle of a piece reads the piece from
its start, once, and then the places in it are known.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import BinaryIO, Final, NamedTuple

from klog.backup.moment.view import Part
from klog.backup.restoring.batches import PieceSource
from klog.formats.checksums import Bytes
from klog.formats.constants import CONTROL_BIT, MAGIC_V2, TRANSACTIONAL_BIT
from klog.formats.errors import CorruptRecordError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.kernel.markers import marker_of_batch
from klog.storage.files.chunks import chunks
from klog.storage.log.open_file import MemoryFile

CACHE_BYTES: Final = 256 << 20
"""So much of all blocks is kept in memory."""

_MOST_BLOCKS: Final = 2048
_OPEN_PIECES: Final = 16
_BLOCK_BYTES: Final = 1 << 20
_CURE: Final = "take the object from a copy of the repository; the other partitions go on"


class Place(NamedTuple):
    """Where a block begins: a position in the plain bytes of a piece, by the number of its part."""

    part: int
    position: int


class Event(NamedTuple):
    """A batch of a transaction: the row in its block; `is_abort` is None for records."""

    row: int
    producer_id: int
    offset: int
    is_abort: bool | None


class Block:
    """Batches in their order. `position` has one more entry than there are batches: the end of the last."""

    __slots__ = (
        "base_offset",
        "events",
        "file",
        "following",
        "last_offset",
        "leader_epoch",
        "max_timestamp",
        "position",
    )

    def __init__(self, following: Place) -> None:
        self.following = following
        self.base_offset = -1
        self.position = array("q", [0])
        self.last_offset = array("q")
        self.max_timestamp = array("q")
        self.leader_epoch = array("q")
        self.events: list[Event] = []
        self.file: MemoryFile | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return self.position[-1]

    @property
    def end_offset(self) -> int:
        """The offset after the last batch; -1 if there is none."""
        return self.last_offset[-1] + 1 if self.last_offset else -1

    def add(self, data: memoryview, table: BatchTable, first: int, last: int) -> None:
        """Note the rows from `first` to before `last`, whose bytes are `data` from the first batch on."""
        if self.base_offset < 0:
            self.base_offset = max(table.base_offset[first], 0)
        shift = self.size_bytes - table.position[first]
        rows = len(self.last_offset)
        self.position.extend(table.position[row] + table.size[row] + shift for row in range(first, last))
        self.last_offset.extend(table.last_offset[first:last])
        self.max_timestamp.extend(table.max_timestamp[first:last])
        self.leader_epoch.extend(table.leader_epoch[first:last])
        if any(attributes & TRANSACTIONAL_BIT for attributes in set(table.attributes[first:last])):
            self._note_events(data, table, first, last, rows)

    def _note_events(self, data: memoryview, table: BatchTable, first: int, last: int, rows: int) -> None:
        for row in range(first, last):
            attributes = table.attributes[row]
            if table.magic[row] < MAGIC_V2 or not attributes & TRANSACTIONAL_BIT:
                continue
            is_abort: bool | None = None
            if attributes & CONTROL_BIT:
                marker = marker_of_batch(data[table.position[row] - table.position[first] :])
                if marker is None:
                    continue
                is_abort = marker.aborted
            event = Event(rows + row - first, table.producer_id[row], table.base_offset[row], is_abort)
            self.events.append(event)


class Blocks:
    """The blocks of one partition up to `end_offset`. One thread at a time may load; others may look.

    Methods raise `CorruptRecordError` for damaged pieces, and the `KlogError`s of the source.
    """

    def __init__(self, streams: Streams, name: str, parts: Sequence[Part], end_offset: int) -> None:
        self._streams = streams
        self._name = name
        self._parts = parts
        self._end_offset = end_offset
        # Where blocks may begin, and the offset that is not above the first one there.
        self._places = [Place(number, 0) for number in range(len(parts))]
        self._offsets = [max(part.piece.first_offset, part.first_offset) for part in parts]
        self.end = Place(len(parts), 0)

    def place_before(self, offset: int) -> Place:
        """A place at or before the batch that may hold an offset."""
        if not self._places:
            return self.end
        return self._places[max(bisect_right(self._offsets, offset) - 1, 0)]

    def load(self, place: Place) -> Block:
        """The block that begins at a place. It has no batch if none is left in its part."""
        block = Block(self.end)
        kept: list[Bytes] = []
        number, position = place
        while number < len(self._parts):
            ended, position = self._take(self._parts[number], position, block, kept)
            if ended:
                break
            if position < self._parts[number].piece.size_bytes:
                block.following = Place(number, position)
                self._note(block)
                break
            number, position = number + 1, 0
            block.following = Place(number, 0)
            if block.size_bytes >= _BLOCK_BYTES // 2:
                break
        if kept:
            block.file = MemoryFile(self._name, b"".join(kept))
        return block

    def _note(self, block: Block) -> None:
        at = bisect_left(self._places, block.following)
        if block.last_offset and (at == len(self._places) or self._places[at] != block.following):
            self._places.insert(at, block.following)
            self._offsets.insert(at, block.end_offset)

    def _take(self, part: Part, position: int, block: Block, kept: list[Bytes]) -> tuple[bool, int]:
        """Read batches of a part into a block; whether the log ends there, and the position after them."""
        piece, table = part.piece, BatchTable()
        file = self._streams.take(part)
        try:
            for data in chunks(file, table, start_bytes=position):
                position = self._checked(part, data, table)
                first = bisect_left(table.last_offset, part.first_offset)
                last = bisect_left(table.last_offset, self._end_offset)
                if last > first:
                    start = table.position[first] - table.origin
                    end = table.position[last - 1] + table.size[last - 1] - table.origin
                    whole = bytes(data[start:end])
                    block.add(memoryview(whole), table, first, last)
                    kept.append(whole)
                if last < len(table):
                    return True, position
                if block.size_bytes or position >= piece.size_bytes:
                    break
        except BaseException:
            file.close()
            raise
        self._streams.give_back(part, file)
        return False, position

    def _checked(self, part: Part, data: memoryview, table: BatchTable) -> int:
        """The position after the whole batches of a chunk, whose checksums are right."""
        position = table.origin + table.consumed_bytes
        if not len(table):
            raise self._damaged(part, "does not have the batches that were stored", position)
        if kernel.verify(data, table):
            at = table.position[table.valid.index(0)]
            raise self._damaged(part, "is damaged: a batch does not have its checksum", at)
        return position

    def _damaged(self, part: Part, what: str, position: int) -> CorruptRecordError:
        return CorruptRecordError(what, file=part.piece.name, position_bytes=position, cure=_CURE)


class Streams:
    """Pieces that are open, so that who reads on does not open them again. Safe for threads."""

    def __init__(self, source: PieceSource) -> None:
        self._source = source
        self._lock = Lock()
        self._idle: OrderedDict[str, BinaryIO] = OrderedDict()

    def take(self, part: Part) -> BinaryIO:
        """The plain bytes of a piece, for this caller alone."""
        with self._lock:
            file = self._idle.pop(part.piece.name, None)
        return self._source.open_piece(part.piece) if file is None else file

    def give_back(self, part: Part, file: BinaryIO) -> None:
        """The caller does not use the file any more."""
        with self._lock:
            old = self._idle.pop(part.piece.name, None)
            self._idle[part.piece.name] = file
            if old is None and len(self._idle) > _OPEN_PIECES:
                _, old = self._idle.popitem(last=False)
        if old is not None:
            old.close()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            files, self._idle = list(self._idle.values()), OrderedDict()
        for file in files:
            file.close()


class BlockCache:
    """Blocks that were read, those that were used last. Safe for threads.

    A block that is let go of stays readable until all of it has been sent.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = Lock()
        self._blocks: OrderedDict[Hashable, Block] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Hashable) -> Block | None:
        """The block, if it is there."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: Hashable, block: Block) -> None:
        """Keep a block, and let go of those that were not used for the longest time."""
        with self._lock:
            if key in self._blocks:
                return
            self._blocks[key] = block
            self.size_bytes += block.size_bytes
            while len(self._blocks) > 1 and (
                self.size_bytes > self._limit_bytes or len(self._blocks) > _MOST_BLOCKS
            ):
                _, old = self._blocks.popitem(last=False)
                self.size_bytes -= old.size_bytes
