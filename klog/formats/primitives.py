"""Building blocks of the binary definitions: Kafka's simple wire types in Construct.

Rules: Kafka's protocol guide, "Protocol Primitive Types" (varints, nullable, compact and classic strings,
bytes and arrays), and the record format's own varint lengths (KIP-98).

Every length and count is compared with the bytes that exist before memory is allocated. A block writes back
exactly the bytes that it accepts, so a value has one form: a varint with unnecessary bytes, which Kafka's
reader accepts and no known writer makes, is refused.

`structures` has the blocks of several fields. Each class has a `type_name` (its row in a drawn layout) and a
`size_text` (its size in bytes).
"""

# ruff: noqa: ARG002 - the signatures are Construct's

from __future__ import annotations

import io
from typing import Final

import construct as c

from klog.formats import names
from klog.formats.errors import FormatError
from klog.formats.values import Bytes, Value
from klog.formats.varints import uvarint


def remaining_bytes(stream: io.BytesIO) -> int:
    """The number of bytes of a stream after its position."""
    here = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(here)
    return end - here


class Located(io.BytesIO):
    """A stream that knows the position of its first byte in what it is a part of."""

    def __init__(self, data: Bytes, first_byte: int) -> None:
        super().__init__(data)
        self.first_byte = first_byte


def first_byte(stream: io.BytesIO) -> int:
    """The position of a stream's first byte in what it is a part of."""
    return stream.first_byte if isinstance(stream, Located) else 0


def take(stream: io.BytesIO, size: int, path: str, what: str) -> bytes:
    """The next bytes of a stream; fails if there are not enough."""
    left = remaining_bytes(stream)
    if size > left:
        raise c.StreamError(f"{what} of {size} bytes, but only {left} are left", path=path)
    return stream.read(size)


