"""Chunks of a segment with their checksums computed, on two cores if there are two.

Most of the time of such a pass goes into reading 1 GiB out of the page cache and into its checksums. Two
threads take turns at the blocks of a long file. Each reads and verifies its own, because bytes that another
core has read are slow to get. The chain of batches leads from block to block: a block is scanned after the
one before it, which takes no time beside the rest.

Only plain blocks are done so. Where one is not (the file ends or shrinks, the disk is bad, a size field is
not valid, a batch is large), the reader of `chunks` goes on from the batch before. So what is wrong is found
and said by the same code as ever.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import BinaryIO, Final

from klog.jobs.cores import own_cores
from klog.jobs.second_thread import SecondThread
from klog.kernel import kernel
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable
from klog.storage.files.chunks import CHUNK_BYTES, chunks

BLOCK_BYTES: Final = 2 << 20
"""One turn. Between turns a thread waits for as long as it takes to read 100 to 200 KiB."""
TWO_THREADS_FROM_BYTES: Final = 16 << 20
"""Below this a second thread costs more than it brings."""
ROOM_BYTES: Final = 1 << 20
"""Before each block is room for the batch that the one before cuts."""
THREAD_NAME: Final = "klog-verify"


def verified_chunks(
    file: BinaryIO,
    table: BatchTable,
    *,
    start_bytes: int = 0,
    end_bytes: int | None = None,
    max_batch_bytes: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[memoryview]:
    """The buffers of `chunks`, with `valid` and `computed_crc` of their batches in `table`.

    Many of them are as large as two blocks. Raises what `kernel.verify` raises.
    """
    start = yield from _by_turns(file, table, start_bytes, end_bytes)
    for data in chunks(
        file,
        table,
        start_bytes=start,
        end_bytes=end_bytes,
        max_batch_bytes=max_batch_bytes,
        chunk_bytes=chunk_bytes,
    ):
        kernel.verify(data, table)
        yield data


class _Block:
    """A block of the file behind what the one before has left."""

    def __init__(self, descriptor: int, end_bytes: int) -> None:
        self.table = BatchTable()
        self.data = memoryview(b"")
        self._descriptor = descriptor
        self._end_bytes = end_bytes
        # The kernel copies by half faster to the start of a page than to a few bytes after it.
        self._buffer = memoryview(mmap.mmap(-1, ROOM_BYTES + BLOCK_BYTES, mmap.MAP_PRIVATE))
        self._is_read = False

    def read(self, position_bytes: int) -> bool:
        """Read the block at a position. False if not all of it can be read, for whatever reason."""
        self._is_read = False
        if position_bytes + BLOCK_BYTES <= self._end_bytes:
            with suppress(OSError):
                got = os.preadv(self._descriptor, [self._buffer[ROOM_BYTES:]], position_bytes)
                self._is_read = got == BLOCK_BYTES
        return self._is_read

    def scan(self, origin: int, rest: bytes) -> bool:
        """Scan the bytes that were left, which begin at `origin`, and the block. False: it is not plain."""
        if not self._is_read or len(rest) > ROOM_BYTES:
            return False
        at = ROOM_BYTES - len(rest)
        self._buffer[at:ROOM_BYTES] = rest
        self.data = self._buffer[at:]
        kernel.scan(self.data, origin, False, self.table)
        return len(self.table) > 0 and self.table.stop != STOP_BAD_SIZE

    def check(self, origin: int, rest: bytes) -> bool:
        """Scan and verify."""
        is_plain = self.scan(origin, rest)
        if is_plain:
            self.verify()
        return is_plain

    def verify(self) -> None:
        """Verify the batches that were scanned."""
        kernel.verify(self.data, self.table)

    @property
    def left(self) -> tuple[int, bytes]:
        """Where the batch that the block cuts begins, and what is there of it."""
        table = self.table
        return table.origin + table.consumed_bytes, bytes(self.data[table.consumed_bytes :])


def _by_turns(
    file: BinaryIO, table: BatchTable, start_bytes: int, end_bytes: int | None
) -> Generator[memoryview, None, int]:
    """The chunks of plain blocks; returns the position of the batch after them."""
    if not isinstance(file, io.FileIO) or not hasattr(os, "preadv") or own_cores() == 1:
        return start_bytes
    size_bytes = os.fstat(file.fileno()).st_size
    end = size_bytes if end_bytes is None else min(end_bytes, size_bytes)
    if end - start_bytes < TWO_THREADS_FROM_BYTES:
        return start_bytes
    left = start_bytes, b""
    try:
        own, theirs, following = (_Block(file.fileno(), end) for _ in range(3))
        thread = SecondThread(THREAD_NAME)
    except (OSError, RuntimeError):
        return start_bytes  # there is no memory, or no thread, to be had
    with thread as second:
        second.give(theirs.read, start_bytes + BLOCK_BYTES)
        own.read(start_bytes)
        for position in range(start_bytes, end, 2 * BLOCK_BYTES):
            if not own.scan(*left):
                break
            left = own.left
            is_plain = second.give(theirs.check, *left)
            second.give(following.read, position + 3 * BLOCK_BYTES)
            own.verify()
            table.swap_contents(own.table)
            yield own.data
            own.read(position + 2 * BLOCK_BYTES)
            if not is_plain():
                break
            left = theirs.left
            table.swap_contents(theirs.table)
            yield theirs.data
            theirs, following = following, theirs
    return left[0]
