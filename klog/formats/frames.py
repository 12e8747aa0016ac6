"""The frame of records that contain their own type: KRaft's metadata log and the log of remote segments.

Rules: Kafka's `AbstractApiMessageSerde` and its message schemas. Three unsigned varints (frame version, type,
version of the type) precede the record's fields, which are all flexible (KIP-482). A record with an undefined
type or version keeps its fields as raw bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import construct as c

from klog.formats import fast_readers, fast_writers, schema
from klog.formats import primitives as p
from klog.formats.definition_shapes import shape_of
from klog.formats.reader_source import Reader
from klog.formats.schema import Field
from klog.formats.values import Value
from klog.formats.varints import uvarint

FRAME_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RecordType:
    """One record type: Kafka's name, its versions, and the fields of all of them."""

    name: str
    versions: range
    fields: tuple[Field, ...]


def record_type(name: str, last_version: int, *fields: Field) -> RecordType:
    """A record type with versions 0 to `last_version`."""
    return RecordType(name, range(last_version + 1), fields)


class FieldsByType(c.Construct):  # type: ignore[misc]
    """The fields of the record's type and version; raw bytes if they are not defined."""

    def __init__(self, records: Mapping[int, RecordType]) -> None:
        super().__init__()
        self.type_name = "fields of the type and version"
        self.size_text = "n"
        self.fields = {
            (kind, version): schema.fields_of(version, 0, *record.fields)
            for kind, record in records.items()
            for version in record.versions
        }
        self.cases = {
            f"{kind} {records[kind].name} version {version}": fields
            for (kind, version), fields in self.fields.items()
        }

    def _of(self, context: c.Container) -> c.Construct:
        return self.fields.get((context["type"], context["version"]), c.GreedyBytes)

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return self._of(context)._parsereport(stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return self._of(context)._build(obj, stream, context, path)


def frame(records: Mapping[int, RecordType]) -> c.Struct:
    """The definition of a framed record of these types."""
    return c.Struct(
        "frameVersion" / c.Const(FRAME_VERSION, p.UVarInt) * "1; 0 was a preview in 2.8",
        "type" / p.UVarInt * "of the record",
        "version" / p.UVarInt * "of the type",
        "fields" / FieldsByType(records),
    )


def reader(records: Mapping[int, RecordType]) -> Callable[[bytes], Value]:
    """Reads a whole framed record of a defined type and version fast. Raises `fast_readers.REFUSALS`."""
    fields = FieldsByType(records).fields
    head = fast_readers.reader(c.Struct("frame" / p.UVarInt, "type" / p.UVarInt, "version" / p.UVarInt))

    @cache
    def fields_of(kind: int, version: int) -> Reader:
        return fast_readers.reader(fields[kind, version])

    def read(data: bytes) -> Value:
        found, position = head(data, 0)
        kind, version = found["type"], found["version"]
        if found["frame"] != FRAME_VERSION or (kind, version) not in fields:
            raise ValueError
        value, end = fields_of(kind, version)(data, position)
        if end != len(data):
            raise ValueError
        return {"frameVersion": FRAME_VERSION, "type": kind, "version": version, "fields": value}

    return read


def writer(records: Mapping[int, RecordType]) -> Callable[[int, int, Mapping[str, Value]], bytes]:
    """Writes a framed record of a type and version fast, of a mapping that has the fields by their names.

    A tagged field, which is a name as any other, is written if the mapping has it. Raises `FormatError` for a
    text that is too long.
    """
    fields = FieldsByType(records).fields

    @cache
    def parts_of(kind: int, version: int) -> tuple[bytes, fast_writers.Writer]:
        head = uvarint(FRAME_VERSION) + uvarint(kind) + uvarint(version)
        return head, fast_writers.writer(shape_of(fields[kind, version]))

    def write(kind: int, version: int, value: Mapping[str, Value]) -> bytes:
        head, write_fields = parts_of(kind, version)
        return head + write_fields(value)

    return write
