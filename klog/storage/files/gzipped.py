"""Reads a gzipped copy of a file as if it were plain. It is decompressed while it is read, without a
temporary file.

Everything before the damage is delivered first, so damage loses only the few bytes around it: where a step of
decompression fails, it is done again in small steps.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from typing import Any, BinaryIO, Final

from klog.formats.errors import StorageError
from klog.storage.files.seekable import SeekableStream

_INPUT_BYTES: Final = 16 * 1024
_OUTPUT_BYTES: Final = (
    1 << 20
)  # gzip compresses up to a thousand to one, so the output of one step is limited
_FINE_OUTPUT_BYTES: Final = 256
"""The output of one step before damage: an error discards the output of its step."""
_KEPT_BYTES: Final = 1 << 20
_CURE: Final = "what comes before is read; copy it again"
_WITH_HEADER: Final = 16 + zlib.MAX_WBITS


def _decompressor(*, fine: bool) -> tuple[Any, type[Exception]]:
    """A new decompressor (isal's if it is installed) and the exception that it raises on damage.

    If it is to be `fine`, it is zlib's: isal's decompresses ahead, and an error discards that.
    """
    if fine:
        return zlib.decompressobj(_WITH_HEADER), zlib.error
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj(_WITH_HEADER), zlib.error
    # isal's error is not a subclass of zlib's.
    error: Any = isal_zlib.error
    return isal_zlib.decompressobj(_WITH_HEADER), error


class GzippedFile(SeekableStream):
    """The plain bytes of `raw`, which holds one or more gzip members; positions are those of the plain bytes.

    Seeking back by less than 1 MiB is free, by more it starts from the beginning. Raises `StorageError` if
    the copy is damaged or truncated.
    """

    def __init__(self, raw: BinaryIO, name: str) -> None:
        super().__init__(raw)
        self.name = name
        self._raw = raw
        self._restart()

    def _restart(self, fine_from: int | None = None) -> None:
        """Start again; from a position `fine_from` on in small steps."""
        self._raw.seek(0)
        self._fine_from = fine_from
        self._begin_member()
        self._input = b""
        self._kept: deque[bytes] = deque()
        self._kept_from = self._kept_to = 0
        self._position = 0

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill a part of `buffer`; 0 at the end."""
        if self._position == self._kept_to and not self._advance():
            return 0
        plain = self._kept_plain()
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(plain))
        view[:size] = plain[:size]
        self._position += size
        return size

    def _kept_plain(self) -> memoryview:
        """The decompressed bytes from the position to the end of their step."""
        end = self._kept_to
        for step in reversed(self._kept):
            if self._position >= end - len(step):
                return memoryview(step)[self._position - end :]
            end -= len(step)
        return memoryview(b"")

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position from the start or from the present one; the end is not known."""
        target = offset + (self._position if whence == os.SEEK_CUR else 0)
        if whence == os.SEEK_END or target < 0:
            raise StorageError("cannot seek there in a gzipped copy", file=self.name)
        if target < self._kept_from:
            self._restart()
        self._position = min(target, self._kept_to)
        while self._position < target and (self._position < self._kept_to or self._advance()):
            self._position = min(target, self._kept_to)
        return self._position

    def _advance(self) -> bool:
        """Decompress until there are more plain bytes; False at the end."""
        plain = b""
        while not plain:
            if self._step.eof and not self._next_member():
                return False
            if not self._more_input():
                raise StorageError("the gzipped copy ends early", file=self.name, cure=_CURE)
            try:
                plain = self._step.decompress(self._input, self._step_bytes())
            except self._damage as error:
                if self._fine_from is None:
                    self._retry_in_small_steps()
                    continue
                raise StorageError(
                    f"the gzipped copy is damaged: {error}", file=self.name, cure=_CURE
                ) from error
            self._input = self._step.unconsumed_tail
        self._keep(plain)
        return True

    def _step_bytes(self) -> int:
        """The most that the next step may give."""
        if self._fine_from is None:
            return _OUTPUT_BYTES
        return min(_OUTPUT_BYTES, max(self._fine_from - self._kept_to, _FINE_OUTPUT_BYTES))

    def _retry_in_small_steps(self) -> None:
        """Start again; the steps are small from the present position on."""
        position = self._kept_to
        self._restart(fine_from=position)
        self.seek(position)

    def _keep(self, plain: bytes) -> None:
        self._kept.append(plain)
        self._kept_to += len(plain)
        while self._kept_to - self._kept_from - len(self._kept[0]) >= _KEPT_BYTES:
            self._kept_from += len(self._kept.popleft())

    def _next_member(self) -> bool:
        """Begin the next member; False if there is none. Zero padding between members is skipped."""
        self._input = self._step.unused_data.lstrip(b"\0")
        while not self._input:
            read = self._raw.read(_INPUT_BYTES)
            if not read:
                return False
            self._input = read.lstrip(b"\0")
        self._begin_member()
        return True

    def _begin_member(self) -> None:
        self._step, self._damage = _decompressor(fine=self._fine_from is not None)

    def _more_input(self) -> bool:
        self._input = self._input or self._raw.read(_INPUT_BYTES)
        return bool(self._input)
