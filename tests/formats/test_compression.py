"""Compressed blocks: what Kafka's own readers accept is accepted, anything else is a CompressionError."""

from __future__ import annotations

import contextlib
import gzip
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Iterator

import cramjam
import lz4.frame
import pytest
import xxhash
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from klog.formats import compression
from klog.formats.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from klog.formats.errors import CompressionError, DecompressionLimitError, UnsupportedFormatError

CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
TEXT = b"the quick brown fox " * 20_000
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@given(st.binary(max_size=200_000), st.sampled_from(range(5)), st.sampled_from([0, 1, 2]))
@example(b"", GZIP, 2)
@example(b"", SNAPPY, 2)
@example(b"", LZ4, 0)
@example(b"", ZSTD, 2)
def test_a_compressed_block_decompresses_to_the_same_bytes(data: bytes, codec: int, magic: int) -> None:
    if codec == ZSTD:
        magic = 2
    for buffer in (bytes, bytearray, memoryview):
        assert decompress(codec, buffer(compress(codec, data, magic=magic)), magic=magic) == data


@CODECS
def test_a_block_may_hold_exactly_the_limit_and_not_a_byte_more(codec: int) -> None:
    block = compress(codec, TEXT)
    assert decompress(codec, block, limit_bytes=len(TEXT)) == TEXT
    with pytest.raises(DecompressionLimitError, match="grows past"):
        decompress(codec, block, limit_bytes=len(TEXT) - 1)


