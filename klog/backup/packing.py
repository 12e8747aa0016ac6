"""How a piece is stored: as it is, gzipped, or in zstd frames with a seek table, so that any part is read
alone.

Rules: zstd's seekable format, version 0.1.0. Frames are independent; the last one is skippable and lists the
sizes of the others. Any zstd program decompresses such a file. gzip has one member for each write, and no
seek table.
"""

from __future__ import annotations

import io
import struct
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any, BinaryIO, Final

from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError, StorageError, UsageError
from klog.jobs.cores import own_cores
from klog.jobs.second_thread import SecondThread
from klog.storage.files.files import read_at
from klog.storage.files.seekable import SeekableStream

SUFFIXES: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}
FRAME_BYTES: Final = 1 << 20
_GZIP_LEVEL: Final = 1
_GZIP_FRAMING: Final = 31  # of zlib's wbits
_ZSTD_LEVEL: Final = 1
_SKIPPABLE: Final = struct.Struct("<II")
_ENTRY: Final = struct.Struct("<II")
_FOOTER: Final = struct.Struct("<IBI")
_SKIPPABLE_MAGIC: Final = 0x184D2A5E
_SEEKABLE_MAGIC: Final = 0x8F92EAB1
_MOST_FRAMES: Final = 1 << 20
_per_thread = threading.local()  # zstd contexts must not be shared between threads


class Packer:
    """Packs bytes in the order in which they come; `write` receives what is stored. Raises OSError."""

    def __init__(self, compression: str, write: Callable[[Bytes], object]) -> None:
        self._pack = _packing(compression)
        self._write = write
        self._sizes = array("I")
        self._is_seekable = compression == "zstd"

    def add(self, data: memoryview) -> None:
        """Pack some bytes, in frames of at most 1 MiB."""
        if self._pack is None:
            self._write(data)
            return
        for start in range(0, len(data), FRAME_BYTES):
            part = data[start : start + FRAME_BYTES]
            packed = self._pack(part)
            self._sizes.extend((len(packed), len(part)))
            self._write(packed)

    def finish(self) -> None:
        """Write what comes at the end."""
        if not self._is_seekable:
            return
        frames = len(self._sizes) // 2
        size = frames * _ENTRY.size + _FOOTER.size
        entries = b"".join(_ENTRY.pack(*self._sizes[at : at + 2]) for at in range(0, 2 * frames, 2))
        footer = _FOOTER.pack(frames, 0, _SEEKABLE_MAGIC)
        self._write(_SKIPPABLE.pack(_SKIPPABLE_MAGIC, size) + entries + footer)


def _packing(compression: str) -> Callable[[memoryview], bytes] | None:
    if compression == "none":
        return None
    if compression == "gzip":
        import zlib

        return lambda part: zlib.compress(part, _GZIP_LEVEL, _GZIP_FRAMING)
    if compression == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress
    raise UsageError(f"{compression!r} is not a compression", cure="choose none, gzip or zstd")


