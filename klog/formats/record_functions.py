"""What the functions in `_records` call. They read by the rules of Kafka's readers.

Bytes after the fields of a record are ignored, and so are tagged fields that are not known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from klog.formats.errors import FormatError
from klog.formats.names import decode_uuid, encode_uuid
from klog.formats.values import Value
from klog.formats.varints import uvarint

Reader: TypeAlias = Callable[[bytes, int], tuple[Value, int]]

REFUSALS: Final = (struct.error, IndexError, UnicodeDecodeError)
"""What a function in `_records` gives to `refusal`."""

ABSENT: Final = object()
"""In place of a tagged field that is not written."""

_NO_TAGGED_FIELDS: Final = b"\0"

# A cluster has few topics, and their ids come again in each record.
uuid_bytes: Final = lru_cache(maxsize=4096)(decode_uuid)
uuid_text: Final = lru_cache(maxsize=4096)(encode_uuid)


def refusal(error: Exception, data: bytes, position: int) -> FormatError:
    """The error for a record that cannot be read from a position on."""
    if isinstance(error, UnicodeDecodeError):
        return FormatError(f"a string is not UTF-8: {error}", position_bytes=position)
    return FormatError("the record ends too early", position_bytes=len(data))


def misfit(number: int, of: str, position: int) -> FormatError:
    """The error for a field at a position that cannot have so many bytes or items."""
    return FormatError(f"a field of {number} {of} does not fit", position_bytes=position)


def too_long(size: int) -> FormatError:
    """The error for a string that cannot be written."""
    return FormatError(f"a string of {size} bytes does not fit a record")


def read_uvarint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """An unsigned number of at most so many bits, and the position after it. It may have needless bytes."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift >= bits:
            raise FormatError(f"a number has more than {bits} bits", position_bytes=position)


def tagged(
    data: bytes, position: int, fields: dict[str, Value], known: Mapping[int, tuple[str, Reader]]
) -> int:
    """Put the known ones of the tagged fields from a position on into `fields`; the position after them."""
    count, position = read_uvarint(data, position, 32)
    for _ in range(count):
        tag, position = read_uvarint(data, position, 32)
        size, position = read_uvarint(data, position, 32)
        end = position + size
        if end > len(data):
            raise misfit(size, "bytes", position)
        if tag in known:
            name, reader = known[tag]
            # The positions in errors are those of the whole record.
            fields[name] = reader(data[:end], position)[0]
        position = end
    return position


def tagged_fields(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """The end of a struct with these tagged fields, in the order of their tags."""
    parts = [part for tag, value in fields for part in (uvarint(tag), uvarint(len(value)), value)]
    return b"".join((uvarint(len(parts) // 3), *parts)) if parts else _NO_TAGGED_FIELDS
