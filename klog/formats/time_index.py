"""The time index (`.timeindex`) of a segment: the largest timestamps up to some offsets (KIP-33).

Rules: Kafka's `TimeIndex`. No record up to the offset of an entry has a later timestamp than the entry;
timestamps strictly increase. The offset is the last one of the batch with the largest timestamp.
"""

from __future__ import annotations

from typing import Final

import construct as c

from klog.formats import index_entries

TITLE: Final = "time index"

Entry: Final = c.Struct(
    "timestamp" / c.Int64sb * "largest timestamp (ms) of the segment so far",
    "relativeOffset" / c.Int32sb * "last offset of the batch that has it, minus the segment's base offset",
)
TimeIndex: Final = index_entries.index_of(Entry)
_FORMAT: Final = index_entries.IndexFormat(TITLE, Entry, TimeIndex)

parse = _FORMAT.parse
entries = _FORMAT.entries
build = _FORMAT.build
