"""Memory that large answers are received into, again and again.

New memory costs more than receiving into it: the kernel clears each page when it is first used. An answer
owns its memory as long as a view of it is left, whoever keeps it. Then another one is received into it.
"""

from __future__ import annotations

from typing import Final

LEAST_BYTES: Final = 128 << 10
"""Smaller answers get memory of their own: the allocator has it at hand, and they do not keep much more."""
_MOST_BYTES: Final = 16 << 20
# One is received, one is worked on, and views of one are about to go.
_MOST_BUFFERS: Final = 3


class AnswerMemory:
    """The buffers of one connection. One thread takes and keeps them, any may drop its views."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self) -> bytearray:
        """A buffer of any size that nobody has a view of; it is the caller's until it is kept again."""
        for number, buffer in enumerate(self._buffers):
            if _is_free(buffer):
                return self._buffers.pop(number)
        return bytearray()

    def keep(self, buffer: bytearray) -> None:
        """Let a buffer be taken again once there are no views of it. A very large one is not."""
        if len(buffer) <= _MOST_BYTES:
            self._buffers.append(buffer)
            del self._buffers[:-_MOST_BUFFERS]


def _is_free(buffer: bytearray) -> bool:
    """Whether there are no views of a buffer that is not empty: Python changes the size of no other one."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
