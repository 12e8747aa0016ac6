"""Reads a segment in chunks of whole batches through one reused buffer, so memory does not grow with the
file.

Chunks are read with `readinto`: it is faster than mapping the file, and a file that shrinks meanwhile cannot
kill the process. The buffer grows only to hold one batch that is larger than it, and never past what the file
really holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.formats.constants import BATCH_HEADER_BYTES
from klog.kernel import kernel
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable

CHUNK_BYTES: Final = 1 << 20

LARGEST_REUSED_BYTES: Final = 8 << 20
"""A larger buffer is used for one batch only, so memory is small again after a large batch. Callers may keep
the bytes of such a buffer, because nothing is written into it again."""


def chunks(
    file: BinaryIO,
    table: BatchTable,
    *,
    start_bytes: int = 0,
    end_bytes: int | None = None,
    starts_before_bytes: int | None = None,
    max_batch_bytes: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    keeps_previous: bool = False,
) -> Iterator[memoryview]:
    """Scan `file` from `start_bytes` (the position of a batch) and yield buffers of whole batches.

    `table` holds the headers of the batches in the yielded buffer. The buffer is valid until the next one is
    requested. After the last one, `table.origin + table.consumed_bytes` is the end of the whole batches, and
    `table.stop` says why the scan ended; the last table may be empty. Reads up to `end_bytes`, by default the
    end of the file; data that is appended meanwhile is read too.

    With `starts_before_bytes` (instead of `end_bytes`) the file is read only up to the end of the last batch
    that starts before that position; some batches that start after it may come too. A batch of more than
    `max_batch_bytes` (its size is in `table.need_bytes`) ends the scan unread. With `keeps_previous` there
    are two buffers in turns: each is valid until the one after the next is requested.
    """
    file.seek(start_bytes)
    # A buffer that holds the header of a batch always says how many more bytes the batch needs.
    chunk_bytes = max(chunk_bytes, BATCH_HEADER_BYTES)
    buffer = bytearray(chunk_bytes)
    other = bytearray()
    origin = start_bytes
    held = 0
    final = False
    limit = end_bytes if starts_before_bytes is None else starts_before_bytes
    while True:
        wanted = len(buffer) - held
        if limit is not None:
            wanted = min(wanted, limit - origin - held)
        got = file.readinto(memoryview(buffer)[held : held + wanted]) if wanted > 0 else 0  # type: ignore[attr-defined]
        held += got
        final = got == 0
        view = memoryview(buffer)[:held]
        kernel.scan(view, origin, final, table)
        if final and starts_before_bytes is not None and wanted <= 0:
            # The bound cuts a batch, not the file: the rest of that batch is read, or at least its header.
            more = _end_of_cut_batch(table, held, starts_before_bytes)
            final = more is None
            limit = more or limit
        if max_batch_bytes is not None and table.need_bytes > max_batch_bytes:
            final = True
        if len(table) or final or table.stop == STOP_BAD_SIZE:
            yield view
        if final or table.stop == STOP_BAD_SIZE:
            return
        rest = held - table.consumed_bytes
        let_go = table.consumed_bytes > 0 and len(buffer) > max(chunk_bytes, LARGEST_REUSED_BYTES)
        if table.need_bytes > len(buffer) or let_go:
            # Without a limit the buffer at most doubles: a length field may be wrong, the bytes read are not.
            most_bytes = 2 * held if max_batch_bytes is None else max_batch_bytes
            fresh = bytearray(max(chunk_bytes, min(table.need_bytes, most_bytes)))
            fresh[:rest] = view[table.consumed_bytes :]
            buffer = fresh
            del view, fresh  # a large buffer is not kept after its batch
        else:
            if keeps_previous and table.consumed_bytes:
                following = other if len(other) == len(buffer) else bytearray(len(buffer))
                buffer, other = following, buffer
            buffer[:rest] = bytes(view[table.consumed_bytes :])
        origin += table.consumed_bytes
        held = rest


def _end_of_cut_batch(table: BatchTable, held_bytes: int, starts_before_bytes: int) -> int | None:
    """The end of the batch that the buffer cuts; None if it cuts none."""
    start = table.origin + table.consumed_bytes
    if start >= starts_before_bytes or table.stop == STOP_BAD_SIZE:
        return None
    end = start + max(table.need_bytes, BATCH_HEADER_BYTES)
    return end if end > table.origin + held_bytes else None
