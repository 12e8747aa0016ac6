"""The offset index (`.index`) of a segment: the positions in the `.log` of some offsets.

Rules: Kafka's `OffsetIndex`. Not every batch has an entry (`index.interval.bytes`), so a lookup takes the
largest entry at or below the offset and scans from there. Brokers before 2.x stored the first offset of the
batch, later ones the last; a reader must accept both.
"""

from __future__ import annotations

from typing import Final

import construct as c

from klog.formats import index_entries

TITLE: Final = "offset index"

Entry: Final = c.Struct(
    "relativeOffset"
    / c.Int32sb
    * "offset minus the segment's base offset; last of its batch (of the first, before 2.x)",
    "position" / c.Int32sb * "byte of the .log where the batch starts",
)
OffsetIndex: Final = index_entries.index_of(Entry)
_FORMAT: Final = index_entries.IndexFormat(TITLE, Entry, OffsetIndex)

parse = _FORMAT.parse
entries = _FORMAT.entries
build = _FORMAT.build
