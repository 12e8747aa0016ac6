"""Reads messages of internal topics as Kafka's generated classes do, and writes them as Kafka's JSON.

It follows the definitions in `klog.formats`, but treats wrong bytes as Kafka does: bytes after a message are
ignored, text that is not UTF-8 is replaced, and the dump prints Kafka's own error messages.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any, Final

import construct as c

from klog.formats import primitives as p
from klog.formats import structures
from klog.formats.wrapping import wrap_int32
from klog.kernel.text import java_text

Json = Any

_NO_FIELDS: Final[frozenset[str]] = frozenset()
_STRUCT_NAMES: Final = {
    "members": "MemberMetadata",
    "topics": "TopicMetadata",
    "topicPartitions": "TopicPartition",
    "assignedPartitions": "TopicPartitions",
    "partitionsPendingRevocation": "TopicPartitions",
    "classicMemberMetadata": "ClassicMemberMetadata",
}
_UNDERFLOW: Final = "null"  # a BufferUnderflowException has no message


class MessageError(Exception):
    """Kafka's error message for bytes that it cannot read; its tool prints the message and goes on."""


class Cursor:
    """A position in the bytes of one message."""

    __slots__ = ("at", "data", "newer_version")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.newer_version: int | None = None  # of the message that is read, if it is unknown

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.data) - self.at

    def number(self, layout: str) -> Any:  # noqa: ANN401 (int or float, as the layout says)
        """A number of a fixed size."""
        size = struct.calcsize(layout)
        if size > self.left:
            raise MessageError(_UNDERFLOW)
        found = struct.unpack_from(layout, self.data, self.at)[0]
        self.at += size
        return found

    def uvarint(self) -> int:
        """An unsigned varint of 32 bits, in Java's int arithmetic."""
        value = 0
        for shift in range(0, 35, 7):
            byte = int(self.number(">B"))
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return wrap_int32(value)
        raise MessageError(
            f"Varint is too long, the most significant bit in the 5th byte is set, converted value: {value:x}"
        )

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises MessageError."""
        if size > self.left:
            raise MessageError(
                f"Error reading byte array of {size} byte(s): only {self.left} byte(s) available"
            )
        data = self.data[self.at : self.at + size]
        self.at += size
        return data


def read(shape: c.Construct, cursor: Cursor, name: str = "", skip: Collection[str] = _NO_FIELDS) -> Json:
    """The JSON value at the cursor; fields in `skip` are unknown to this Kafka.

    Raises MessageError.
    """
    while isinstance(shape, c.Renamed):
        name = shape.name or name
        shape = shape.subcon
    if isinstance(shape, c.FormatField):
        return cursor.number(shape.fmtstr)
    if isinstance(shape, p.BoolField):
        return cursor.number(">b") != 0
    if isinstance(shape, p.UuidField):
        high, low = cursor.number(">q"), cursor.number(">q")
        return shape.parse(struct.pack(">qq", high, low))
    if isinstance(shape, p.SizedString):
        size = _size(shape, cursor, name)
        if size is not None and size > 0x7FFF:
            raise MessageError(f"string field {name} had invalid length {size}")
        return None if size is None else java_text(cursor.take(size))
    if isinstance(shape, p.SizedBytes):
        size = _size(shape, cursor, name)
        return None if size is None else cursor.take(size)
    if isinstance(shape, p.SizedArray):
        return _array(shape, cursor, name, skip)
    if isinstance(shape, structures.NullableStruct):
        is_null = cursor.uvarint() <= 0 if shape.null_mark == 0 else cursor.number(">b") < 0
        return None if is_null else read(shape.subcon, cursor, name, skip)
    if cursor.newer_version is not None:
        inner = _STRUCT_NAMES.get(name.removesuffix(" element"), name)
        raise MessageError(f"Can't read version {cursor.newer_version} of {inner}")
    return _struct(shape, cursor, skip)


def _size(shape: Any, cursor: Cursor, name: str) -> int | None:  # noqa: ANN401 (any sized field)
    compact = shape.length is p.CompactLength
    size = cursor.uvarint() - 1 if compact else cursor.number(shape.length.fmtstr)
    if size >= 0:
        return int(size)
    if not shape.null:
        raise MessageError(f"non-nullable field {name} was serialized as null")
    return None


def _array(shape: p.SizedArray, cursor: Cursor, name: str, skip: Collection[str]) -> Json:
    count = _size(shape, cursor, name)
    if count is None:
        return None
    if count > cursor.left:
        raise MessageError(
            f"Tried to allocate a collection of size {count}, but there are only {cursor.left} bytes"
            " remaining."
        )
    return [read(shape.subcon, cursor, f"{name} element", skip) for _ in range(count)]


def _struct(shape: c.Construct, cursor: Cursor, skip: Collection[str]) -> Json:
    found: dict[str, Json] = {}
    for part in shape.subcons:
        inner = part
        while isinstance(inner, c.Renamed):
            inner = inner.subcon
        if isinstance(inner, structures.TaggedFields):
            _tagged(inner, cursor, found, skip)
        else:
            found[part.name] = read(part, cursor, part.name, skip)
    return found


def _tagged(
    shape: structures.TaggedFields, cursor: Cursor, found: dict[str, Json], skip: Collection[str]
) -> None:
    for _ in range(cursor.uvarint()):
        tag, size = cursor.uvarint(), cursor.uvarint()
        field = shape.known.get(tag)
        if field is None or field.name in skip:
            cursor.take(size)
        else:
            found[field.name] = read(field, cursor, field.name, skip)


def read_version(
    message: structures.Versioned, version: int, cursor: Cursor, skip: Collection[str] = _NO_FIELDS
) -> Json:
    """The fields of one version of a message. Raises MessageError."""
    return read_fields(message.versions, version, cursor, skip)


def read_fields(
    versions: Mapping[int, c.Construct], version: int, cursor: Cursor, skip: Collection[str] = _NO_FIELDS
) -> Json:
    """The fields of a message, given by version. Raises MessageError.

    Kafka reads an unknown version as the nearest known one, but inner structures reject a newer version.
    """
    nearest = min(max(version, min(versions)), max(versions))
    cursor.newer_version = version if version > nearest else None
    return _struct(versions[nearest], cursor, skip)


# A character that is escaped by its number, or any other escape, which may be a backslash before a `u`.
_ESCAPED: Final = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")


def json_text(value: Json) -> str:
    """Compact JSON as Jackson writes it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, bytes):
        return f'"{b64encode(value).decode()}"'
    if isinstance(value, float):
        return java_double(value)
    return json_text_without_floats(value)


def _as_jackson(text: str) -> str:
    """Numbers of escaped characters with capitals."""
    return _ESCAPED.sub(_with_capitals, text) if "\\u00" in text else text


def _with_capitals(found: re.Match[str]) -> str:
    escape = found[0]
    return f"\\u{escape[2:].upper()}" if escape.startswith("\\u00") else escape


_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: b64encode(value).decode()
)


def json_text_without_floats(value: Json) -> str:
    """The same, faster, of a value without floats, which Jackson writes otherwise than Python."""
    return _as_jackson(_ENCODER.encode(value))


def java_double(value: float) -> str:
    """Like `Double.toString`: without an exponent from 0.001 to 10 million."""
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 (NaN)
        name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
        return f'"{name}"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits = f"{value:.17e}"
        exponent = digits.partition("e")[2]
        mantissa = repr(float(f"{value!r}e{-int(exponent)}"))
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
