"""A frame that is read piece by piece into a buffer of its own.

The buffer grows with what has really come: a client that only claims to send a large frame takes no memory.
"""

from __future__ import annotations

from typing import Final

_GROW_FACTOR: Final = 4
_FIRST_BYTES: Final = 64 * 1024


class LargeFrame:
    """`filled_bytes` of the frame's `size_bytes` are in `buffer`, which may be longer than that."""

    __slots__ = ("_expected_bytes", "buffer", "filled_bytes", "size_bytes")

    def __init__(self, size_bytes: int, begin: bytes | bytearray, expected_bytes: int = _FIRST_BYTES) -> None:
        """`begin` is what was read already; `expected_bytes` is how much memory to take at once."""
        self.size_bytes = size_bytes
        self.buffer = bytearray(begin)
        self.filled_bytes = len(begin)
        self._expected_bytes = expected_bytes

    @property
    def complete(self) -> bool:
        """Whether all of the frame was read."""
        return self.filled_bytes == self.size_bytes

    def move_into(self, buffer: bytearray) -> bool:
        """Goes on in a buffer that exists already, which saves new memory. If something still views that
        buffer, the answer is False and nothing has changed.
        """
        kept_bytes = min(len(buffer), self.size_bytes)
        try:
            # Any change of length is refused while there are views.
            buffer.append(0)
        except BufferError:
            return False
        del buffer[max(kept_bytes, self.filled_bytes) :]
        buffer[: self.filled_bytes] = memoryview(self.buffer)[: self.filled_bytes]
        self.buffer = buffer
        return True

    def unfilled(self) -> memoryview:
        """The memory for the next bytes; never empty unless the frame is complete."""
        if self.filled_bytes == len(self.buffer):
            wanted_bytes = max(self.filled_bytes * _GROW_FACTOR, self._expected_bytes)
            self.buffer += bytes(min(wanted_bytes, self.size_bytes) - len(self.buffer))
        return memoryview(self.buffer)[self.filled_bytes :]
