"""What another thread decompresses ahead is what a reader finds without it."""

from __future__ import annotations

import io
import random
import threading
from typing import BinaryIO

import pytest

from klog.backup import packing
from klog.backup.packing import FRAME_BYTES, Packer, SeekableZstd, reading_ahead
from klog.formats.errors import StorageError

FRAMES = 6
PLAIN = random.Random(3).randbytes(1 << 16) * (FRAMES * FRAME_BYTES >> 16)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "own_cores", lambda: 2)


@pytest.fixture
def packed() -> bytearray:
    made = bytearray()
    packer = Packer("zstd", made.extend)
    packer.add(memoryview(PLAIN))
    packer.finish()
    return made


def opened(packed: bytearray) -> BinaryIO:
    return SeekableZstd(io.BytesIO(packed), "piece.zst")  # type: ignore[return-value]


def damage(packed: bytearray, frame: int) -> None:
    """Damage where a frame begins: zstd sees that, but not other contents."""
    packed[SeekableZstd(io.BytesIO(packed), "piece.zst")._packed_starts[frame]] ^= 0xFF


def unpacking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "klog-unpack"]


def test_a_piece_that_is_read_from_its_beginning_to_its_end(packed: bytearray) -> None:
    buffer = bytearray(300_000)
    read = bytearray()
    with opened(packed) as file, reading_ahead(file):
        assert len(unpacking()) == 1
        while got := file.readinto(buffer):  # type: ignore[attr-defined]
            read += buffer[:got]
    assert read == PLAIN
    assert not unpacking()


def test_any_order_of_reads(packed: bytearray) -> None:
    chance = random.Random(5)
    with opened(packed) as file, reading_ahead(file):
        for _ in range(60):
            start, size = chance.randrange(len(PLAIN)), chance.choice([10, FRAME_BYTES, 2 * FRAME_BYTES])
            file.seek(start)
            assert file.read(size) == PLAIN[start : start + size]


def test_damage_is_raised_when_it_is_read_and_not_before(packed: bytearray) -> None:
    damage(packed, 2)
    with opened(packed) as file, reading_ahead(file):
        assert file.read(2 * FRAME_BYTES) == PLAIN[: 2 * FRAME_BYTES]
        with pytest.raises(StorageError, match="frame"):
            file.read(1)
        file.seek(3 * FRAME_BYTES)
        assert file.read(10) == PLAIN[3 * FRAME_BYTES :][:10]
    assert not unpacking()


def test_damage_that_nobody_reads_is_no_error(packed: bytearray) -> None:
    damage(packed, 1)
    with opened(packed) as file, reading_ahead(file):
        assert file.read(10) == PLAIN[:10]


@pytest.mark.parametrize("cores", [1, 2])
def test_without_a_core_or_a_thread_for_it_the_caller_does_it(
    packed: bytearray, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_name: str) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(packing, "own_cores", lambda: cores)
    if cores > 1:
        monkeypatch.setattr(packing, "SecondThread", refused)
    with opened(packed) as file, reading_ahead(file):
        assert not unpacking()
        assert file.read() == PLAIN


def test_a_piece_of_one_frame_needs_no_thread() -> None:
    made = bytearray()
    packer = Packer("zstd", made.extend)
    packer.add(memoryview(PLAIN[:FRAME_BYTES]))
    packer.finish()
    with opened(made) as file, reading_ahead(file):
        assert not unpacking()
        assert file.read() == PLAIN[:FRAME_BYTES]
