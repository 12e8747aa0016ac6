"""Reads and writes the wire types that hand-written messages and entities share.

Rules: Kafka's protocol guide, "Protocol Primitive Types", and KIP-482 for compact types and tagged fields. A
reader takes (buffer, position) and returns (value, next position). Every length is compared with the
bytes that are left before they are read, so no input makes a reader allocate more than its own size.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from klog.formats.varints import ONE_BYTE, uvarint
from klog.protocol.errors import MalformedMessageError

Buffer: TypeAlias = bytes | bytearray | memoryview

UVARINT_MAX_BYTES: Final = 5
# The limit of the classic form. Kafka's readers apply it to the compact form too.
STRING_MAX_BYTES: Final = 2**15 - 1
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned number of at most 32 bits in base 128, lowest seven bits first.

    Raises MalformedMessageError.
    """
    # Nearly all numbers take one byte.
    if position < len(buffer) and (first := buffer[position]) < 0x80:
        return first, position + 1
    value = shift = 0
    for index in range(position, position + UVARINT_MAX_BYTES):
        if index >= len(buffer):
            raise MalformedMessageError("the message ends inside a number", position_bytes=index)
        byte = buffer[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, index + 1
        shift += 7
    raise MalformedMessageError("an unsigned number of more than 32 bits", position_bytes=position)


def end_of(buffer: Buffer, position: int, size: int) -> int:
    """Where a value of `size` bytes ends. Raises MalformedMessageError when the buffer ends before."""
    end = position + size
    if size < 0 or end > len(buffer):
        left = len(buffer) - position
        raise MalformedMessageError(f"a value of {size} bytes where {left} are left", position_bytes=position)
    return end


def check_count(buffer: Buffer, position: int, count: int) -> int:
    """`count` if so many items can still follow; each takes a byte at least. Raises MalformedMessageError."""
    if count < 0 or count > len(buffer) - position:
        left = len(buffer) - position
        raise MalformedMessageError(f"an array of {count} items in {left} bytes", position_bytes=position)
    return count


def read_int16(buffer: Buffer, position: int) -> tuple[int, int]:
    """Raises MalformedMessageError at the end of the buffer."""
    end = end_of(buffer, position, 2)
    return INT16.unpack_from(buffer, position)[0], end


def read_int32(buffer: Buffer, position: int) -> tuple[int, int]:
    """Raises MalformedMessageError at the end of the buffer."""
    end = end_of(buffer, position, 4)
    return INT32.unpack_from(buffer, position)[0], end


def text_of(raw: Buffer) -> str:
    """UTF-8 as text; what is not UTF-8 becomes U+FFFD, as Java reads it.

    So a client that encodes names otherwise gets the error for an unknown topic.
    """
    return str(raw, "utf-8", "replace")


def read_string(buffer: Buffer, position: int, compact: bool) -> tuple[str | None, int]:
    """A string of either form; None if it is null. Raises MalformedMessageError."""
    if not compact:
        size, start = read_int16(buffer, position)
    elif position < len(buffer) and (first := buffer[position]) < 0x80:
        size, start = first - 1, position + 1  # as nearly always
    else:
        size, start = read_uvarint(buffer, position)
        size -= 1
        if size > STRING_MAX_BYTES:
            raise MalformedMessageError(f"a string of {size} bytes", position_bytes=position)
    if size < 0:
        return None, start
    end = start + size
    if end > len(buffer):
        end_of(buffer, start, size)
    return text_of(buffer[start:end]), end


def read_name(buffer: Buffer, position: int, compact: bool) -> tuple[str, int]:
    """A string that may not be null. Raises MalformedMessageError."""
    value, end = read_string(buffer, position, compact)
    if value is None:
        raise MalformedMessageError("null where a string must be", position_bytes=position)
    return value, end


def read_bytes(buffer: Buffer, position: int, compact: bool) -> tuple[Buffer | None, int]:
    """Bytes of either form as a slice of the buffer (a view of a view); None if they are null.

    Raises MalformedMessageError.
    """
    if compact:
        size, start = read_uvarint(buffer, position)
        size -= 1
    else:
        size, start = read_int32(buffer, position)
    if size < 0:
        return None, start
    end = end_of(buffer, start, size)
    return buffer[start:end], end


def read_count(buffer: Buffer, position: int, compact: bool) -> tuple[int | None, int]:
    """The length of an array, None for a null array. Raises MalformedMessageError."""
    if not compact:
        count, start = read_int32(buffer, position)
    elif position < len(buffer) and (first := buffer[position]) < 0x80:
        count, start = first - 1, position + 1  # as nearly always
    else:
        count, start = read_uvarint(buffer, position)
        count -= 1
    if count < 0:
        return None, start
    if count > len(buffer) - start:
        check_count(buffer, start, count)
    return count, start


def read_items(buffer: Buffer, position: int, compact: bool) -> tuple[int, int]:
    """The length of an array that may not be null. Raises MalformedMessageError."""
    count, start = read_count(buffer, position, compact)
    if count is None:
        raise MalformedMessageError("null where an array must be", position_bytes=position)
    return count, start


def read_tags(buffer: Buffer, position: int) -> tuple[dict[int, int], int]:
    """A section of tagged fields: {tag: position of its value}, and the position after the section.

    Tags should ascend. Like Kafka, this accepts any order, and the last of two equal tags wins. Raises
    MalformedMessageError.
    """
    if position < len(buffer) and not buffer[position]:
        return {}, position + 1  # as nearly always
    count, position = read_uvarint(buffer, position)
    tags: dict[int, int] = {}
    for _ in range(check_count(buffer, position, count)):
        tag, position = read_uvarint(buffer, position)
        size, start = read_uvarint(buffer, position)
        position = end_of(buffer, start, size)
        tags[tag] = start
    return tags, position


def write_string(value: str | None, compact: bool) -> bytes:
    """A string of either form, None as null. Raises struct.error when it is too long for the classic form."""
    if value is None:
        return b"\0" if compact else b"\xff\xff"
    raw = value.encode("utf-8", "surrogateescape")
    if not compact:
        return INT16.pack(len(raw)) + raw
    size = len(raw) + 1
    return (ONE_BYTE[size] if size < 0x80 else uvarint(size)) + raw


def write_bytes_size(size: int | None, compact: bool) -> bytes:
    """The length in front of bytes or of an array (both have the same), None for null."""
    if size is None:
        return b"\0" if compact else b"\xff\xff\xff\xff"
    if not compact:
        return INT32.pack(size)
    size += 1
    return ONE_BYTE[size] if size < 0x80 else uvarint(size)


def write_tags(tags: list[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields; the caller gives them in ascending order."""
    parts = [uvarint(len(tags))]
    for tag, value in tags:
        parts += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(parts)
