"""Columns that the record kernel fills: batch headers and records of one buffer of a segment.

Both kernels (`_kernel`, compiled, and `_pykernel`, its twin in pure Python) fill the same tables, so the code
above them exists once. A column is an `array('q')`: Python reads single values, Arrow and the compiled kernel
read a contiguous int64 buffer. A table is reused from chunk to chunk and holds values of one chunk only, so
memory does not grow with the file.

A `position` is in bytes from the start of the file. `origin` is the position in the file of the first byte of
the table's buffer.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from klog.formats.constants import MAGIC_POSITION

if TYPE_CHECKING:
    from klog.formats.checksums import Bytes

# Why a scan stopped.
STOP_NEED_BYTES: Final = 0  # the buffer ends inside or right after a batch: read more, or the file ends
STOP_BAD_SIZE: Final = 1  # a size field is below the smallest (14): nothing after it can be found

COUNT_UNKNOWN: Final = -1  # magic 0 and 1 store no record count
OFFSET_UNKNOWN: Final = -1  # base offset of a compressed magic 0/1 wrapper, until it has been decoded


def _column() -> array[int]:
    return array("q")


class BatchTable:
    """Headers of the whole batches in one buffer, one row a batch, in file order.

    `position` is in bytes from the start of the file. `size` is in bytes with the 12-byte prefix. `crc` is
    the stored one (unsigned). `verify` fills `valid` (1 or 0) and `computed_crc`. `base_timestamp` is the
    delete horizon if DELETE_HORIZON_BIT is set. Fields that a magic does not have hold Kafka's "none" value
    (-1); `count` may be COUNT_UNKNOWN.
    """

    COLUMNS: Final = (
        "position",
        "size",
        "base_offset",
        "last_offset",
        "magic",
        "crc",
        "attributes",
        "count",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "leader_epoch",
        "valid",
        "computed_crc",
    )
    __slots__ = (*COLUMNS, "consumed_bytes", "need_bytes", "origin", "stop", "stop_size")

    position: array[int]
    size: array[int]
    base_offset: array[int]
    last_offset: array[int]
    magic: array[int]
    crc: array[int]
    attributes: array[int]
    count: array[int]
    base_timestamp: array[int]
    max_timestamp: array[int]
    producer_id: array[int]
    producer_epoch: array[int]
    base_sequence: array[int]
    leader_epoch: array[int]
    valid: array[int]
    computed_crc: array[int]
    origin: int
    consumed_bytes: int
    need_bytes: int
    stop: int
    stop_size: int

    def __init__(self) -> None:
        for name in self.COLUMNS:
            setattr(self, name, array("q"))
        self._begin(0)

    def clear(self, origin: int) -> None:
        """Empty the table for a buffer that starts at file position `origin`."""
        for name in self.COLUMNS:
            del getattr(self, name)[:]
        self._begin(origin)

    def swap_contents(self, other: BatchTable) -> None:
        """Give each of two tables what the other one holds, without copying a column."""
        for name in BatchTable.__slots__:
            ours, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, theirs)
            setattr(other, name, ours)

    def _begin(self, origin: int) -> None:
        self.origin = origin
        self.consumed_bytes = 0  # bytes of the buffer that whole batches take
        self.need_bytes = 0  # bytes from the end of the last whole batch that the next one needs (0: unknown)
        self.stop = STOP_NEED_BYTES
        self.stop_size = 0  # the size field that stopped the scan (STOP_BAD_SIZE)

    def __len__(self) -> int:
        return len(self.position)


class RecordTable:
    """Records of one or more batches, one row a record; spans point into one payload buffer.

    `batch` is the row in the BatchTable. `key_start`, `value_start` and `headers_start` are in bytes from the
    start of the payload buffer. `key_size` and `value_size` are -1 for null. `headers_start` is the position
    of the first header's key length (magic 2), `header_count` the number of headers. `record_size` is Kafka's
    `sizeInBytes`. `crc` and `valid` are those of inner messages (magic 0 and 1; else crc is -1). `problem`
    says why decoding stopped inside batch `problem_batch`; the rows before it are valid.
    """

    COLUMNS: Final = (
        "batch",
        "offset",
        "timestamp",
        "key_start",
        "key_size",
        "value_start",
        "value_size",
        "headers_start",
        "header_count",
        "record_size",
        "crc",
        "valid",
    )
    __slots__ = (*COLUMNS, "problem", "problem_batch")

    batch: array[int]
    offset: array[int]
    timestamp: array[int]
    key_start: array[int]
    key_size: array[int]
    value_start: array[int]
    value_size: array[int]
    headers_start: array[int]
    header_count: array[int]
    record_size: array[int]
    crc: array[int]
    valid: array[int]
    problem: str | None
    problem_batch: int

    def __init__(self) -> None:
        for name in self.COLUMNS:
            setattr(self, name, _column())
        self.clear()

    def clear(self) -> None:
        """Empty the table."""
        for name in self.COLUMNS:
            del getattr(self, name)[:]
        self.problem = None
        self.problem_batch = -1

    def __len__(self) -> int:
        return len(self.offset)

    def key(self, row: int, payload: Bytes) -> bytes | None:
        """The key of a record; None if it is null."""
        start, size = self.key_start[row], self.key_size[row]
        return None if size < 0 else bytes(payload[start : start + size])

    def value(self, row: int, payload: Bytes) -> bytes | None:
        """The value of a record; None if it is null."""
        start, size = self.value_start[row], self.value_size[row]
        return None if size < 0 else bytes(payload[start : start + size])

    def message_magic(self, row: int, payload: Bytes) -> int:
        """The magic of a message (0 or 1); a wrapper may contain messages of the other magic."""
        return payload[self.headers_start[row] - self.record_size[row] + MAGIC_POSITION]


class IndexState:
    """The state of an index rebuild between the chunks of one segment, and the entries so far.

    The rule is that of Kafka's segment recovery: an entry before the first batch that starts more than
    `interval_bytes` after the last entry. `offsets` and `positions` are the offset index, `timestamps` and
    `timestamp_offsets` the time index; offsets are relative to `base_offset`. `max_timestamp` and
    `max_timestamp_offset` are the largest timestamp so far and the last offset of its batch.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.last_index_timestamp = -1
        self.last_offset = -1  # last offset of the last batch added
        self.offsets: array[int] = _column()
        self.positions: array[int] = _column()
        self.timestamps: array[int] = _column()
        self.timestamp_offsets: array[int] = _column()
        self.stopped_at: int | None = None  # file position of the batch that cannot be indexed
        self.why: str | None = None


