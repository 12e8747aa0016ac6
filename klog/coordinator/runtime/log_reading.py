"""Reads the log of a partition of an internal topic from its start, for a coordinator that loads it.

Rules: Kafka's `GroupMetadataManager.doLoadGroupsAndOffsets` and
`TransactionStateManager.loadTransactionMetadata`. The log is read in chunks of whole batches, from
its start to the end that it has when the reading begins.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from klog.formats.constants import MAGIC_V2
from klog.formats.errors import FormatError, KlogError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class BatchReader(Protocol):
    """Takes the batches of one partition in their order."""

    def add_batch(self, data: memoryview, table: BatchTable, row: int) -> None:
        """Take one batch. Raises `FormatError` if the batch cannot be decoded."""


AddPlain = Callable[[memoryview, BatchTable, int, int], int]


def no_pause() -> None:
    """Go on reading without a pause."""


def read_log(
    log: PartitionLog,
    buffer_bytes: int,
    still_leads: Callable[[], bool],
    reader: BatchReader,
    pause: Callable[[], None] = no_pause,
    add_plain: AddPlain | None = None,
) -> bool:
    """Give the reader all batches; false if this broker leads the partition no longer.

    `buffer_bytes` is how much is read at once; a batch that is larger is read as a whole. If a batch cannot
    be decoded, that is logged with its offsets and the rest is read. If the log cannot be read to its end,
    that is logged, too: what was read until then is served all the same, as in Kafka.

    `pause` is called after each chunk. `add_plain` takes several batches at once, from a row on and before
    another row; it returns the row of the first that it has not taken.
    """
    with log.lock:
        offset, end_offset = log.log_start_offset, log.log_end_offset
    try:
        while offset < end_offset:
            if not still_leads():
                return False
            after = _read_chunk(log, reader, offset, end_offset, buffer_bytes, add_plain)
            if after == offset:
                _log.error(
                    "%s: the records from %d on are not loaded: none can be read", log.partition, offset
                )
                break
            offset = after
            pause()
    except (KlogError, OSError) as error:
        _log.error("%s could not be read to its end: %s", log.partition, error)
    return True


def _read_chunk(
    log: PartitionLog,
    reader: BatchReader,
    offset: int,
    end_offset: int,
    buffer_bytes: int,
    add_plain: AddPlain | None,
) -> int:
    """Read batches from `offset` on; the offset after the last of them."""
    read = log.read(offset, buffer_bytes, end_offset, at_least_one=True)
    if read.file is None:
        return offset
    data = memoryview(os.pread(read.file.fileno(), read.size, read.position))
    table = BatchTable()
    kernel.scan(data, read.position, True, table)
    row, rows = bisect_left(table.last_offset, offset), len(table)
    while row < rows:
        if add_plain is not None:
            try:
                row = add_plain(data, table, row, rows)
            except FormatError:
                add_plain = None  # one after the other, to find out which of them is damaged
            if row == rows:
                break
        try:
            reader.add_batch(data, table, row)
        except FormatError as error:
            first, last = table.base_offset[row], table.last_offset[row]
            _log.warning("%s: the records %d to %d are not loaded: %s", log.partition, first, last, error)
        row += 1
    return table.last_offset[len(table) - 1] + 1 if len(table) else offset


def end_of_plain(table: BatchTable, first: int, last: int, not_plain: int) -> int:
    """The first row, from `first` to `last`, of an old message or of a batch with one of these attributes."""
    row = first
    attributes, magics = table.attributes, table.magic
    while row < last and magics[row] == MAGIC_V2 and not attributes[row] & not_plain:
        row += 1
    return row
