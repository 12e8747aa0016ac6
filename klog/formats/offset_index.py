"""The offset index (`.index`) of a segment: the positions in the `.log` of some offsets.

Rules: Kafka's `OffsetIndex`. Not every batch has an entry (`index.interval.bytes`), so a lookup takes the
largest entry at or below the offset and scans from there. Brokers before 2.x stored the first offset of the
batch, later ones the last; a reader must accept both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import construct as c

from klog.formats import binary, index_entries
from klog.formats.values import Bytes

TITLE: Final = "offset index"

Entry: Final = c.Struct(
    "relativeOffset"
    / c.Int32sb
    * "offset minus the segment's base offset; last of its batch (of the first, before 2.x)",
    "position" / c.Int32sb * "byte of the .log where the batch starts",
)
OffsetIndex: Final = index_entries.index_of(Entry)


def parse(data: Bytes) -> c.Container:
    """`entries` and the pre-allocated `tail`. Raises `FormatError`."""
    return index_entries.parse(OffsetIndex, data, TITLE)


def entries(data: Bytes) -> Iterator[c.Container]:
    """The entries one at a time, for files that are large or damaged at the end."""
    return index_entries.iterate(Entry, data, TITLE)


def build(index: c.Container) -> bytes:
    """The bytes of an offset index."""
    return binary.build(OffsetIndex, index, TITLE)
