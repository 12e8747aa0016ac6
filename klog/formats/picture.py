"""Decodes a part of a real file field by field: which bytes have which name, and what they say.

A part is a batch of a segment, an entry of an index, a node or a transaction of ZooKeeper, or the whole of a
small file. If the format is that of a record, it is a batch, whose records are decoded. Bytes come from a
`Source`; no file is opened here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import construct as c

from klog.formats import (
    binary,
    message_set,
    offset_index,
    producer_snapshot,
    record_batch,
    segment,
    time_index,
    transaction_index,
    zookeeper_files,
)
from klog.formats import structures as s
from klog.formats.catalogue import Format
from klog.formats.constants import (
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    MIN_ENTRY_BYTES,
    SNAPSHOT_HEADER_BYTES,
)
from klog.formats.errors import FormatError, UsageError
from klog.formats.keyed import Keyed
from klog.formats.packed import ENTRY_PREFIX
from klog.formats.text_format import Line, TextFormat
from klog.formats.tracing import Place, trace
from klog.formats.values import Value

MAX_PART_BYTES: Final = 256 << 20
"""The largest part that is decoded. Brokers accept batches of 1 MiB by default."""

_BATCHES: Final = ("segment", "record-batch", "message-set")
# Formats that are a sequence of entries of fixed size after a header.
_ENTRIES: Final = {
    "offset-index": (offset_index.Entry, 0),
    "time-index": (time_index.Entry, 0),
    "transaction-index": (transaction_index.AbortedTxn, 0),
    "producer-snapshot": (producer_snapshot.ProducerEntry, SNAPSHOT_HEADER_BYTES),
}
# Those whose entries end at the first that is all zeros, but for entry 0.
_PREALLOCATED: Final = ("offset-index", "time-index")
_CONTROL: Final = "control-record"
# Formats that are a head and pieces of any size; what stands at its place in the bytes ends the pieces.
_PIECES: Final = {
    "zookeeper-log": (zookeeper_files.LogHead, zookeeper_files.LogEntry, {}),
    "zookeeper-snapshot": (
        zookeeper_files.SnapshotHead,
        zookeeper_files.SnapshotNode,
        {zookeeper_files.END_OF_NODES: zookeeper_files.SnapshotEnd},
    ),
}


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file: `read` gives those at a position, in a size; fewer if the file ends."""

    read: Callable[[int, int], bytes]
    size_bytes: int


class Section(NamedTuple):
    """Bytes with the places of their fields; `note` holds for all of them.

    `block` says that they are those of a decompressed block, and not of the file.
    """

    title: str
    first_byte: int
    data: bytes
    places: list[Place]
    block: bool = False
    note: str = ""

    def rows(self) -> Iterator[tuple[Place, bytes]]:
        """The places with the bytes that are theirs and of no place inside of them: each byte comes once."""
        begins = [place.start for place in self.places if place.bits is None]
        if self.data and begins[:1] != [self.first_byte]:
            begins.insert(0, self.first_byte)
            yield Place(0, "", "", self.first_byte), self._until(begins)
        for place in self.places:
            yield place, b"" if place.bits else self._until(begins)

    def _until(self, begins: list[int]) -> bytes:
        """The bytes from the first of these positions, which is removed, up to the next one."""
        start = begins.pop(0) - self.first_byte
        return self.data[start : begins[0] - self.first_byte if begins else None]


def sections(chosen: Format, source: Source, position: int) -> list[Section]:
    """The part of a file that starts at `position`, and what is inside of it. Raises `KlogError`."""
    if chosen.kind == "name":
        raise UsageError(f"{chosen.name} are names, which have no bytes in a file")
    if not 0 <= position < max(source.size_bytes, 1):
        raise UsageError(f"position {position} is not in the file, which has {source.size_bytes} bytes")
    if not source.size_bytes:
        return [Section("", 0, b"", [])]
    if chosen.name in _BATCHES or chosen.kind == "record":
        found, batch = _batch(chosen, source, position)
        if chosen.kind == "record":
            _require_kind(chosen, batch, position)
        inside = [found, *_inside(batch)]
        return inside if chosen.kind != "record" else list(_records(chosen.definition, inside[-1]))
    if chosen.name in _ENTRIES and (position or chosen.name != "producer-snapshot"):
        return [_entry(chosen, source, position)]
    if chosen.name in _PIECES:
        return [_piece(chosen, source, position)]
    if position:
        raise UsageError(f"a {chosen.name} is read as a whole", cure="leave the position out")
    return [_whole(chosen, source.read(0, MAX_PART_BYTES))]


def _whole(chosen: Format, data: bytes) -> Section:
    if isinstance(chosen.definition, TextFormat):
        chosen.parse(data)
        return Section("", 0, data, _text_places(chosen.definition, data))
    _, places = trace(chosen.definition, data, chosen.name)
    note = _crc_note(lambda: chosen.parse(data)) if chosen.name == "producer-snapshot" else ""
    return Section("", 0, data, places, note=note)


def _crc_note(check: Callable[[], object]) -> str:
    try:
        check()
    except FormatError as error:
        return error.what
    return "crc matches"


def _text_places(definition: TextFormat, data: bytes) -> list[Place]:
    """The lines of a text format, with the fields of an object of JSON."""
    places = []
    for at, text in definition.split(data):
        if text.startswith("{") and text.endswith("}"):
            places += [Place(0, "line", "", at, value={}), *_json_places(definition.lines[0], text, at)]
            continue
        label = text.partition("=")[0].partition(":")[0].strip(" {")  # none in JSON of several lines
        line = next((known for known in definition.lines if label and known.shape.startswith(label)), None)
        if line is None:
            places.append(Place(0, "line", "", at, value=text))
        else:
            places.append(Place(0, label, line.fields[0].meaning, at, value=line.text_of_field(text)))
    return places