class VarUInt(c.Construct):  # type: ignore[misc]
    """Unsigned base-128 number of at most `bits` bits, lowest seven bits first."""

    def __init__(self, bits: int, type_name: str = "uvarint") -> None:
        super().__init__()
        self.bits = bits
        self.max_bytes = (bits + 6) // 7
        self.type_name = type_name
        self.size_text = f"1-{self.max_bytes}"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> int:
        value = 0
        for index in range(self.max_bytes):
            byte = take(stream, 1, path, self.type_name)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if byte == 0 and index > 0:
                    raise c.IntegerError(f"{self.type_name} with needless bytes", path=path)
                if value >> self.bits:
                    break
                return self.decode(value)
        raise c.IntegerError(f"{self.type_name} does not fit in {self.bits} bits", path=path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        if not isinstance(obj, int) or isinstance(obj, bool):
            raise c.IntegerError(f"{self.type_name} must be a whole number, not {obj!r}", path=path)
        value = self.encode(obj)
        if not 0 <= value < 1 << self.bits:
            raise c.IntegerError(f"{obj} does not fit in a {self.type_name}", path=path)
        stream.write(uvarint(value))
        return obj

    def decode(self, value: int) -> int:
        """The number that the bits represent."""
        return value

    def encode(self, value: int) -> int:
        """The bits that represent a number."""
        return value


class ZigZag(VarUInt):
    """Signed base-128 number: 0, -1, 1, -2, ... are stored as 0, 1, 2, 3, ..."""

    def decode(self, value: int) -> int:
        return (value >> 1) ^ -(value & 1)

    def encode(self, value: int) -> int:
        return value << 1 if value >= 0 else (-value << 1) - 1


class PlusOne(c.Adapter):  # type: ignore[misc]
    """A length stored plus one, so that 0 means null (the compact types of KIP-482)."""

    def __init__(self, subcon: VarUInt) -> None:
        super().__init__(subcon)
        self.type_name = "uvarint of length + 1"
        self.size_text = subcon.size_text

    def _decode(self, obj: int, context: c.Container, path: str) -> int:
        return obj - 1

    def _encode(self, obj: int, context: c.Container, path: str) -> int:
        return obj + 1


UVarInt: Final = VarUInt(32)
VarInt: Final = ZigZag(32, "varint")
VarLong: Final = ZigZag(64, "varlong")
CompactLength: Final = PlusOne(UVarInt)

_LENGTH_NAMES: Final = {
    id(c.Int16sb): "int16",
    id(c.Int32sb): "int32",
    id(VarInt): "varint",
    id(CompactLength): "compact",
}


def length_name(length: c.Construct) -> str:
    """The name of a length field's type in a layout."""
    return _LENGTH_NAMES.get(id(length)) or str(getattr(length, "type_name", "int"))


def read_length(
    length: c.Construct, stream: io.BytesIO, context: c.Container, path: str, null: bool
) -> int | None:
    """The next length; None for -1 if `null` allows it."""
    size = int(length._parsereport(stream, context, path))
    if size >= 0:
        return size
    if size == -1 and null:
        return None
    raise c.IntegerError(f"length {size}", path=path)


class Variable(c.Subconstruct):  # type: ignore[misc]
    """A field whose size does not follow from that of the field in it."""

    def _sizeof(self, context: c.Container, path: str) -> int:
        raise c.SizeofError(path=path)


class SizedBytes(c.Construct):  # type: ignore[misc]
    """Bytes after their length; length -1 is None if `null` allows it."""

    def __init__(self, length: c.Construct, *, null: bool = False, type_name: str = "bytes") -> None:
        super().__init__()
        self.length = length
        self.null = null
        self.type_name = f"{'nullable ' if null else ''}{type_name} ({length_name(length)} length)"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        size = read_length(self.length, stream, context, path, self.null)
        return None if size is None else self.decode(take(stream, size, path, "length"))

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        if obj is None and self.null:
            self.length._build(-1, stream, context, path)
            return obj
        try:
            raw = self.encode(obj)
        except (AttributeError, TypeError, UnicodeError) as error:
            raise c.FormatFieldError(f"{obj!r} is no {self.type_name}", path=path) from error
        self.length._build(len(raw), stream, context, path)
        stream.write(raw)
        return obj

    def decode(self, raw: bytes) -> Value:
        """The value that the bytes after the length represent."""
        return raw

    def encode(self, value: Value) -> bytes:
        """The bytes after the length."""
        return bytes(memoryview(value))


class SizedString(SizedBytes):
    """UTF-8 after its length in bytes.

    Bytes that are not UTF-8 become lone surrogates (PEP 383) and are written back unchanged. So a record with
    an invalid name from a client can be read.
    """

    def __init__(self, length: c.Construct, *, null: bool = False) -> None:
        super().__init__(length, null=null, type_name="string")

    def decode(self, raw: bytes) -> str:
        return raw.decode("utf-8", "surrogateescape")

    def encode(self, value: str) -> bytes:
        return value.encode("utf-8", "surrogateescape")


class SizedArray(Variable):
    """Items after their count; count -1 is None if `null` allows it. Every item has at least one byte."""

    def __init__(self, length: c.Construct, subcon: c.Construct, *, null: bool = False) -> None:
        super().__init__(subcon)
        self.length = length
        self.null = null
        self.type_name = f"{'nullable ' if null else ''}array ({length_name(length)} count)"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        count = read_length(self.length, stream, context, path, self.null)
        if count is None:
            return None
        return _parse_items(self.subcon, count, stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        if obj is None and self.null:
            self.length._build(-1, stream, context, path)
            return obj
        require_list(obj, path)
        self.length._build(len(obj), stream, context, path)
        for item in obj:
            self.subcon._build(item, stream, context, path)
        return obj


class CountedArray(Variable):
    """Items whose count is in an earlier field with the name `count`."""

    def __init__(self, count: str, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.count = count
        self.type_name = f"array of {count}"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return _parse_items(self.subcon, int(context[self.count]), stream, context, path)

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        require_list(obj, path)
        if len(obj) != context[self.count]:
            raise c.RangeError(f"{len(obj)} items, but {self.count} is {context[self.count]}", path=path)
        for item in obj:
            self.subcon._build(item, stream, context, path)
        return obj


def require_list(obj: Value, path: str) -> None:
    """Raise an error unless the value of an array is a list."""
    if not isinstance(obj, (list, tuple)):
        raise c.RangeError(f"an array must be a list, not {type(obj).__name__}", path=path)


def _parse_items(
    item: c.Construct, count: int, stream: io.BytesIO, context: c.Container, path: str
) -> c.ListContainer:
    left = remaining_bytes(stream)
    if not 0 <= count <= left:
        raise c.RangeError(f"count of {count} items, but only {left} bytes are left", path=path)
    return c.ListContainer(item._parsereport(stream, context, path) for _ in range(count))


class UuidField(c.Adapter):  # type: ignore[misc]
    """16 bytes, shown like Kafka's ids: 22 characters of URL-safe base64."""

    def __init__(self) -> None:
        super().__init__(c.Bytes(16))
        self.type_name = "uuid"
        self.size_text = "16"

    def _decode(self, obj: bytes, context: c.Container, path: str) -> str:
        return names.encode_uuid(obj)

    def _encode(self, obj: str, context: c.Container, path: str) -> bytes:
        try:
            return names.decode_uuid(obj)
        except (FormatError, TypeError) as error:
            raise c.FormatFieldError(f"{obj!r} is no uuid", path=path) from error


class BoolField(c.Adapter):  # type: ignore[misc]
    """One byte, 0 or 1. Kafka reads any other byte as true, too; no known writer makes one."""

    def __init__(self) -> None:
        super().__init__(c.Int8ub)
        self.type_name = "bool"
        self.size_text = "1"

    def _decode(self, obj: int, context: c.Container, path: str) -> bool:
        if obj > 1:
            raise c.IntegerError(f"bool of {obj}", path=path)
        return bool(obj)

    def _encode(self, obj: bool, context: c.Container, path: str) -> int:
        return int(obj)
