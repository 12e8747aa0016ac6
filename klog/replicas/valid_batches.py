"""Reads the valid batches of a split, chunk by chunk, and reports the ranges between them as lost.

A batch is valid if its checksum matches and its offset does not decrease. The checksum of magic 2 covers
neither offset nor size. If an offset is greater than the next batch's, the batch with that offset counts as
the damaged one of the two. If damage hides the start of the next batch, the next valid one is searched for.
So only damaged batches are lost.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from klog.formats.checksums import Bytes
from klog.formats.constants import BATCH_HEADER_BYTES, MAGIC_POSITION
from klog.formats.errors import CorruptRecordError, DecompressionLimitError, KlogError, StorageError
from klog.formats.packed import ENTRY_PREFIX
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.replicas.lost_ranges import LostRangeReporter
from klog.replicas.splits import Split
from klog.storage.files.chunks import LARGEST_REUSED_BYTES, chunks
from klog.storage.reading.batch_search import (
    fill_base_offset,
    first_filled_byte,
    next_valid_batch,
    valid_batch,
)
from klog.storage.reading.select import compact
from klog.storage.reading.tail import NEWEST_MAGIC, tail_problem


@dataclass
class ValidBatches:
    """One pass over the batches of `split`; `table` holds those of the current chunk.

    The header of a compressed set of magic 0 or 1 does not say its base offset: the lowest possible one is
    filled in. A batch of more than `max_batch_bytes` is not read, which bounds the memory.
    """

    split: Split
    file: BinaryIO
    table: BatchTable
    lost_ranges: LostRangeReporter
    max_batch_bytes: int

    def __post_init__(self) -> None:
        self._next_offset_before_last = self.lost_ranges.next_offset
        """The `next_offset` before the last batch that was accepted as valid."""
        self._last_position = self.split.start_bytes

    def chunks(self) -> Iterator[memoryview]:
        """Yield buffers of batches; the table then has the valid ones. Lost ranges are reported."""
        position: int | None = self.split.start_bytes
        try:
            while position is not None:
                position = yield from self._pass(position)
        except StorageError as error:
            # The disk or the network fails, or a gzipped copy is damaged. The batches before are valid.
            reached = self.table.origin + self.table.consumed_bytes
            self.lost_ranges.open(max(reached, self.split.start_bytes), error)
            self.lost_ranges.finish(None)

    def _pass(self, start_bytes: int) -> Generator[memoryview, None, int | None]:
        """Read up to damage that hides the start of the next batch; returns the position to continue at."""
        table, split = self.table, self.split
        rest: Bytes = b""
        for data in chunks(
            self.file,
            table,
            start_bytes=start_bytes,
            starts_before_bytes=split.end_bytes,
            max_batch_bytes=self.max_batch_bytes,
        ):
            rest = data[table.consumed_bytes :]
            if len(data) > LARGEST_REUSED_BYTES:
                rest = bytes(rest)  # a few bytes: a view would keep the large buffer in memory
            hidden_from = self._sift(data, rest)
            if len(table):
                yield data
            if hidden_from is not None:
                return self._position_after(*hidden_from)
            del data
        return self._after_scan(table.origin + table.consumed_bytes, rest)

    def _sift(self, data: Bytes, rest: Bytes) -> tuple[int, int] | None:
        """Remove all but the valid batches from the table.

        Returns position and size of a damaged batch if the start of the next one is not known for sure.
        """
        table, lost_ranges = self.table, self.lost_ranges
        if len(table) == 0:
            return None
        damaged = kernel.verify(data, table)
        if damaged == 0 and self._ascends(rest):
            lost_ranges.close(table.position[0], table.base_offset[0])
            if len(table) > 1:
                lost_ranges.next_offset = table.last_offset[-2] + 1
            self._next_offset_before_last = lost_ranges.next_offset
            self._last_position = table.position[-1]
            lost_ranges.next_offset = table.last_offset[-1] + 1
            return None
        return self._sift_rows(data, rest)

    def _ascends(self, rest: Bytes) -> bool:
        """Whether all batches belong to this split and their offsets ascend."""
        table = self.table
        if table.position[-1] >= self.split.end_bytes or OFFSET_UNKNOWN in table.base_offset:
            return False
        following = _offset_at_start(rest)
        return (
            table.base_offset[0] >= self.lost_ranges.next_offset
            and all(map(operator.lt, table.last_offset, table.base_offset[1:]))
            and (following is None or following > table.last_offset[-1])
        )

    def _sift_rows(self, data: Bytes, rest: Bytes) -> tuple[int, int] | None:
        table, lost_ranges = self.table, self.lost_ranges
        valid: list[int] = []
        hidden_from = None
        for row in range(len(table)):
            position = table.position[row]
            if position >= self.split.end_bytes:
                break
            problem = self._problem_of(row, rest)
            if problem is None:
                self._take(data, row)
                valid.append(row)
                continue
            lost_ranges.open(position, problem, table.base_offset[row], table.last_offset[row] + 1)
            if not table.valid[row] and not self._is_valid_start(row + 1):
                hidden_from = position, table.size[row]
                break
        compact(table, valid)
        return hidden_from

    def _take(self, data: Bytes, row: int) -> None:
        table, lost_ranges = self.table, self.lost_ranges
        if table.base_offset[row] == OFFSET_UNKNOWN and lost_ranges.is_open:
            fill_base_offset(data, table, row, self.max_batch_bytes)
        last = table.last_offset[row]
        if table.base_offset[row] == OFFSET_UNKNOWN:
            lost_ranges.close(table.position[row], last, known=False)
            table.base_offset[row] = min(lost_ranges.next_offset, last)
        else:
            lost_ranges.close(table.position[row], table.base_offset[row])
        self._next_offset_before_last = lost_ranges.next_offset
        self._last_position = table.position[row]
        lost_ranges.next_offset = table.last_offset[row] + 1

    def _problem_of(self, row: int, rest: Bytes) -> KlogError | None:
        table, lost_ranges = self.table, self.lost_ranges
        if not table.valid[row]:
            return CorruptRecordError(
                f"batch fails its checksum (stored {table.crc[row]}, computed {table.computed_crc[row]})"
            )
        first = self._first_offset(row)
        if first < lost_ranges.next_offset:
            if first < self._next_offset_before_last:
                return CorruptRecordError(
                    f"batch starts at offset {first} but at least {lost_ranges.next_offset} is expected"
                )
            # It follows the batch before the last one, so the last one has the damaged offset.
            problem = CorruptRecordError(
                f"batch ends at offset {lost_ranges.next_offset - 1}, the next is {first}"
            )
            lost_ranges.open(self._last_position, problem, self._next_offset_before_last, first)
            lost_ranges.next_offset = self._next_offset_before_last
            return None
        following = self._first_offset(row + 1) if row + 1 < len(table) else _offset_at_start(rest)
        if following is not None and lost_ranges.next_offset <= following <= table.last_offset[row]:
            return CorruptRecordError(f"batch starts at offset {first}, the next one at {following}")
        return None

    def _first_offset(self, row: int) -> int:
        """The base offset; for a compressed set of magic 0 or 1 the last offset, the only one in its
        header."""
        base = self.table.base_offset[row]
        return self.table.last_offset[row] if base == OFFSET_UNKNOWN else base

    def _is_valid_start(self, row: int) -> bool:
        table = self.table
        return (
            row < len(table)
            and bool(table.valid[row])
            and self._first_offset(row) >= self.lost_ranges.next_offset
        )

    def _position_after(self, damaged_bytes: int, size_bytes: int | None = None) -> int | None:
        """The position to continue at after the damage at a position; None if no more batch follows in the
        split.

        `size_bytes` is the size in the damaged batch's header, which is mostly right.
        """
        split, due = self.split, self.lost_ranges.next_offset
        if size_bytes is not None:
            following = valid_batch(self.file, damaged_bytes + size_bytes, self.max_batch_bytes)
            if following is not None and following.last_offset[0] >= due:
                return damaged_bytes + size_bytes
        found = next_valid_batch(
            self.file,
            damaged_bytes + 1,
            split.end_bytes,
            from_offset=due,
            largest_bytes=self.max_batch_bytes,
        )
        if found is not None:
            return found.position[0]
        self._finish()
        return None

    def _after_scan(self, position: int, rest: Bytes) -> int | None:
        """The position to continue at after a scan that ended at `position`, after the last complete
        batch."""
        split, table = self.split, self.table
        if position >= split.end_bytes:
            self._finish()
            return None
        if table.need_bytes > self.max_batch_bytes:
            self.lost_ranges.open(position, _too_large(table.need_bytes, self.max_batch_bytes))
            return self._position_after(position)
        if not len(rest):
            what = f"file ends here, it had {split.end_bytes} bytes when it was planned"
            changed = StorageError(what, cure="it has changed: read it again")
            self.lost_ranges.open(position, changed)
            self._finish()
            return None
        if first_filled_byte(self.file, position, split.end_bytes) is None:
            self._finish()  # preallocated, or left by a crash: nothing was written there
            return None
        problem = tail_problem(table, rest)
        if problem is not None:
            self.lost_ranges.open(position, problem)
        return self._position_after(position)

    def _finish(self) -> None:
        """End the split. The first batch of the next split shows how far offsets are missing."""
        if not self.lost_ranges.is_open:
            return
        following = valid_batch(self.file, self.split.end_bytes, self.max_batch_bytes)
        offset = OFFSET_UNKNOWN if following is None else following.base_offset[0]
        self.lost_ranges.finish(None if offset == OFFSET_UNKNOWN else offset)


def _offset_at_start(data: Bytes) -> int | None:
    """The base offset of the batch at the start of `data`, None if its header is cut or its magic is below
    2."""
    if len(data) < BATCH_HEADER_BYTES or data[MAGIC_POSITION] != NEWEST_MAGIC:
        return None
    return int(ENTRY_PREFIX.unpack_from(data)[0])


def _too_large(size_bytes: int, limit_bytes: int) -> KlogError:
    return DecompressionLimitError(
        f"batch claims {size_bytes} bytes, at most {limit_bytes} are read",
        cure="its size is damaged, or raise maxDecompressedBytes if it is really that large",
    )
