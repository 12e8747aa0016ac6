"""Reads a gzipped copy of a file as if it were plain. It is decompressed while it is read, without a
temporary file.

Everything that decompressed before the damage is delivered first, so damage loses only the few bytes around
it.
"""

from __future__ import annotations

import os
import zlib
from typing import Any, BinaryIO, Final

from klog.formats.errors import StorageError
from klog.storage.seekable import SeekableStream

_INPUT_BYTES: Final = 16 * 1024
_OUTPUT_BYTES: Final = (
    1 << 20
)  # gzip compresses up to a thousand to one, so the output of one step is limited
_CURE: Final = "what comes before is read; copy it again"
_WITH_HEADER: Final = 16 + zlib.MAX_WBITS


def _decompressor() -> tuple[Any, type[Exception]]:
    """A new decompressor (isal's if it is installed) and the exception that it raises on damage."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj(_WITH_HEADER), zlib.error
    # isal's error is not a subclass of zlib's.
    error: Any = isal_zlib.error
    return isal_zlib.decompressobj(_WITH_HEADER), error


class GzippedFile(SeekableStream):
    """The plain bytes of `raw`, which holds one or more gzip members; positions are those of the plain bytes.

    Seeking back starts from the beginning. Raises `StorageError` if the copy is damaged or truncated.
    """

    def __init__(self, raw: BinaryIO, name: str) -> None:
        super().__init__()
        self.name = name
        self._raw = raw
        self._restart()

    def _restart(self) -> None:
        self._raw.seek(0)
        self._step, self._damage = _decompressor()
        self._input = b""
        self._plain = memoryview(b"")
        self._position = 0

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill a part of `buffer`; 0 at the end."""
        if not self._plain and not self._advance():
            return 0
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._plain))
        view[:size] = self._plain[:size]
        self._plain = self._plain[size:]
        self._position += size
        return size

    def read(self, size: int | None = -1, /) -> bytes:
        """`size` bytes, fewer only if the plain bytes end; all of them for -1."""
        wanted = -1 if size is None else size
        parts: list[bytes] = []
        while wanted and (part := super().read(_OUTPUT_BYTES if wanted < 0 else min(wanted, _OUTPUT_BYTES))):
            parts.append(part)
            wanted -= len(part) if wanted > 0 else 0
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position from the start or from the present one; the end is not known."""
        target = offset + (self._position if whence == os.SEEK_CUR else 0)
        if whence == os.SEEK_END or target < 0:
            raise StorageError("cannot seek there in a gzipped copy", file=self.name)
        if target < self._position:
            self._restart()
        skipped = bytearray(_OUTPUT_BYTES)
        while self._position < target and self.readinto(
            memoryview(skipped)[: min(_OUTPUT_BYTES, target - self._position)]
        ):
            pass
        return self._position

    def close(self) -> None:
        """Close this and the file below."""
        if not self.closed:
            self._raw.close()
        super().close()

    def _advance(self) -> bool:
        """Decompress until there are plain bytes; False at the end."""
        while not self._plain:
            if self._step.eof and not self._next_member():
                return False
            if not self._more_input():
                raise StorageError("the gzipped copy ends early", file=self.name, cure=_CURE)
            try:
                self._plain = memoryview(self._step.decompress(self._input, _OUTPUT_BYTES))
            except self._damage as error:
                raise StorageError(
                    f"the gzipped copy is damaged: {error}", file=self.name, cure=_CURE
                ) from error
            self._input = self._step.unconsumed_tail
        return True

    def _next_member(self) -> bool:
        """Begin the next member; False if there is none. Zero padding between members is skipped."""
        self._input = self._step.unused_data.lstrip(b"\0")
        while not self._input:
            read = self._raw.read(_INPUT_BYTES)
            if not read:
                return False
            self._input = read.lstrip(b"\0")
        self._step, self._damage = _decompressor()
        return True

    def _more_input(self) -> bool:
        self._input = self._input or self._raw.read(_INPUT_BYTES)
        return bool(self._input)
