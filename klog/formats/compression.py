"""The four codecs of the log, as Kafka and its clients frame them; decompression has a limit.

Rules: `CompressionType` of the record format (attributes bits 0-2). Unusual streams are accepted if Kafka's
readers in Java accept them:

- gzip is RFC 1952 with one or more members; other bytes after a member are ignored.
- snappy has two framings: the xerial one of Java clients (one or more streams), and one raw block of
  librdkafka.
- lz4 is one LZ4 frame; bytes after it are ignored. Kafka checks neither its content size nor its content
  checksum. For magic 0 the header checksum covers the wrong bytes (KAFKA-3160), which a standard library
  refuses. So it is corrected before reading, and the wrong one is computed when writing.
- zstd is one or more standard frames; magic 0 and 1 do not have it.

The output is limited by `limit_bytes`, and by the largest possible output of that many compressed bytes. No
length field decides how much memory is allocated.
"""

from __future__ import annotations

import io
import struct
import threading
from functools import cache
from typing import Any, Final

from klog.formats.checksums import Bytes
from klog.formats.errors import CompressionError, DecompressionLimitError, UnsupportedFormatError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names by codec id."""

DEFAULT_LIMIT_BYTES: Final = 100 << 20
"""What a batch may hold unless the caller says otherwise: brokers take batches of 1 MB compressed
(`message.max.bytes`), and honest data seldom shrinks to a hundredth. What grows beyond is taken for a bomb.
"""

_CHUNK_BYTES: Final = 256 * 1024
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # the block size of the Java client's stream
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_CONTENT_CHECKSUM_BIT: Final = 0x04
_LZ4_MOST_RATIO: Final = 255  # one byte of a length represents at most so many
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_SMALLEST_BYTES: Final = 18  # header and trailer
_SNAPPY_MOST_RATIO: Final = 22  # a copy element of 3 bytes makes at most 64
_ZSTD_MOST_RATIO: Final = 32 * 1024  # a run-length block of 4 bytes makes 128 KiB
_ZSTD_SMALLEST_SLICE_BYTES: Final = 256
_ZSTD_AT_ONCE_BYTES: Final = 256 * 1024
_ZSTD_USUAL_RATIO: Final = 8
_MOST_PARTS: Final = 64

_per_thread = threading.local()  # zstd contexts must not be shared between threads


def codec_name(codec: int) -> str:
    """Kafka's name of a codec id; `unknown(5)` for ids that Kafka does not define."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown({codec})"


