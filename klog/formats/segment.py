"""A segment's `.log`: batches and messages in sequence, of any magic, without header and footer.

Rules: the first 12 bytes and the magic at byte 16 are common to all. `entries` reads a buffer lazily and
raises a typed error at the first damage. The kernel's fast readers do the same on columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Final, NamedTuple

import construct as c

from klog.formats import binary, message_set, record_batch
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    ENTRY_PREFIX_BYTES,
    ENTRY_SIZE_POSITION,
    MAGIC_POSITION,
    MIN_ENTRY_BYTES,
)
from klog.formats.errors import CorruptRecordError, UnsupportedFormatError
from klog.formats.packed import INT32
from klog.formats.structures import Filled
from klog.formats.values import Bytes, Value

TITLE: Final = "log segment"


class ByMagic(c.Construct):  # type: ignore[misc]
    """A construct that is chosen by the magic at byte 16 of its data."""

    def __init__(self, cases: dict[int, c.Construct]) -> None:
        super().__init__()
        self.cases = cases
        self.type_name = "by the magic at byte 16"

    def _case(self, magic: int, path: str) -> c.Construct:
        if magic not in self.cases:
            raise c.SwitchError(f"magic {magic} is none of Kafka's (0, 1, 2)", path=path)
        return self.cases[magic]

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        start = stream.tell()
        head = stream.read(MAGIC_POSITION + 1)
        stream.seek(start)
        if len(head) <= MAGIC_POSITION:
            raise c.StreamError(f"{len(head)} bytes are too few for a batch", path=path)
        return self._case(head[MAGIC_POSITION], path)._parsereport(stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        magic = obj["magic"] if "magic" in obj else obj["body"]["magic"]
        return self._case(magic, path)._build(obj, stream, context, path)


Entry: Final = ByMagic({0: message_set.Message, 1: message_set.Message, 2: record_batch.RecordBatch})
Segment: Final = Filled("entry" / Entry)


class Located(NamedTuple):
    """One entry of a segment: its position, its size, and its fields."""

    position_bytes: int
    size_bytes: int
    magic: int
    value: c.Container


def entries(data: Bytes, *, position_bytes: int = 0, check_crc: bool = True) -> Iterator[Located]:
    """The entries of a segment, one at a time. Raises `FormatError` at the first bad one.

    `position_bytes` is the position of `data` in its file.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        here = position_bytes + at
        size = entry_size(view[at:], here)
        entry = view[at : at + size]
        magic = entry[MAGIC_POSITION]
        if magic not in Entry.cases:
            raise UnsupportedFormatError(
                f"{TITLE}: magic {magic} is none of Kafka's (0, 1, 2)",
                position_bytes=here + MAGIC_POSITION,
                cure="the bytes are damaged, or are not a segment; recovery cuts the segment here",
            )
        if check_crc:
            (record_batch if magic == 2 else message_set).require_crc(entry, here)
        yield Located(here, size, magic, binary.parse_all(Entry, entry, TITLE, here))
        at += size


def entry_size(rest: Bytes, here: int) -> int:
    """The size of the entry that bytes start with. Raises `CorruptRecordError` unless all of it is there."""
    if len(rest) < MIN_ENTRY_BYTES:
        raise CorruptRecordError(
            f"{TITLE}: {len(rest)} bytes are too few for a batch",
            position_bytes=here,
            cure="a write was cut off; recovery cuts the segment here",
        )
    size = ENTRY_PREFIX_BYTES + int(INT32.unpack_from(rest, ENTRY_SIZE_POSITION)[0])
    if size < (BATCH_HEADER_BYTES if rest[MAGIC_POSITION] == 2 else MIN_ENTRY_BYTES):
        raise CorruptRecordError(
            f"{TITLE}: a batch of {size} bytes is smaller than its header",
            position_bytes=here + ENTRY_SIZE_POSITION,
            cure="nothing after it can be found; recovery cuts the segment here",
        )
    if size > len(rest):
        raise CorruptRecordError(
            f"{TITLE}: a batch of {size} bytes, but only {len(rest)} are left",
            position_bytes=here,
            cure="a write was cut off or the size is damaged; recovery cuts the segment here",
        )
    return size


def parse(data: Bytes) -> list[Located]:
    """All entries of a segment. Raises `FormatError` at the first bad one."""
    return list(entries(data))


def build(segment: list[Located]) -> bytes:
    """The bytes of a segment's entries."""
    return b"".join(binary.build(Entry, entry.value, TITLE) for entry in segment)
