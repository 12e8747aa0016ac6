"""A stretch of a file that stands in a response where its bytes would: zero-copy fetch."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """The descriptor. Raises ValueError once the file is closed."""


class FileSlice(NamedTuple):
    """`size_bytes` bytes of a file from `position_bytes` on.

    It keeps the file object alive until it is sent, so a segment that is deleted meanwhile stays readable:
    its owner lets go of the file object and closes nothing under a response. A file that ends early costs
    the connection.
    """

    file: HasFileno
    position_bytes: int
    size_bytes: int


# What a response body is made of, in order.
BodyPart: TypeAlias = bytes | bytearray | memoryview | FileSlice
