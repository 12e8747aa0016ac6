"""The common part of readable streams that keep their own position."""

from __future__ import annotations

import io
from typing import Final

_PART_BYTES: Final = 1 << 20


class SeekableStream(io.RawIOBase):
    """A readable, seekable stream. Subclasses move `_position` in `seek` and `readinto`."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

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
