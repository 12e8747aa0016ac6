"""Fields of the records of groups: numbers of fixed size, strings and bytes with their length."""

from __future__ import annotations

import struct
from typing import Final

from klog.formats.errors import FormatError
from klog.formats.packed import INT16, INT32

_LONGEST_STRING_BYTES: Final = 0x7FFF
_NULL_STRING: Final = b"\xff\xff"


def write_string(text: str | None) -> bytes:
    """A string, or null. Raises `FormatError` if it is too long."""
    if text is None:
        return _NULL_STRING
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > _LONGEST_STRING_BYTES:
        raise FormatError(f"a string of {len(data)} bytes does not fit a group record")
    return INT16.pack(len(data)) + data


def write_bytes(data: bytes) -> bytes:
    """Bytes with their length."""
    return INT32.pack(len(data)) + data


class FieldReader:
    """Reads fields one after the other. Raises `FormatError` if the bytes end too early."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise FormatError(f"a field of {size} bytes does not fit", position_bytes=self.position)
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, layout: struct.Struct) -> int:
        """A number of fixed size."""
        try:
            (value,) = layout.unpack_from(self.data, self.position)
        except struct.error:
            raise FormatError("the record ends too early", position_bytes=self.position) from None
        self.position += layout.size
        return int(value)

    def text(self, size: int) -> str:
        """A string of a size in bytes."""
        try:
            return self.take(size).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FormatError(f"a string is not UTF-8: {error}", position_bytes=self.position) from None

    def classic_string(self) -> str:
        """A string whose length has two bytes."""
        return self.text(self.number(INT16))

    def nullable_classic_string(self) -> str | None:
        """Such a string, or None."""
        size = self.number(INT16)
        return None if size == -1 else self.text(size)

    def bytes(self) -> bytes:
        """Bytes whose length has four bytes."""
        return self.take(self.number(INT32))
