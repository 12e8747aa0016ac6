"""A read_committed consumer of one log: fetches it, and leaves out what was aborted as clients do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klog.formats import record_batch
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import bytes_of


def committed_records(log: PartitionLog, read_bytes: int) -> list[tuple[int, bytes | None]]:
    """The offsets and values that a client gives its user, in fetches of this size."""
    seen: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        read = log.read(offset, read_bytes, log.last_stable_offset, at_least_one=True, committed=True)
        data = bytes_of(read)
        if not data:
            break  # only a gap is left, which a cut or the cleaner has made
        waiting = sorted(read.aborted, key=lambda txn: txn.first_offset)
        aborted: set[int] = set()
        for found in whole_batches(data):
            last = found.baseOffset + found.lastOffsetDelta
            while waiting and waiting[0].first_offset <= last:
                aborted.add(waiting.pop(0).producer_id)
            if found.attributes.isControl:
                aborted.discard(found.producerId)
            elif not (found.attributes.isTransactional and found.producerId in aborted):
                records = record_batch.records(found)
                numbered = ((found.baseOffset + each.offsetDelta, each.value) for each in records)
                seen += [each for each in numbered if each[0] >= offset]
            offset = last + 1
    return seen


def whole_batches(data: bytes) -> Iterator[Any]:
    """The batches of a fetch; the last one may be cut off, and is left out."""
    at = 0
    while at + 12 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        if at + size > len(data):
            return
        yield record_batch.parse(data[at : at + size])
        at += size
