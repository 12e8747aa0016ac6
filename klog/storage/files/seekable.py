"""The common part of readable streams that keep their own position."""

from __future__ import annotations

import io
from typing import Final, Protocol

_PART_BYTES: Final = 1 << 20


class _Below(Protocol):
    """What a stream reads from."""

    def close(self) -> object: ...


class SeekableStream(io.RawIOBase):
    """A readable, seekable stream of `size_bytes`, which closes what is below.

    Subclasses have `readinto`, which moves `_position`, and their own `seek` if their size is not known.
    """

    size_bytes: int
    _below: _Below | None = None  # until it is opened

    def __init__(self, below: _Below) -> None:
        super().__init__()
        self._below = below
        self._position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position, without reading."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        """The position in bytes; in a gzipped copy, in the plain bytes."""
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """`size` bytes, fewer only at the end; all of them for -1."""
        left = -1 if size is None else size
        parts: list[bytes] = []
        while left and (part := super().read(_PART_BYTES if left < 0 else min(left, _PART_BYTES))):
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)

    def close(self) -> None:
        """Close this and what is below."""
        if not self.closed and self._below is not None:
            self._below.close()
        super().close()
