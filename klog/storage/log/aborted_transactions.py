"""Reads the entries of a transaction index that concern a fetch, without reading all of it.

Rules: Kafka's `TransactionIndex.collectAbortedTxns`. The entries stand in the order of their markers. So the
first one that matters is found by bisection, and reading ends where no later one can matter. A segment may
have aborted some 100,000 transactions, and every read_committed fetch asks.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import Final, NamedTuple

from klog.formats.packed import TXN_INDEX_ENTRY
from klog.storage.reading.producer_state import AbortedTxn, unpack_aborted

_ENTRIES_AT_ONCE: Final = 128
_ENTRY_BYTES: Final = TXN_INDEX_ENTRY.size


class AbortedFound(NamedTuple):
    """The aborted transactions of one index; `is_complete` says that later indexes have no others."""

    transactions: list[AbortedTxn]
    is_complete: bool


NO_ABORTED: Final = AbortedFound([], is_complete=False)


def aborted_between(descriptor: int, offset: int, upper_offset: int) -> AbortedFound:
    """The transactions of an open index whose markers are at or after `offset`, and that begin before
    `upper_offset`.
    """

    def entries(first: int, count: int) -> list[AbortedTxn]:
        return unpack_aborted(os.pread(descriptor, count * _ENTRY_BYTES, first * _ENTRY_BYTES))

    def last_offset(number: int) -> int:
        return entries(number, 1)[0].last_offset

    count = os.fstat(descriptor).st_size // _ENTRY_BYTES
    found: list[AbortedTxn] = []
    position = bisect_left(range(count), offset, key=last_offset)
    while position < count:
        for txn in entries(position, min(_ENTRIES_AT_ONCE, count - position)):
            if txn.first_offset < upper_offset:
                found.append(txn)
            if txn.last_stable_offset >= upper_offset:
                return AbortedFound(found, True)
        position += _ENTRIES_AT_ONCE
    return AbortedFound(found, False)