def decompress(codec: int, data: Bytes, *, magic: int = 2, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The decompressed bytes of a block.

    `data` is any buffer; `magic` is that of its batch. Raises `CompressionError` if the block is damaged,
    `DecompressionLimitError` if it grows past `limit_bytes`, `UnsupportedFormatError` for codec ids that
    Kafka does not define.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _gunzip(data, limit_bytes)
    if codec == SNAPPY:
        return _unsnappy(data, limit_bytes)
    if codec == LZ4:
        return _unlz4(data, magic, limit_bytes)
    if codec == ZSTD:
        if magic < 2:
            raise CompressionError(f"zstd in a message of magic {magic}: the codec came with magic 2")
        return _unzstd(data, limit_bytes)
    raise UnsupportedFormatError(f"unknown codec {codec}", cure="written by a newer Kafka, or damaged")


def compress(codec: int, data: bytes, *, magic: int = 2, level: int | None = None) -> bytes:
    """A block as Kafka's own producer frames it; `level` is on the codec's own scale (gzip, lz4, zstd)."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        import gzip

        return gzip.compress(data, 6 if level is None else level, mtime=0)
    if codec == SNAPPY:
        return _xerial(data)
    if codec == LZ4:
        return _lz4(data, magic, level)
    if codec == ZSTD:
        return bytes(_zstd_compressor(3 if level is None else level).compress(data))
    raise UnsupportedFormatError(f"unknown codec {codec}")


def _zstd_compressor(level: int) -> Any:  # noqa: ANN401 (of a library without types)
    """This thread's compressor for a level. Creating one costs more than compressing a small batch."""
    import zstandard

    compressors = _per_thread.__dict__.setdefault("zstd_compressors", {})
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressors[level]


def _too_large(limit_bytes: int) -> DecompressionLimitError:
    return DecompressionLimitError(
        f"compressed block grows past {limit_bytes} bytes",
        cure="a decompression bomb, or raise the limit if the data is known to be that large",
    )


@cache
def _zlib() -> Any:  # noqa: ANN401 (one of two modules of the same interface)
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib
    return isal_zlib


class _Parts:
    """Pieces of a decompressed block, of at most `limit_bytes` together.

    The pieces are joined while they come: joining a list at the end would need the memory of the block twice.
    """

    __slots__ = ("_few", "_limit_bytes", "_whole", "left_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.left_bytes = limit_bytes
        self._limit_bytes = limit_bytes
        self._few: list[bytes] = []
        self._whole: io.BytesIO | None = None

    def add(self, part: bytes) -> None:
        self.left_bytes -= len(part)
        if self.left_bytes < 0:
            raise _too_large(self._limit_bytes)
        self._few.append(part)
        if len(self._few) == _MOST_PARTS:
            self._whole = self._whole or io.BytesIO()
            self._whole.writelines(self._few)
            self._few.clear()

    def whole(self) -> bytes:
        if self._whole is None:
            return self._few[0] if len(self._few) == 1 else b"".join(self._few)
        self._whole.writelines(self._few)
        return self._whole.getvalue()


def _gunzip(data: Bytes, limit_bytes: int) -> bytes:
    gz: Any = _zlib()
    parts = _Parts(limit_bytes)
    rest: Bytes = data
    while True:
        # wbits 31: gzip header and trailer; one member at a time, because a block may have several
        member = gz.decompressobj(wbits=31)
        while not member.eof:
            # Input that a step does not use is copied. Steps as large as the input limit that.
            step = min(max(_CHUNK_BYTES, 4 * len(rest)), parts.left_bytes + 1)
            try:
                part = member.decompress(rest, step)
            except gz.error as error:
                raise CompressionError(f"gzip block is damaged: {error}") from error
            parts.add(part)
            rest = member.unconsumed_tail
            if not part and not rest and not member.eof:
                raise CompressionError("gzip block ends before its end mark")
        rest = member.unused_data
        if len(rest) < _GZIP_SMALLEST_BYTES or bytes(rest[:3]) != _GZIP_MAGIC:
            return parts.whole()


def _raw_unsnappy(block: Bytes, room_bytes: int, limit_bytes: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy block has no length: {error}") from error
    if size > len(block) * _SNAPPY_MOST_RATIO:
        raise CompressionError(f"snappy block of {len(block)} bytes claims to hold {size}")
    if size > room_bytes:
        raise _too_large(limit_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy block is damaged: {error}") from error


def _unsnappy(data: Bytes, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _raw_unsnappy(view, limit_bytes, limit_bytes)
    if len(view) < _XERIAL_HEADER_BYTES:
        raise CompressionError("snappy stream header is cut short")
    parts = _Parts(limit_bytes)
    at = _XERIAL_HEADER_BYTES
    while len(view) - at >= 4:  # Kafka's reader takes fewer bytes as the end
        if bytes(view[at : at + 8]) == _XERIAL_MAGIC:
            at += _XERIAL_HEADER_BYTES
            continue
        (size,) = struct.unpack_from(">i", view, at)
        at += 4
        if size < 0 or size > len(view) - at:
            raise CompressionError(f"snappy stream has a block of {size} bytes with {len(view) - at} left")
        part = _raw_unsnappy(view[at : at + size], parts.left_bytes, limit_bytes)
        parts.add(part)
        at += size
    return parts.whole()


def _xerial(data: bytes) -> bytes:
    import cramjam

    parts = [_XERIAL_MAGIC, struct.pack(">ii", 1, 1)]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _lz4_header_end(frame: Bytes) -> int:
    """The position of the header checksum byte of an LZ4 frame. Raises `CompressionError` if the frame is
    too short.
    """
    end = 6 + (8 if len(frame) > 4 and frame[4] & _LZ4_CONTENT_SIZE_BIT else 0)
    if len(frame) <= end or bytes(frame[:4]) != _LZ4_MAGIC:
        raise CompressionError("lz4 block does not start with an LZ4 frame header")
    return end


def _lz4_header_checksum(descriptor: Bytes) -> int:
    import xxhash

    return xxhash.xxh32_intdigest(bytes(descriptor)) >> 8 & 0xFF


def _unlz4(data: Bytes, magic: int, limit_bytes: int) -> bytes:
    frame = memoryview(data)
    end = _lz4_header_end(frame)
    if magic == 0:
        # Old clients include the frame magic in the checksum; newer writers of magic 0 may not.
        frame = memoryview(_lz4_with_descriptor(frame, bytes(frame[4:end]), end))
    try:
        return _lz4_frame(frame, limit_bytes)
    except RuntimeError as error:
        if frame[4] & (_LZ4_CONTENT_SIZE_BIT | _LZ4_CONTENT_CHECKSUM_BIT) and (
            frame[end] == _lz4_header_checksum(frame[4:end])
        ):
            return _unlz4_unchecked(frame, end, limit_bytes)
        raise CompressionError(f"lz4 block is damaged: {error}") from error


def _unlz4_unchecked(frame: memoryview, end: int, limit_bytes: int) -> bytes:
    """Read the frame without its content size and checksum, which Kafka ignores."""
    flags = frame[4] & ~(_LZ4_CONTENT_SIZE_BIT | _LZ4_CONTENT_CHECKSUM_BIT)
    bare = _lz4_with_descriptor(frame, bytes((flags, frame[5])), end)
    try:
        return _lz4_frame(memoryview(bare), limit_bytes)
    except RuntimeError as error:
        raise CompressionError(f"lz4 block is damaged: {error}") from error


def _lz4_with_descriptor(frame: memoryview, descriptor: bytes, end: int) -> bytes:
    """The frame with another descriptor and the header checksum for it."""
    checksum = _lz4_header_checksum(descriptor)
    return b"".join((_LZ4_MAGIC, descriptor, bytes((checksum,)), frame[end + 1 :]))


def _lz4_content_bytes(frame: memoryview) -> int:
    """The size that a frame claims to hold; 0 if it does not say."""
    return int.from_bytes(frame[6:14], "little") if frame[4] & _LZ4_CONTENT_SIZE_BIT else 0


def _lz4_frame(frame: memoryview, limit_bytes: int) -> bytes:
    """Decompress one frame with the library; bytes after it are ignored. Raises RuntimeError if the
    library does.
    """
    import lz4.frame

    most_bytes = len(frame) * _LZ4_MOST_RATIO
    if most_bytes <= limit_bytes and _lz4_content_bytes(frame) <= most_bytes:
        # The library allocates the content size, or without one step by step.
        plain: bytes = lz4.frame.decompress(frame)
        return plain
    context = lz4.frame.LZ4FrameDecompressor()
    parts = _Parts(limit_bytes)
    chunk: Any = frame
    while not context.eof:
        part = context.decompress(chunk, max_length=min(max(_CHUNK_BYTES, len(frame)), parts.left_bytes + 1))
        parts.add(part)
        chunk = b""
        if not part and context.needs_input and not context.eof:
            raise CompressionError("lz4 block ends before its end mark")
    return parts.whole()


def _lz4(data: bytes, magic: int, level: int | None) -> bytes:
    import lz4.frame

    frame = bytearray(
        lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )
    if magic == 0:
        end = _lz4_header_end(frame)
        frame[end] = _lz4_header_checksum(frame[:end])
    return bytes(frame)


def _unzstd(data: Bytes, limit_bytes: int) -> bytes:
    import zstandard

    context = getattr(_per_thread, "zstd", None)
    if context is None:
        context = _per_thread.zstd = zstandard.ZstdDecompressor()
    view = memoryview(data)
    plain = _unzstd_at_once(context, view, limit_bytes)
    if plain is not None:
        return plain
    parts = _Parts(limit_bytes)
    frame = None
    at = 0
    while at < len(view):
        frame = context.decompressobj() if frame is None or frame.eof else frame
        # The whole output of a slice comes at once, so a slice is so small that its output fits the limit.
        slice_bytes = max(parts.left_bytes // _ZSTD_MOST_RATIO, _ZSTD_SMALLEST_SLICE_BYTES)
        taken = view[at : at + slice_bytes]
        try:
            part = frame.decompress(taken)
        except zstandard.ZstdError as error:
            raise CompressionError(f"zstd block is damaged: {error}") from error
        parts.add(part)
        at += len(taken) - len(frame.unused_data)
    if frame is None or not frame.eof:
        raise CompressionError("zstd block ends before its end mark")
    return parts.whole()


def _unzstd_at_once(context: Any, data: memoryview, limit_bytes: int) -> bytes | None:  # noqa: ANN401
    """Decompress the usual block: one frame of ordinary size and ratio. None for any other."""
    import zstandard

    if len(data) > _ZSTD_AT_ONCE_BYTES:
        return None
    room_bytes = min(limit_bytes, _ZSTD_USUAL_RATIO * len(data))
    try:
        # The library allocates the size that the frame claims.
        if zstandard.frame_content_size(data) <= room_bytes:
            plain: bytes = context.decompress(data, max_output_size=room_bytes, allow_extra_data=False)
            return plain
    except zstandard.ZstdError:
        pass  # damaged, or several frames, or too large: reading it in slices shows which
    return None
