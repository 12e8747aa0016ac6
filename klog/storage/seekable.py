"""The common part of readable streams that keep their own position."""

from __future__ import annotations

import io


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
