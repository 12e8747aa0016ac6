"""Says what is wrong with the bytes after the last batch of a segment."""

from __future__ import annotations

from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import MAGIC_POSITION, MIN_MESSAGE_SIZE
from klog.formats.errors import CorruptRecordError, FormatError, KlogError
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable

NEWEST_MAGIC: Final = 2
RECOVER_CUTS: Final = "`klog recover` cuts the log there as Kafka would and keeps what it cuts"


def tail_problem(table: BatchTable, rest: Bytes) -> KlogError | None:
    """What is wrong with the bytes after the last batch of a finished scan; None if there are none.

    `rest` is what the last buffer holds after that batch.
    """
    position = table.origin + table.consumed_bytes
    if not len(rest):
        return None
    if position == 0 and not _looks_like_batch(rest):
        return FormatError(
            "does not start with a Kafka record batch: this is no segment, or its first bytes are lost",
            position_bytes=0,
            cure="check that the file is a .log of Kafka; a compressed copy must end in .gz",
        )
    if not any(rest):
        what = "zero bytes follow the last batch"
        return CorruptRecordError(
            what, position_bytes=position, cure=f"left by an unclean stop; {RECOVER_CUTS}"
        )
    if table.stop == STOP_BAD_SIZE:
        what = f"size field {table.stop_size} is below the smallest, {MIN_MESSAGE_SIZE}: no batch can follow"
    elif table.need_bytes:
        what = f"last batch needs {table.need_bytes} bytes, {len(rest)} are left"
    else:
        what = f"{len(rest)} bytes follow the last batch, too few for another"
    return CorruptRecordError(what, position_bytes=position, cure=RECOVER_CUTS)


def _looks_like_batch(data: Bytes) -> bool:
    """Whether the first bytes could be those of a batch, or are all zero as in a pre-allocated segment."""
    head = bytes(data[: MAGIC_POSITION + 1])
    if not any(head):
        return True
    return len(head) <= MAGIC_POSITION or (head[MAGIC_POSITION] <= NEWEST_MAGIC and head[0] < 128)
