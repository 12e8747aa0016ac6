"""The output buffer of the text renderings: text kernels append to it, large pieces are written at once."""

from __future__ import annotations

from typing import BinaryIO, Final

from klog.commands.dump.plan import BytesMode
from klog.formats import text

FLUSH_BYTES: Final = 1 << 20

TEXT_MODES: Final = {
    BytesMode.AUTO: text.AUTO,
    BytesMode.UTF8: text.UTF8,
    BytesMode.BASE64: text.BASE64,
    BytesMode.HEX: text.HEX,
    BytesMode.NONE: text.NONE,
}
"""What the text kernels call each way of showing keys and values."""


class Pen:
    """Collects text for `out` in one reused buffer.

    A text kernel is called with `pen.page` and `pen.used` and its result stored in `pen.used`; `turn` writes
    the page out when it is full enough. `close` writes the rest.
    """

    __slots__ = ("_out", "page", "used")

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.page = bytearray(FLUSH_BYTES)
        self.used = 0

    def write(self, text: str) -> None:
        """Append `text` in UTF-8."""
        self.write_bytes(text.encode("utf-8", "surrogateescape"))

    def write_bytes(self, data: bytes) -> None:
        """Append `data`."""
        self.page[self.used : self.used + len(data)] = data
        self.used += len(data)

    def turn(self) -> None:
        """Write the page out if it is full."""
        if self.used >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the page out."""
        if self.used:
            size_bytes, self.used = self.used, 0  # first: an interrupted write must not be repeated
            with memoryview(self.page) as page, page[:size_bytes] as text:
                written = 0
                while written < len(text):
                    written += self._out.write(text[written:]) or 0
        self._out.flush()
