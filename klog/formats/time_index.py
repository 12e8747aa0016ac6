"""The time index (`.timeindex`) of a segment: the largest timestamps up to some offsets (KIP-33).

Rules: Kafka's `TimeIndex`. No record up to the offset of an entry has a later timestamp than the entry;
timestamps strictly increase. The offset is the last one of the batch with the largest timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import construct as c

from klog.formats import binary, index_entries
from klog.formats.values import Bytes

TITLE: Final = "time index"

Entry: Final = c.Struct(
    "timestamp" / c.Int64sb * "largest timestamp (ms) of the segment so far",
    "relativeOffset" / c.Int32sb * "last offset of the batch that has it, minus the segment's base offset",
)
TimeIndex: Final = index_entries.index_of(Entry)


def parse(data: Bytes) -> c.Container:
    """`entries` and the pre-allocated `tail`. Raises `FormatError`."""
    return index_entries.parse(TimeIndex, data, TITLE)


def entries(data: Bytes) -> Iterator[c.Container]:
    """The entries one at a time, for files that are large or damaged at the end."""
    return index_entries.iterate(Entry, data, TITLE)


def build(index: c.Container) -> bytes:
    """The bytes of a time index."""
    return binary.build(TimeIndex, index, TITLE)
