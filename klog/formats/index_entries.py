"""The common form of offset and time indexes: entries of fixed size without checksum, then maybe a
pre-allocated tail.

Rules: Kafka's `AbstractIndex`. The index files of the active segment are pre-allocated to
`segment.index.bytes`, filled with zeros, and trimmed on roll or clean close. After a crash they still have
their full size, so the entries end at the first all-zero entry after entry 0. Entry 0 may be all zeros.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import construct as c

from klog.formats import binary
from klog.formats.errors import FormatError
from klog.formats.primitives import Variable, remaining_bytes
from klog.formats.values import Bytes, Value


class EntriesToZeroTail(Variable):
    """Entries of fixed size up to the end, or to the first all-zero one after entry 0."""

    def __init__(self, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.entry_bytes = int(subcon.sizeof())
        self.type_name = "repeated to the end or zeros"
        self.size_text = f"{self.entry_bytes} * n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> c.ListContainer:
        entries = c.ListContainer()
        zero = bytes(self.entry_bytes)
        while remaining_bytes(stream) >= self.entry_bytes:
            start = stream.tell()
            if stream.read(self.entry_bytes) == zero and entries:
                stream.seek(start)
                break
            stream.seek(start)
            entries.append(self.subcon._parsereport(stream, context, path))
        return entries

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        for entry in obj:
            self.subcon._build(entry, stream, context, path)
        return obj


def index_of(entry: c.Construct) -> c.Struct:
    """The definition of an index file of such entries."""
    return c.Struct(
        "entries" / EntriesToZeroTail(entry),
        "tail"
        / c.GreedyBytes
        * "zero bytes of a pre-allocated index; empty once the segment was rolled or closed",
    )


def iterate(entry: c.Construct, data: Bytes, what: str) -> Iterator[c.Container]:
    """The entries before the zero tail, one at a time. An incomplete entry at the end is left out."""
    entry_bytes = int(entry.sizeof())
    zero = bytes(entry_bytes)
    view = memoryview(data)
    for at in range(0, len(view) - entry_bytes + 1, entry_bytes):
        raw = view[at : at + entry_bytes]
        if at and raw == zero:
            return
        yield binary.parse_all(entry, raw, what, at)


def parse(definition: c.Struct, data: Bytes, what: str) -> c.Container:
    """A whole index file. Raises `FormatError` if the tail is not zero, or ends inside an entry."""
    index: c.Container = binary.parse_all(definition, data, what)
    entry_bytes = int(definition.subcons[0].subcon.subcon.sizeof())
    cure = "an index holds nothing that the segment does not: `klog rebuild-index` rebuilds it"
    if len(data) % entry_bytes:
        raise FormatError(
            f"{what}: {len(data)} bytes are no whole number of {entry_bytes}-byte entries",
            position_bytes=len(data) - len(data) % entry_bytes,
            cure=cure,
        )
    garbage = len(index.tail) - len(index.tail.lstrip(b"\0"))
    if garbage < len(index.tail):
        at = len(data) - len(index.tail) + garbage
        raise FormatError(
            f"{what}: entries end before byte {at}, but it is not zero", position_bytes=at, cure=cure
        )
    return index


@dataclass(frozen=True, slots=True)
class IndexFormat:
    """The format of an index: its title and the definition of its entries."""

    title: str
    entry: c.Construct
    definition: c.Struct

    def parse(self, data: Bytes) -> c.Container:
        """`entries` and the pre-allocated `tail`. Raises `FormatError`."""
        return parse(self.definition, data, self.title)

    def entries(self, data: Bytes) -> Iterator[c.Container]:
        """The entries one at a time, for files that are large or damaged at the end."""
        return iterate(self.entry, data, self.title)

    def build(self, index: c.Container) -> bytes:
        """The bytes of an index."""
        return binary.build(self.definition, index, self.title)
