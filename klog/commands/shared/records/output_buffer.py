"""Buffers text output: the text kernels append to the buffer, which is written in large pieces."""

from __future__ import annotations

from typing import BinaryIO, Final

from klog.commands.shared.records.plan import BytesMode
from klog.kernel import text

FLUSH_BYTES: Final = 1 << 20

TEXT_MODES: Final = {
    BytesMode.AUTO: text.AUTO,
    BytesMode.UTF8: text.UTF8,
    BytesMode.BASE64: text.BASE64,
    BytesMode.HEX: text.HEX,
    BytesMode.NONE: text.NONE,
}
"""The text kernels' constant for each way to print keys and values."""


class OutputBuffer:
    """Collects text for `out` in one reused buffer.

    A text kernel appends to `data` at `used` and returns the new value of `used`, which the caller stores.
    `flush_if_full` writes the text once there is enough of it; `flush` writes it in any case.
    """

    __slots__ = ("_out", "data", "used")

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.data = bytearray(FLUSH_BYTES)
        self.used = 0

    def write(self, text: str) -> None:
        """Append `text` in UTF-8."""
        self.write_bytes(text.encode("utf-8", "surrogateescape"))

    def write_bytes(self, piece: bytes) -> None:
        """Append `piece`."""
        self.data[self.used : self.used + len(piece)] = piece
        self.used += len(piece)

    def flush_if_full(self) -> None:
        """Write the text if the buffer is full."""
        if self.used >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all text that is in the buffer."""
        if self.used:
            size_bytes, self.used = self.used, 0  # set first, so that no interrupted write is repeated
            with memoryview(self.data) as whole, whole[:size_bytes] as text:
                written = 0
                while written < len(text):
                    written += self._out.write(text[written:]) or 0
        self._out.flush()