@CODECS
def test_a_bomb_takes_memory_up_to_the_limit_only(codec: int) -> None:
    block = compress(codec, bytes(300 << 20))
    tracemalloc.start()
    with pytest.raises(DecompressionLimitError):
        decompress(codec, block, limit_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 << 20  # the block itself is copied for some codecs (snappy: 14 MiB)


@CODECS
def test_every_cut_of_a_block_is_an_error(codec: int) -> None:
    data = bytes(range(256)) * 8
    block = compress(codec, data)
    for end in range(len(block)):
        try:
            got = decompress(codec, block[:end])
        except CompressionError:
            continue
        # Only the xerial stream has no end mark: whole blocks are a whole stream.
        assert codec == SNAPPY
        assert got == b""
        assert 16 <= end < 20


@CODECS
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_gives_some_bytes_or_a_compression_error(codec: int, place: int, value: int) -> None:
    block = bytearray(compress(codec, TEXT[:3000]))
    block[place % len(block)] = value
    with contextlib.suppress(CompressionError):
        decompress(codec, block)


@CODECS
@given(data=st.binary(max_size=300))
def test_random_bytes_give_some_bytes_or_a_compression_error(codec: int, data: bytes) -> None:
    starts = {
        GZIP: b"\x1f\x8b\x08",
        SNAPPY: XERIAL_HEADER,
        LZ4: b"\x04\x22\x4d\x18",
        ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for block in (data, starts[codec] + data):
        with contextlib.suppress(CompressionError):
            assert len(decompress(codec, block, limit_bytes=1 << 20)) <= 1 << 20


def test_no_compression_gives_the_bytes_themselves() -> None:
    assert decompress(NONE, b"abc") == b"abc"
    assert compress(NONE, b"abc") == b"abc"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_kafka_does_not_define_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"unknown codec {codec}"):
        decompress(codec, b"")
    with pytest.raises(UnsupportedFormatError, match=f"unknown codec {codec}"):
        compress(codec, b"")
    assert compression.codec_name(codec) == f"unknown({codec})"


# gzip


@pytest.fixture(params=["isal", "zlib"])
def gzip_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each of the two libraries that may read gzip; klog takes isal if it is installed."""
    compression._zlib.cache_clear()
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
        assert compression._zlib() is zlib
    else:
        pytest.importorskip("isal", reason="isal has no wheel for this machine")
    yield str(request.param)
    compression._zlib.cache_clear()


def test_gzip_may_have_several_members(gzip_library: str) -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("rest", [b"\0", b"garbage", b"\x1f\x8b\x08", b"\x1f\x8b\x07" + bytes(40)])
def test_bytes_after_a_gzip_member_that_start_no_other_are_ignored(gzip_library: str, rest: bytes) -> None:
    assert decompress(GZIP, gzip.compress(b"one") + rest) == b"one"


def test_gzip_header_fields_are_skipped(gzip_library: str) -> None:
    plain = gzip.compress(b"data", mtime=0)
    fields = b"\x1f\x8b\x08\x1c" + plain[4:10] + struct.pack("<H", 3) + b"abc" + b"name\0" + b"comment\0"
    assert decompress(GZIP, fields + plain[10:]) == b"data"


def damaged_gzip() -> list[bytes]:
    block = gzip.compress(TEXT[:5000], mtime=0)
    return [
        b"",
        b"\x1f\x8b",
        block[:40],
        block[:-1],
        block[:-8] + b"\0\0\0\0" + block[-4:],
        block[:-4] + b"\0\0\0\0",
        b"\x1f\x8c" + block[2:],
        block[:12] + bytes([block[12] ^ 0xFF]) + block[13:],
        gzip.compress(b"one", mtime=0) + block[:-1],
    ]


@pytest.mark.parametrize("block", damaged_gzip())
def test_a_damaged_gzip_block_is_a_compression_error_whatever_library_reads_it(
    gzip_library: str, block: bytes
) -> None:
    with pytest.raises(CompressionError, match="gzip block"):
        decompress(GZIP, block)


# snappy


def test_a_snappy_block_of_librdkafka_has_no_framing() -> None:
    assert decompress(SNAPPY, raw_snappy(TEXT)) == TEXT
    assert decompress(SNAPPY, raw_snappy(b"")) == b""


def test_xerial_streams_may_follow_one_another() -> None:
    assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two")) == b"one two"
    assert decompress(SNAPPY, XERIAL_HEADER + XERIAL_HEADER) == b""


def test_fewer_than_four_bytes_end_a_xerial_stream_as_in_kafkas_reader() -> None:
    assert decompress(SNAPPY, compress(SNAPPY, b"one") + b"\0\0\x01") == b"one"


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff\xff\xff\xff\xff\xff",
        XERIAL_HEADER[:12],
        XERIAL_HEADER + b"\0\0\0\x05abc",
        XERIAL_HEADER + b"\xff\xff\xff\xff",
        XERIAL_HEADER + b"\0\0\0\0",
        raw_snappy(TEXT)[:-1],
        raw_snappy(b"abc") + b"x",
    ],
)
def test_a_damaged_snappy_block_is_a_compression_error(block: bytes) -> None:
    with pytest.raises(CompressionError, match="snappy"):
        decompress(SNAPPY, block)


def test_the_stored_length_of_a_snappy_block_allocates_nothing() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + raw_snappy(b"abc")[1:]
    with pytest.raises(CompressionError, match="claims to hold 4294967295"):
        decompress(SNAPPY, claims_4_gib, limit_bytes=1 << 40)


def test_no_valid_snappy_block_exceeds_the_limit_on_stored_lengths() -> None:
    zeros = raw_snappy(bytes(10 << 20))
    assert (10 << 20) / len(zeros) < compression._SNAPPY_MOST_RATIO
    assert decompress(SNAPPY, zeros) == bytes(10 << 20)


# lz4


def descriptor_checksum(frame: bytes, end: int, start: int = 4) -> int:
    return xxhash.xxh32_intdigest(frame[start:end]) >> 8 & 0xFF


def test_an_lz4_frame_of_magic_0_is_written_with_the_checksum_of_old_clients() -> None:
    frame = compress(LZ4, b"abc", magic=0)
    assert frame[6] == descriptor_checksum(frame, 6, start=0)
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(frame)
    with pytest.raises(CompressionError, match="lz4 block is damaged"):
        decompress(LZ4, frame, magic=1)


@pytest.mark.parametrize("checksum", [0, 0x82, 0xFF])
def test_the_lz4_header_checksum_of_magic_0_is_ignored_as_in_kafka(checksum: int) -> None:
    frame = bytearray(compress(LZ4, b"abc", magic=0))
    frame[6] = checksum
    assert decompress(LZ4, frame, magic=0) == b"abc"


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("block_linked", [False, True])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_kind_of_lz4_frame_is_read(
    store_size: bool, content_checksum: bool, block_checksum: bool, block_linked: bool, magic: int
) -> None:
    frame = lz4.frame.compress(
        TEXT,
        store_size=store_size,
        content_checksum=content_checksum,
        block_checksum=block_checksum,
        block_linked=block_linked,
    )
    assert decompress(LZ4, frame, magic=magic) == TEXT


def test_what_follows_the_first_lz4_frame_is_ignored() -> None:
    frame = compress(LZ4, b"one")
    assert decompress(LZ4, frame + frame) == b"one"
    assert decompress(LZ4, frame + b"garbage") == b"one"


def test_the_content_size_and_content_checksum_of_lz4_are_ignored_as_in_kafka() -> None:
    frame = bytearray(lz4.frame.compress(TEXT, store_size=True, content_checksum=True))
    frame[-1] ^= 1
    frame[6:14] = struct.pack("<Q", 1 << 60)
    frame[14] = descriptor_checksum(bytes(frame), 14)
    assert decompress(LZ4, frame) == TEXT


def test_a_wrong_block_checksum_of_lz4_is_an_error() -> None:
    frame = bytearray(lz4.frame.compress(b"abc" * 100, block_checksum=True, content_checksum=True))
    frame[-9] ^= 1
    with pytest.raises(CompressionError, match="lz4 block is damaged"):
        decompress(LZ4, frame)


@pytest.mark.parametrize(
    "block",
    [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40" + bytes(7), b"\x50\x2a\x4d\x18" + bytes(20)],
)
@pytest.mark.parametrize("magic", [0, 2])
def test_bytes_that_are_not_an_lz4_frame_are_an_error(block: bytes, magic: int) -> None:
    with pytest.raises(CompressionError, match="LZ4 frame header"):
        decompress(LZ4, block, magic=magic)


# zstd


@pytest.mark.parametrize("write_content_size", [False, True])
@pytest.mark.parametrize("write_checksum", [False, True])
def test_every_kind_of_zstd_frame_is_read(write_content_size: bool, write_checksum: bool) -> None:
    writer = zstandard.ZstdCompressor(write_content_size=write_content_size, write_checksum=write_checksum)
    assert decompress(ZSTD, writer.compress(TEXT)) == TEXT


def test_zstd_may_have_several_frames_and_skippable_ones_between() -> None:
    skippable = b"\x53\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    frames = compress(ZSTD, b"one ") + skippable + compress(ZSTD, b"two") + skippable
    assert decompress(ZSTD, frames) == b"one two"
    assert decompress(ZSTD, frames, limit_bytes=7) == b"one two"


@pytest.mark.parametrize(
    "block", [b"", b"\x28\xb5\x2f\xfd", compress(ZSTD, TEXT)[:-1], compress(ZSTD, b"a") + b"garbage"]
)
def test_a_damaged_zstd_block_is_a_compression_error(block: bytes) -> None:
    with pytest.raises(CompressionError, match="zstd block"):
        decompress(ZSTD, block)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_below_magic_2_is_refused_as_kafka_does(magic: int) -> None:
    with pytest.raises(CompressionError, match="the codec came with magic 2"):
        decompress(ZSTD, compress(ZSTD, b"a"), magic=magic)
