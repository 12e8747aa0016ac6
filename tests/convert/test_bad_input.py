"""Damaged and unusual batches: an error that names file and position, or the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.formats import message_set
from klog.formats.checksums import crc32, crc32c
from klog.formats.compression import LZ4, ZSTD
from klog.formats.constants import (
    BATCH_ATTRIBUTES_POSITION,
    BATCH_CRC_FROM,
    BATCH_CRC_POSITION,
)
from klog.formats.errors import KlogError
from klog.formats.names import FileKind, segment_file
from klog.formats.packed import INT32, INT64, UINT32
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests.convert.logs import contents, converted, records_of, with_codec
from tests.storage.cleaner.logs import index


def log_with(directory: Path, *batches: bytes | bytearray) -> Path:
    directory.mkdir(parents=True)
    (directory / segment_file(FileKind.LOG, 0)).write_bytes(b"".join(batches))
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        (directory / segment_file(kind, 0)).touch()
    return directory


def batch(offset: int, **fields: Any) -> bytearray:
    return build_batch([RecordData(offset, 1000, b"k", b"v" * 50)], BatchFields(leader_epoch=1, **fields))


def sealed(data: bytearray) -> bytearray:
    UINT32.pack_into(data, BATCH_CRC_POSITION, crc32c(memoryview(data)[BATCH_CRC_FROM:]))
    return data


def message(magic: int, offset: int, value: bytes | None, *, attributes: int = 0, time: int = 7) -> bytes:
    """One message of magic 0 or 1 by hand."""
    body = bytes((magic, attributes)) + (INT64.pack(time) if magic else b"")
    body += INT32.pack(1) + b"k" + (INT32.pack(-1) if value is None else INT32.pack(len(value)) + value)
    return INT64.pack(offset) + INT32.pack(4 + len(body)) + UINT32.pack(crc32(body)) + body


def wrapper(magic: int, offset: int, codec: str, inner: bytes, *, bits: int = 0, time: int = 9) -> bytes:
    block = message_set.close_block(magic, codec, inner)
    number = ("none", "gzip", "snappy", "lz4").index(codec)
    return message(magic, offset, bytes(block), attributes=number | bits, time=time)


def failure(directory: Path) -> str:
    before = contents(directory)
    with pytest.raises(KlogError) as raised:
        converted(directory, with_codec(ZSTD))
    assert contents(directory) == before
    return str(raised.value)


def place(directory: Path, position: int) -> str:
    return f"{directory / segment_file(FileKind.LOG, 0)} at byte {position}: "


def test_a_codec_that_kafka_does_not_define(tmp_path: Path) -> None:
    first, second = batch(0), batch(1, codec=LZ4)
    second[BATCH_ATTRIBUTES_POSITION + 1] = 6
    directory = log_with(tmp_path / "t-0", first, sealed(second))
    assert failure(directory).startswith(place(directory, len(first)) + "unknown codec 6")


def test_a_block_that_does_not_decompress(tmp_path: Path) -> None:
    first, second = batch(0), batch(1, codec=LZ4)
    second[-8:] = b"\xff" * 8
    directory = log_with(tmp_path / "t-0", first, sealed(second))
    assert failure(directory).startswith(place(directory, len(first)) + "lz4 block is damaged")


def test_a_wrapped_block_that_does_not_decompress(tmp_path: Path) -> None:
    first = message(1, 0, b"v")
    directory = log_with(tmp_path / "t-0", first, message(1, 1, b"no block", attributes=3))
    assert failure(directory).startswith(place(directory, len(first)))


def test_offsets_that_go_back(tmp_path: Path) -> None:
    first = batch(5)
    directory = log_with(tmp_path / "t-0", first, batch(5))
    assert failure(directory).startswith(
        place(directory, len(first)) + "batch of offsets 5 to 5 follows offset 5"
    )


def test_a_message_inside_a_wrapper_that_fails_its_checksum(tmp_path: Path) -> None:
    inner = bytearray(message(1, 0, b"v"))
    inner[-1] ^= 1
    first = message(1, 0, b"v")
    directory = log_with(tmp_path / "t-0", first, wrapper(1, 1, "gzip", bytes(inner)))
    assert failure(directory).startswith(place(directory, len(first)) + "a message fails its checksum")


def test_a_segment_that_ends_inside_a_batch(tmp_path: Path) -> None:
    first = batch(0)
    directory = log_with(tmp_path / "t-0", first, batch(1)[:-1])
    assert failure(directory).startswith(place(directory, len(first)) + "the segment ends inside a batch")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_offsets_in_wrappers_are_those_that_kafka_reads(magic: int, codec: str, tmp_path: Path) -> None:
    """Magic 1 has relative offsets, with gaps after a compaction; magic 0 has absolute ones."""
    offsets = (0, 3, 4) if magic else (10, 13, 14)
    inner = b"".join(message(magic, offset, b"v%d" % offset) for offset in offsets)
    directory = log_with(tmp_path / "t-0", wrapper(magic, 14, codec, inner))
    converted(directory)
    assert [record["offset"] for record in records_of(directory)] == [10, 13, 14]


def test_the_brokers_time_is_that_of_the_wrapper(tmp_path: Path) -> None:
    inner = b"".join(message(1, offset, b"v", time=offset) for offset in range(3))
    directory = log_with(tmp_path / "t-0", wrapper(1, 2, "lz4", inner, bits=8, time=5000))
    converted(directory)
    found = records_of(directory)
    assert [record["timestamp"] for record in found] == [5000] * 3
    assert all(record["logAppendTime"] for record in found)


def test_timestamps_out_of_range_stay(tmp_path: Path) -> None:
    times = [-1, -5, 2**63 - 1, -(2**63), 0]
    old = [message(1, number, b"v", time=time) for number, time in enumerate(times)]
    directory = log_with(tmp_path / "t-0", *old)
    converted(directory)
    assert [record["timestamp"] for record in records_of(directory)] == times


def test_messages_without_key_value_or_timestamp_stay(tmp_path: Path) -> None:
    directory = log_with(tmp_path / "t-0", message(0, 0, None), message(0, 1, b""))
    converted(directory)
    found = records_of(directory)
    assert [record["value"] for record in found] == [None, b""]
    assert [record["timestamp"] for record in found] == [-1, -1]
    assert [record["leaderEpoch"] for record in found] == [0, 0]


def test_messages_get_the_epoch_of_the_checkpoint(tmp_path: Path) -> None:
    directory = log_with(tmp_path / "t-0", *(message(1, number, b"v") for number in range(4)))
    (directory / FileKind.LEADER_EPOCH_CHECKPOINT).write_text("0\n2\n2 1\n5 3\n")
    converted(directory)
    assert [record["leaderEpoch"] for record in records_of(directory)] == [0, 2, 2, 5]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "0\n1\n0 0\n"),
        ("", "0\n1\n0 0\n"),
        ("0\n2\n2 1\n5 3\n", "0\n3\n0 0\n2 1\n5 3\n"),
        ("0\n2\n0 1\n5 3\n", "0\n2\n0 0\n5 3\n"),
        ("0\n1\n4 0\n", "0\n1\n4 0\n"),
        ("no checkpoint", "no checkpoint"),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_the_checkpoint_has_the_epoch_that_messages_get(
    before: str | None, after: str, beside: bool, tmp_path: Path
) -> None:
    directory = log_with(tmp_path / "t-0", *(message(1, number, b"v") for number in range(4)))
    if before is not None:
        (directory / FileKind.LEADER_EPOCH_CHECKPOINT).write_text(before)
    target = tmp_path / "output" / "t-0" if beside else directory
    converted(directory, target=target)
    assert (target / FileKind.LEADER_EPOCH_CHECKPOINT).read_text() == after


def test_a_log_without_a_checkpoint_gets_the_epochs_of_its_batches(tmp_path: Path) -> None:
    directory = log_with(tmp_path / "t-0", message(1, 0, b"v"), batch(3))
    converted(directory)
    assert (directory / FileKind.LEADER_EPOCH_CHECKPOINT).read_text() == "0\n2\n0 0\n1 3\n"


def test_batches_that_have_their_epochs_change_no_checkpoint(tmp_path: Path) -> None:
    directory = log_with(tmp_path / "t-0", batch(3), batch(4))
    converted(directory)
    assert not (directory / FileKind.LEADER_EPOCH_CHECKPOINT).exists()


def test_gaps_and_batches_without_records_stay(tmp_path: Path) -> None:
    directory = log_with(tmp_path / "t-0", batch(3), batch(90), batch(700))
    index(directory)
    converted(directory)
    assert [record["offset"] for record in records_of(directory)] == [3, 90, 700]
    assert (directory / segment_file(FileKind.LOG, 0)).exists()