def _json_places(line: Line, text: str, position: int) -> list[Place]:
    """The fields of an object, in the order of the text."""
    meanings = {field.name: field.meaning for field in line.fields}
    places = []
    for name, value in json.loads(text).items():
        at = len(text.partition(f'"{name}"')[0].encode())
        places.append(Place(1, name, meanings.get(name, ""), position + at, value=value))
    return places


def _entry(chosen: Format, source: Source, position: int) -> Section:
    entry, header_bytes = _ENTRIES[chosen.name]
    entry_bytes = int(entry.sizeof())
    number, beside = divmod(position - header_bytes, entry_bytes)
    if position < header_bytes or beside:
        before = header_bytes + max(number, 0) * entry_bytes
        raise UsageError(
            f"no entry of the {chosen.name} starts at byte {position}",
            cure=f"entries of {entry_bytes} bytes start at {before} and {before + entry_bytes}",
        )
    data = source.read(position, entry_bytes)
    if number and chosen.name in _PREALLOCATED and not any(data):
        tail = chosen.definition.subcons[-1]
        data = source.read(position, MAX_PART_BYTES)
        return Section(
            "after the entries", position, data, [Place(0, tail.name, tail.docs, position, value=data)]
        )
    _, places = trace(entry, data, chosen.name, position)
    return Section(f"entry {number}", position, data, places)


def _piece(chosen: Format, source: Source, position: int) -> Section:
    """The head of a file, or the piece that starts at a position. The next one starts after it."""
    head, piece, ends = _PIECES[chosen.name]
    data = source.read(position, MAX_PART_BYTES)
    ending = (end for mark, end in ends.items() if data.startswith(mark))
    definition = next(ending, piece) if position else head
    stream = io.BytesIO(data)
    try:
        binary.parse_next(definition, stream, chosen.name, position)
    except FormatError as error:
        error.cure = "does a piece start there? The head is at 0, and each piece says where it ends"
        raise
    own = data[: stream.tell()]
    _, places = trace(definition, own, chosen.name, position)
    return Section("" if position else "head", position, own, places)


def _batch(chosen: Format, source: Source, position: int) -> tuple[Section, c.Container]:
    head = source.read(position, ENTRY_PREFIX_BYTES).ljust(ENTRY_PREFIX_BYTES, b"\0")
    size = ENTRY_PREFIX_BYTES + ENTRY_PREFIX.unpack(head)[1]
    data = source.read(position, min(max(size, MIN_ENTRY_BYTES), MAX_PART_BYTES))
    try:
        segment.entry_size(data, position)
        batch, places = trace(segment.Entry, data, "batch", position)
    except FormatError as error:
        error.cure = "is it where a batch starts? `klog dump-segment FILE` lists the positions of batches"
        raise
    magic = data[MAGIC_POSITION]
    fitting = "record-batch" if magic == MAGIC_V2 else "message-set"
    if chosen.name in ("record-batch", "message-set") and chosen.name != fitting:
        raise UsageError(f"a batch of magic {magic} is at byte {position}", cure=f"it is a {fitting}")
    module = record_batch if magic == MAGIC_V2 else message_set
    note = _crc_note(lambda: module.require_crc(data, position))
    return Section("", position, data, places, note=note), batch


def _require_kind(chosen: Format, batch: c.Container, position: int) -> None:
    """Control records are no others. Raises `UsageError`."""
    is_control = "magic" in batch and batch.attributes.isControl
    if is_control != (chosen.name == _CONTROL):
        what = "holds a control record" if is_control else "holds no control record"
        raise UsageError(
            f"the batch at byte {position} {what}",
            cure=f"{f'it is a {_CONTROL}; ' if is_control else ''}`klog dump-segment FILE` lists all batches",
        )


def _inside(batch: c.Container) -> Iterator[Section]:
    """What a compressed batch holds, as its decompressed block."""
    if "magic" in batch:
        if batch.attributes.codec != "none" and batch.recordCount:
            block = record_batch.open_block(batch)
            _, places = trace(s.Filled(record_batch.Record), block, "records")
            yield Section(f"records, decompressed ({batch.attributes.codec})", 0, block, places, block=True)
    elif batch.body.attributes.codec != "none":
        block = message_set.open_block(batch)
        _, places = trace(s.Filled(message_set.Message), block, "messages")
        codec = batch.body.attributes.codec
        yield Section(f"messages, decompressed ({codec})", 0, block, places, block=True)


def _records(definition: Value, part: Section) -> Iterator[Section]:
    """The keys and values of records by the format of a record."""
    spans = [place for place in part.places if place.name in ("key", "value")]
    depth = min((place.depth for place in spans), default=0)  # those of headers are deeper
    spans = [place for place in spans if place.depth == depth]
    for number, (key, value) in enumerate(zip(spans[::2], spans[1::2], strict=True)):
        chosen = definition
        if isinstance(definition, Keyed):
            parsed, section = _field(definition.key, part, key, f"record {number}: key")
            yield section
            chosen = definition.choose(parsed)
        if value.value is None:
            yield Section(f"record {number}: value", value.start, b"", [], part.block, "null")
        else:
            yield _field(chosen, part, value, f"record {number}: value")[1]


def _field(definition: c.Construct, part: Section, place: Place, title: str) -> tuple[Value, Section]:
    start = place.start + place.lead
    data = part.data[start - part.first_byte : place.end - part.first_byte]
    value, places = trace(definition, data, title, start)
    return value, Section(title, start, data, places, part.block)
