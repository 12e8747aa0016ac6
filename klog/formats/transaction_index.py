"""The transaction index (`.txnindex`) of a segment: its aborted transactions (KIP-98).

Rules: Kafka's `TransactionIndex` and `AbortedTxn`. Only aborted transactions have an entry, so most segments
have no such file. A read_committed fetch returns the entries that overlap its data, and the consumer drops
their records.
"""

from __future__ import annotations

from typing import Final

import construct as c

from klog.formats import binary
from klog.formats.constants import TXN_INDEX_VERSION
from klog.formats.structures import Filled
from klog.formats.values import Bytes

TITLE: Final = "transaction index"

AbortedTxn: Final = c.Struct(
    "version" / c.Const(TXN_INDEX_VERSION, c.Int16sb) * "0",
    "producerId" / c.Int64sb * "whose transaction",
    "firstOffset" / c.Int64sb * "of its first record",
    "lastOffset" / c.Int64sb * "of the ABORT marker; strictly increasing",
    "lastStableOffset" / c.Int64sb * "of the partition when the marker was appended: ends the search early",
)
TransactionIndex: Final = Filled(AbortedTxn)


def parse(data: Bytes) -> list[c.Container]:
    """The aborted transactions. Raises `FormatError`."""
    return list(binary.parse_all(TransactionIndex, data, TITLE))


def build(entries: list[c.Container]) -> bytes:
    """The bytes of a transaction index."""
    return binary.build(TransactionIndex, entries, TITLE)
