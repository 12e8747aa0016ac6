"""Decodes values in Confluent's wire format: each names the schema that it was written with.

All values get the type of the decoder inside. Avro resolves the writer's schema to it; protobuf reads any
version of the same message; JSON does not depend on the writer's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from klog.export.decoders.avro import AvroDecoder, parsed
from klog.export.decoders.decoder import Decoded, DecodeError, decode_each
from klog.export.decoders.json import JsonDecoder
from klog.export.decoders.protobuf import MessageTypes, ProtobufDecoder
from klog.export.decoders.wire import HEADER_BYTES, RegisteredSchema, split_header
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_Parsed = TypeVar("_Parsed")


class RegisteredJson:
    """Decodes JSON after a header, whose schema is not needed."""

    def __init__(self, json: JsonDecoder) -> None:
        self._json = json
        self.kind = json.kind

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array of framed JSON texts."""
        import pyarrow as pa
        import pyarrow.compute as pc

        framed = pc.and_(
            pc.greater_equal(pc.binary_length(values), HEADER_BYTES), pc.starts_with(values, pattern=b"\0")
        )
        # `binary_slice` of Arrow 26 fails on values of different lengths.
        headless = pc.binary_replace_slice(values, 0, HEADER_BYTES, b"")
        bare = pc.if_else(framed, headless, pa.scalar(None, pa.binary()))
        found = self._json.decode(bare)
        if bare.null_count == values.null_count:
            return found
        unframed = pc.and_(pc.is_valid(values), pc.is_null(bare))
        rows = pc.indices_nonzero(unframed).to_pylist()
        return Decoded(found.values, found.errors | {row: _why_unframed(values[row].as_py()) for row in rows})


def _why_unframed(value: bytes) -> str:
    try:
        split_header(value)
    except DecodeError as error:
        return str(error)
    return ""


class _SchemasById(dict[int, _Parsed]):
    """Schemas by id; each is parsed when a record names it for the first time."""

    def __init__(self, schemas: Iterable[RegisteredSchema], parse: Callable[[str], _Parsed]) -> None:
        self._texts = {schema.schema_id: schema.text for schema in schemas}
        self._parse = parse

    def __missing__(self, schema_id: int) -> _Parsed:
        """Parse a schema. Raises DecodeError if it is unknown or invalid."""
        if schema_id not in self._texts:
            raise DecodeError(f"names schema {schema_id}, which is not in the directory of schemas")
        try:
            self[schema_id] = self._parse(self._texts[schema_id])
        except UsageError as error:
            raise DecodeError(f"names schema {schema_id}: {error}") from None
        return self[schema_id]


class RegisteredAvro:
    """Decodes Avro after a header, resolved from the schema that the header names."""

    def __init__(self, avro: AvroDecoder, schemas: Iterable[RegisteredSchema]) -> None:
        self._avro = avro
        self._schemas: _SchemasById[Any] = _SchemasById(schemas, parsed)
        self.kind = avro.kind

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array of framed Avro data."""
        return decode_each(values, self.kind, self._one)

    def _one(self, value: bytes) -> object:
        schema_id, data = split_header(value)
        return self._avro.decode_written(data, self._schemas[schema_id])


class RegisteredProtobuf:
    """Decodes protobuf after a header, which also says which message of the schema it is."""

    def __init__(self, protobuf: ProtobufDecoder, schemas: Iterable[RegisteredSchema]) -> None:
        self._protobuf = protobuf
        self._schemas = _SchemasById(schemas, MessageTypes)
        self.kind = protobuf.kind

    def decode(self, values: pa.Array) -> Decoded:
        """Decode a binary array of framed messages."""
        return decode_each(values, self.kind, self._one)

    def _one(self, value: bytes) -> object:
        schema_id, data = split_header(value)
        path, start = message_path(data)
        try:
            name = self._schemas[schema_id].at_path(path).full_name
        except IndexError:
            raise DecodeError(
                f"is message {path} of schema {schema_id}, which has no message there"
            ) from None
        if name != self._protobuf.message_name:
            raise DecodeError(f"is a {name}, not a {self._protobuf.message_name}")
        return self._protobuf.decode_one(data[start:])


def message_path(data: bytes) -> tuple[list[int], int]:
    """The path of the message's type in its file, and the position of the message.

    The path is a zig-zag varint with its length, then each index; length 0 means the first message. Raises
    DecodeError.
    """
    count, at = _varint(data, 0)
    if count == 0:
        return [0], at
    path = []
    for _ in range(count):
        number, at = _varint(data, at)
        path.append(number)
    if not path or min(path) < 0:
        raise DecodeError("the path of its message has a negative number")
    return path, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise DecodeError("the path of its message is incomplete")
