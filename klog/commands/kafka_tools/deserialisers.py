"""Turns keys and values to the text that Kafka's console consumer prints with a deserializer class of Kafka.

Rules: the classes of `org.apache.kafka.common.serialization`, and Java's `toString` of what they return.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final

from klog.config.keys import text_of
from klog.formats.errors import FormatError, UsageError
from klog.kernel.text import java_text

Deserialiser = Callable[[bytes], bytes]

_PACKAGE: Final = "org.apache.kafka.common.serialization."
_FLOAT_DIGITS: Final = range(1, 10)


def deserialiser(class_name: str) -> Deserialiser | None:
    """The deserialiser for a class name, None if bytes are printed as they are. Raises UsageError."""
    short = class_name.strip().removeprefix(_PACKAGE)
    if short == "ByteArrayDeserializer":
        return None
    if short not in _DESERIALISERS:
        raise UsageError(
            f"deserializer class {class_name} is Java, which klog does not run",
            cure=f"klog has {_PACKAGE}{{{','.join((*_DESERIALISERS, 'ByteArrayDeserializer'))}}};"
            " --schema-dir and --schema-registry decode Avro and Protobuf",
        )
    return _DESERIALISERS[short]


def _number(name: str, layout: str) -> Deserialiser:
    size = struct.calcsize(layout)

    def deserialise(data: bytes) -> bytes:
        if len(data) != size:
            raise FormatError(f"{len(data)} bytes are not the {size} of {name}Deserializer")
        return str(struct.unpack(layout, data)[0]).encode()

    return deserialise


def _double(data: bytes) -> bytes:
    if len(data) != 8:
        raise FormatError(f"{len(data)} bytes are not the 8 of DoubleDeserializer")
    return (text_of(struct.unpack(">d", data)[0]) or "").encode()


def _float(data: bytes) -> bytes:
    if len(data) != 4:
        raise FormatError(f"{len(data)} bytes are not the 4 of FloatDeserializer")
    (value,) = struct.unpack(">f", data)
    # The shortest text that is still this number of 32 bits.
    texts = (float(f"{value:.{digits}g}") for digits in _FLOAT_DIGITS)
    shortest = next((text for text in texts if _packed(text) == data), value)
    return (text_of(shortest) or "").encode()


def _packed(value: float) -> bytes:
    try:
        return struct.pack(">f", value)
    except OverflowError:
        return b""


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise FormatError("BooleanDeserializer needs one byte, 0 or 1")
    return b"true" if data == b"\1" else b"false"


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(java_text(data))).encode()
    except ValueError as error:
        raise FormatError(f"UUIDDeserializer: {error}") from error


def _escaped(data: bytes) -> bytes:
    return b"".join(bytes((byte,)) if 0x20 <= byte <= 0x7E else b"\\x%02X" % byte for byte in data)


_DESERIALISERS: Final[dict[str, Deserialiser]] = {
    "StringDeserializer": lambda data: java_text(data).encode(),
    "IntegerDeserializer": _number("Integer", ">i"),
    "LongDeserializer": _number("Long", ">q"),
    "ShortDeserializer": _number("Short", ">h"),
    "FloatDeserializer": _float,
    "DoubleDeserializer": _double,
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
    "BytesDeserializer": _escaped,
}
