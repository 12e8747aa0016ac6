"""What stands in place of bytes in a response: a range of a file, or bytes that are made as they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from klog.formats.errors import StorageError


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


class LazyBytes:
    """Bytes that are made piece by piece, by a thread that may wait. Its length is what is still to be made.

    `pieces` must have so many bytes. They may raise KlogError, which closes the connection.
    """

    __slots__ = ("_pieces", "_size_bytes")

    def __init__(self, size_bytes: int, pieces: Iterator[bytes]) -> None:
        self._size_bytes = size_bytes
        self._pieces = pieces

    def __len__(self) -> int:
        return self._size_bytes

    def take(self) -> bytes:
        """Make the next piece. Raises what making it raises, and StorageError if there is none."""
        piece = next(self._pieces, b"")
        if not 0 < len(piece) <= self._size_bytes:
            raise StorageError(f"{self._size_bytes} bytes were promised that cannot be made")
        self._size_bytes -= len(piece)
        if not self._size_bytes:
            self._pieces = iter(())  # what makes pieces ends here
        return piece


# What a response body is made of, in order.
BodyPart: TypeAlias = bytes | bytearray | memoryview | FileSlice | LazyBytes
BodyParts: TypeAlias = BodyPart | Sequence[BodyPart] | None


# A union would be asked three times as long.
_BYTES: Final = (bytes, bytearray, memoryview, LazyBytes)


def parts_of(value: BodyParts) -> tuple[Sequence[BodyPart], int]:
    """The parts of a body or of a field, if they are not empty, and their size in bytes; -1 for null."""
    if value is None:
        return (), -1
    if isinstance(value, FileSlice):
        size = value.size_bytes
    elif isinstance(value, _BYTES):
        size = len(value)
        value = memoryview(value) if isinstance(value, bytes) else value
    else:
        return value, sum(part.size_bytes if isinstance(part, FileSlice) else len(part) for part in value)
    return ((value,) if size else ()), size