class SeekableZstd(SeekableStream):
    """The plain bytes of a file in zstd's seekable format. Closes `file`. Raises `StorageError`.

    With `read_ahead`, another thread decompresses the next frame while the caller works on one.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        super().__init__(file)
        self._file = file
        self._name = name
        packed, plain = self._seek_table()
        self._packed_starts = [0, *accumulate(packed)]
        self._plain_starts = [0, *accumulate(plain)]
        self.size_bytes = self._plain_starts[-1]
        self._frame = -1
        self._plain: Bytes = b""
        self._second: SecondThread | None = None
        self._ahead: tuple[int, Callable[[], bytes]] | None = None

    def read_ahead(self, second: SecondThread) -> None:
        """Let a thread do the work for the next frame. It must end before this is closed."""
        self._second = second

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill some of `buffer`, at most from one frame; 0 at the end."""
        if self._position >= self.size_bytes:
            return 0
        view = memoryview(buffer).cast("B")
        frame = bisect_right(self._plain_starts, self._position) - 1
        if frame != self._frame:
            self._plain, self._frame = self._frame_in_turn(frame), frame
        start = self._position - self._plain_starts[frame]
        got = min(len(view), len(self._plain) - start)
        view[:got] = memoryview(self._plain)[start : start + got]
        self._position += got
        return got

    def _frame_in_turn(self, frame: int) -> bytes:
        """A frame, as it was read ahead if it is the next one. Then its next one is begun."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == frame:
            plain = ahead[1]()
        else:
            if ahead is not None:
                with suppress(KlogError):
                    ahead[1]()  # it reads the same file
            plain = self._read_frame(frame)
        if self._second is not None and frame + 2 < len(self._plain_starts):
            self._ahead = frame + 1, self._second.give(self._read_frame, frame + 1)
        return plain

    def _read_frame(self, frame: int) -> bytes:
        import zstandard

        context = getattr(_per_thread, "zstd", None)
        if context is None:
            context = _per_thread.zstd = zstandard.ZstdDecompressor()
        start, end = self._packed_starts[frame : frame + 2]
        size = self._plain_starts[frame + 1] - self._plain_starts[frame]
        try:
            plain: bytes = context.decompress(
                read_at(self._file, start, end - start), max_output_size=size, allow_extra_data=False
            )
        except zstandard.ZstdError as error:
            raise self._damaged(f"a zstd frame is damaged: {error}", start) from error
        if len(plain) != size:
            raise self._damaged("a zstd frame is not as long as the seek table says", start)
        return plain

    def _seek_table(self) -> tuple[list[int], list[int]]:
        end = self._file.seek(0, io.SEEK_END)
        footer = read_at(self._file, max(0, end - _FOOTER.size), _FOOTER.size)
        if len(footer) < _FOOTER.size:
            raise self._damaged("is too short for a zstd file with a seek table", 0)
        frames, flags, magic = _FOOTER.unpack(footer)
        start = end - _FOOTER.size - frames * _ENTRY.size
        if magic != _SEEKABLE_MAGIC or flags or frames > _MOST_FRAMES or start < _SKIPPABLE.size:
            raise self._damaged("has no seek table at its end", end - len(footer))
        head = (_SKIPPABLE_MAGIC, frames * _ENTRY.size + _FOOTER.size)
        if _SKIPPABLE.unpack(read_at(self._file, start - _SKIPPABLE.size, _SKIPPABLE.size)) != head:
            raise self._damaged("has no seek table at its end", start - _SKIPPABLE.size)
        sizes = list(_ENTRY.iter_unpack(read_at(self._file, start, frames * _ENTRY.size)))
        packed, plain = [size for size, _ in sizes], [size for _, size in sizes]
        if sum(packed) != start - _SKIPPABLE.size or max(plain, default=1) > FRAME_BYTES or 0 in plain:
            raise self._damaged("has a seek table that does not fit its size", start)
        return packed, plain

    def _damaged(self, what: str, position_bytes: int) -> StorageError:
        return StorageError(what, file=self._name, position_bytes=position_bytes)


@contextmanager
def reading_ahead(file: BinaryIO) -> Iterator[None]:
    """While a piece is read from its beginning to its end, another thread decompresses what comes next, if
    there is a core for it.
    """
    if not isinstance(file, SeekableZstd) or file.size_bytes <= FRAME_BYTES or own_cores() == 1:
        yield
        return
    try:
        thread = SecondThread("klog-unpack")
    except RuntimeError:
        yield  # the system gives no thread
        return
    with thread:
        file.read_ahead(thread)
        yield


def compression_of(name: str) -> str:
    """How an object with this name is packed."""
    return next((each for each, suffix in SUFFIXES.items() if suffix and name.endswith(suffix)), "none")


def unpacked(name: str, open_stored: Callable[[], BinaryIO]) -> BinaryIO:
    """The plain bytes of a stored object with this name. A `.gz` is decompressed by what opens it."""
    file = open_stored()
    if not name.endswith(SUFFIXES["zstd"]):
        return file
    try:
        return SeekableZstd(file, name)  # type: ignore[return-value]
    except BaseException:
        file.close()
        raise
