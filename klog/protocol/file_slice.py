"""A range of a file in place of its bytes in a response: the network sends it without copying."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """The descriptor. Raises ValueError once the file is closed."""


class FileSlice(NamedTuple):
    """`size_bytes` bytes of a file from `position_bytes` on.

    It keeps the file object until it is sent, so a segment that is deleted meanwhile stays readable: the
    file closes when nothing refers to it. If the file ends early, the connection closes.
    """

    file: HasFileno
    position_bytes: int
    size_bytes: int


# What a response body is made of, in order.
BodyPart: TypeAlias = bytes | bytearray | memoryview | FileSlice