class FollowedBatches:
    """What a follower has to know of fetched batches, from `kernel.follow`.

    The first `rows` batches of the table are to be written. If it is not `is_plain`, one of the batches after
    them is damaged, does not continue the log, or is of magic 0 or 1: then each has to be looked at.
    `max_timestamp` is their largest. `epochs` are pairs: a leader epoch, and the first offset of a batch with
    it, for each batch with another epoch than the one before. `producers` are the rows of the batches that
    matter to the state of producers: of each producer the first batch, the last five of each epoch, the first
    one of a transaction, and all markers.
    """

    __slots__ = ("epochs", "is_plain", "max_timestamp", "producers", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.is_plain = False
        self.max_timestamp = -1
        self.epochs: array[int] = _column()
        self.producers: array[int] = _column()


class SpanColumn:
    """Values of variable size gathered into one buffer, laid out like Arrow's binary arrays.

    Value n is the bytes of `data` from `ends[n]` to `ends[n + 1]`. It is null if bit n of `valid` (least
    significant bit first) is 0.
    """

    __slots__ = ("data", "ends", "valid")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends: array[int] = array("i", (0,))
        self.valid = bytearray()

    def __len__(self) -> int:
        return len(self.ends) - 1


class HeadersColumn:
    """Headers of records: those of record n are the keys and values from `ends[n]` to `ends[n + 1]`."""

    __slots__ = ("ends", "keys", "values")

    def __init__(self) -> None:
        self.ends: array[int] = array("i", (0,))
        self.keys = SpanColumn()
        self.values = SpanColumn()
