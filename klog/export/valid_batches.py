"""The sound batches of a split, chunk by chunk; what lies between them is reported as lost.

A batch is sound where its checksum is good and its offset does not go back. The checksum of magic 2 covers
neither offset nor size. So a batch whose offset is ahead of the next one's counts as the damaged one of the
two, and where damage hides where the next batch starts, the next sound one is searched for: no more is lost
than what is damaged.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterator
from typing import BinaryIO, Final

from klog.export.files import base_name
from klog.export.lost_ranges import LostRangeReporter
from klog.export.splits import Split
from klog.formats import kernel
from klog.formats.checksums import Bytes
from klog.formats.columns import OFFSET_UNKNOWN, BatchTable
from klog.formats.constants import BATCH_HEADER_BYTES, MAGIC_POSITION
from klog.formats.errors import CorruptRecordError, DecompressionLimitError, KlogError, StorageError
from klog.storage.batch_search import fill_base_offset, first_filled_byte, next_valid_batch, valid_batch
from klog.storage.chunks import LARGEST_REUSED_BYTES, chunks
from klog.storage.files import GZIP_SUFFIX
from klog.storage.reader import NEWEST_MAGIC, tail_problem
from klog.storage.select import compact

_OFFSET_BYTES: Final = 8


class ValidBatches:
    """One pass over the batches of `split`; `table` holds those of the chunk at hand.

    The base offset of a compressed set of magic 0 or 1 is in its header not known: the lowest that it can be
    stands for it. A batch of more than `max_batch_bytes` is not read, so that memory stays bounded.
    """

    def __init__(
        self, split: Split, file: BinaryIO, table: BatchTable, losses: LostRangeReporter, max_batch_bytes: int
    ) -> None:
        self._split = split
        self._file = file
        self._table = table
        self._losses = losses
        self._max_batch_bytes = max_batch_bytes
        self._due_before = losses.next_offset
        """What `next_offset` was before the last batch that was taken for sound."""
        self._last_position = split.start_bytes

    def chunks(self) -> Iterator[memoryview]:
        """Buffers of batches, those that are sound left in the table. Problems go to the losses."""
        position: int | None = self._split.start_bytes
        try:
            while position is not None:
                position = yield from self._pass(position)
        except StorageError as error:
            # The disk or the network fails, or a gzipped copy is damaged: what came before is good.
            reached = self._table.origin + self._table.consumed_bytes
            self._losses.open(max(reached, self._split.start_bytes), error)
            self._losses.finish(None)

    def _pass(self, start_bytes: int) -> Generator[memoryview, None, int | None]:
        """Up to the first damage that hides where the next batch starts; returns where to go on."""
        table, split = self._table, self._split
        rest: Bytes = b""
        for data in chunks(
            self._file,
            table,
            start_bytes=start_bytes,
            starts_before_bytes=split.end_bytes,
            max_batch_bytes=self._max_batch_bytes,
        ):
            rest = data[table.consumed_bytes :]
            if len(data) > LARGEST_REUSED_BYTES:
                rest = bytes(rest)  # little, and the large buffer is free to go
            hidden_from = self._sift(data, rest)
            if len(table):
                yield data
            if hidden_from is not None:
                return self._behind(*hidden_from)
            del data
        return self._after_scan(table.origin + table.consumed_bytes, rest)

    def _sift(self, data: Bytes, rest: Bytes) -> tuple[int, int] | None:
        """Leave the sound batches in the table.

        Returns position and size of a damaged batch behind which the next one may be hidden, if there is one.
        """
        table, losses = self._table, self._losses
        if len(table) == 0:
            return None
        damaged = kernel.verify(data, table)
        if damaged == 0 and self._ascends(rest):
            losses.close(table.position[0], table.base_offset[0])
            if len(table) > 1:
                losses.next_offset = table.last_offset[-2] + 1
            self._due_before = losses.next_offset
            self._last_position = table.position[-1]
            losses.next_offset = table.last_offset[-1] + 1
            return None
        return self._sift_rows(data, rest)

    def _ascends(self, rest: Bytes) -> bool:
        """Whether all batches are of this split, and offsets ascend without any that looks damaged."""
        table = self._table
        if table.position[-1] >= self._split.end_bytes or OFFSET_UNKNOWN in table.base_offset:
            return False
        following = _offset_at_start(rest)
        return (
            table.base_offset[0] >= self._losses.next_offset
            and all(map(operator.lt, table.last_offset, table.base_offset[1:]))
            and (following is None or following > table.last_offset[-1])
        )

    def _sift_rows(self, data: Bytes, rest: Bytes) -> tuple[int, int] | None:
        table, losses = self._table, self._losses
        sound: list[int] = []
        hidden_from = None
        for row in range(len(table)):
            position = table.position[row]
            if position >= self._split.end_bytes:
                break
            problem = self._problem_of(row, rest)
            if problem is None:
                self._take(data, row)
                sound.append(row)
                continue
            losses.open(position, problem, table.base_offset[row], table.last_offset[row] + 1)
            if not table.valid[row] and not self._is_sound_start(row + 1):
                hidden_from = position, table.size[row]
                break
        compact(table, sound)
        return hidden_from

    def _take(self, data: Bytes, row: int) -> None:
        table, losses = self._table, self._losses
        if table.base_offset[row] == OFFSET_UNKNOWN and losses.is_open:
            fill_base_offset(data, table, row, self._max_batch_bytes)
        last = table.last_offset[row]
        if table.base_offset[row] == OFFSET_UNKNOWN:
            losses.close(table.position[row], last, known=False)
            table.base_offset[row] = min(losses.next_offset, last)
        else:
            losses.close(table.position[row], table.base_offset[row])
        self._due_before = losses.next_offset
        self._last_position = table.position[row]
        losses.next_offset = table.last_offset[row] + 1

    def _problem_of(self, row: int, rest: Bytes) -> KlogError | None:
        table, losses = self._table, self._losses
        if not table.valid[row]:
            return CorruptRecordError(
                f"batch fails its checksum (stored {table.crc[row]}, computed {table.computed_crc[row]})"
            )
        first = self._first_offset(row)
        if first < losses.next_offset:
            if first < self._due_before:
                return CorruptRecordError(
                    f"batch starts at offset {first} where at least {losses.next_offset} is due"
                )
            # It follows the batch before the last one: that one's offset is the damaged one.
            problem = CorruptRecordError(
                f"batch ends at offset {losses.next_offset - 1}, the next is {first}"
            )
            losses.open(self._last_position, problem, self._due_before, first)
            losses.next_offset = self._due_before
            return None
        following = self._first_offset(row + 1) if row + 1 < len(table) else _offset_at_start(rest)
        if following is not None and losses.next_offset <= following <= table.last_offset[row]:
            return CorruptRecordError(f"batch starts at offset {first}, the next one at {following}")
        return None

    def _first_offset(self, row: int) -> int:
        """Of a compressed set of magic 0 and 1 the last offset: the only one that its header has."""
        base = self._table.base_offset[row]
        return self._table.last_offset[row] if base == OFFSET_UNKNOWN else base

    def _is_sound_start(self, row: int) -> bool:
        table = self._table
        return (
            row < len(table)
            and bool(table.valid[row])
            and self._first_offset(row) >= self._losses.next_offset
        )

    def _behind(self, damaged_bytes: int, size_bytes: int | None = None) -> int | None:
        """Where to go on after the damage at a position; None where the split holds nothing more.

        `size_bytes` is what the damaged batch says of itself, which is right more often than not.
        """
        split, due = self._split, self._losses.next_offset
        if size_bytes is not None:
            following = valid_batch(self._file, damaged_bytes + size_bytes, self._max_batch_bytes)
            if following is not None and following.last_offset[0] >= due:
                return damaged_bytes + size_bytes
        found = next_valid_batch(
            self._file,
            damaged_bytes + 1,
            split.end_bytes,
            from_offset=due,
            largest_bytes=self._max_batch_bytes,
        )
        if found is not None:
            return found.position[0]
        self._finish()
        return None

    def _after_scan(self, position: int, rest: Bytes) -> int | None:
        """What the end of a scan means, at a position behind the last whole batch."""
        split, table = self._split, self._table
        if position >= split.end_bytes:
            self._finish()
            return None
        if table.need_bytes > self._max_batch_bytes:
            self._losses.open(position, _too_large(table.need_bytes, self._max_batch_bytes))
            return self._behind(position)
        if not len(rest):
            if not base_name(split.file).endswith(GZIP_SUFFIX):  # of a compressed copy nobody knows the size
                what = f"file ends here, it had {split.end_bytes} bytes when it was planned"
                self._losses.open(position, StorageError(what, cure="it changed meanwhile: read it again"))
            self._finish()
            return None
        if first_filled_byte(self._file, position, split.end_bytes) is None:
            self._finish()  # allocated in advance, or left by a crash: nothing was ever written there
            return None
        problem = tail_problem(table, rest)
        if problem is not None:
            self._losses.open(position, problem)
        return self._behind(position)

    def _finish(self) -> None:
        """End the split; how far offsets are missing, the next split's first batch tells."""
        if not self._losses.is_open:
            return
        following = valid_batch(self._file, self._split.end_bytes, self._max_batch_bytes)
        offset = OFFSET_UNKNOWN if following is None else following.base_offset[0]
        self._losses.finish(None if offset == OFFSET_UNKNOWN else offset)


def _offset_at_start(data: Bytes) -> int | None:
    """The base offset of the batch that starts there, None where its header is cut or it is a compressed set
    of magic 0 or 1."""
    if len(data) < BATCH_HEADER_BYTES or data[MAGIC_POSITION] != NEWEST_MAGIC:
        return None
    return int.from_bytes(data[:_OFFSET_BYTES], "big", signed=True)


def _too_large(size_bytes: int, limit_bytes: int) -> KlogError:
    return DecompressionLimitError(
        f"batch claims {size_bytes} bytes, at most {limit_bytes} are read",
        cure="its size is damaged, or raise maxDecompressedBytes if it really is that large",
    )
