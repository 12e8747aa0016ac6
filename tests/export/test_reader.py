"""A split gives the rows that Kafka's own reader gives: all magics, codecs, headers and nulls."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export import reader
from klog.export.options import ReadOptions
from klog.export.reader import read_split
from klog.export.schema import METADATA_COLUMNS, arrow_schema
from klog.formats import compression
from klog.formats.checksums import crc32
from klog.formats.errors import DecompressionLimitError, UsageError
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable
from tests import corpora
from tests.export.reading import EVERY_OFFSET, expected_rows, read, split_of

ALL = ReadOptions((), include_headers=True, metadata_columns=METADATA_COLUMNS)
SOUND = [
    partition
    for partition in corpora.partitions()
    if partition.has_expected and not partition.corpus.is_corrupt
]


@pytest.mark.parametrize("partition", SOUND, ids=str)
def test_every_column_of_every_data_record_is_as_kafka_says(partition: corpora.PartitionDirectory) -> None:
    files = partition.files(".log")
    for path in files:
        rows, lost = read(split_of(path), ALL)
        assert rows == expected_rows(partition, path.name)
        assert lost == []
    assert files or not partition.expected_records()


def test_columns_come_in_the_order_asked_for() -> None:
    path = corpora.corpora("k39-txn")[0].log_dir().partition("t-txn-0").files(".log")[0]
    wanted = ["offset", "file", "value"]
    rows, _ = read(split_of(path), ALL, wanted)
    assert rows
    assert [list(row) for row in rows] == [wanted] * len(rows)
    assert arrow_schema(ALL, wanted).names == wanted


def test_no_columns_or_unknown_ones_are_refused() -> None:
    split = split_of(SOUND[0].files(".log")[0])
    for columns in ([], ["nothing"]):
        with pytest.raises(UsageError, match="column"):
            list(read_split(split, ALL, columns=columns, on_lost=lambda _: None))


# Made segments


def segment_of(tmp_path: Path, *batches: bytes) -> Path:
    path = tmp_path / "made-0" / f"{0:020d}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(batches))
    return path


def records(first: int, count: int, value: bytes | None = b"v", timestamp: int = 0) -> list[RecordData]:
    return [RecordData(first + n, timestamp + n, b"k", value) for n in range(count)]


def batch_of(rows: Sequence[RecordData], codec: int = compression.NONE) -> bytes:
    return bytes(build_batch(rows, BatchFields(codec=codec)))


def offsets_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


CUT = [
    partition
    for partition in SOUND
    if partition.corpus.name in ("k39-txn", "k08-codecs", "up-08-010-11-28-39")
]


@settings(max_examples=30)
@given(st.sampled_from(CUT), st.data())
def test_splits_of_any_cut_at_batches_give_the_rows_of_the_whole(
    partition: corpora.PartitionDirectory, draws: st.DataObject
) -> None:
    for path in partition.files(".log"):
        table = BatchTable()
        data = path.read_bytes()
        kernel.scan(data, 0, True, table)
        inner = draws.draw(st.lists(st.sampled_from(table.position), max_size=5)) if len(table) else []
        places = sorted({0, *inner, len(data)})
        parts = [
            read(split_of(path, start_bytes=start, end_bytes=end), ALL) for start, end in pairwise(places)
        ]
        assert [row for rows, _ in parts for row in rows] == read(split_of(path), ALL)[0]
        assert [lost for _, losses in parts for lost in losses] == []


@pytest.mark.parametrize("codec", range(5))
def test_only_the_wanted_offsets_come_also_out_of_the_middle_of_a_batch(tmp_path: Path, codec: int) -> None:
    path = segment_of(tmp_path, *(batch_of(records(first, 10), codec) for first in range(0, 50, 10)))
    for first, end in [(0, 50), (5, 6), (15, 35), (20, 30), (49, EVERY_OFFSET), (50, 60), (0, 0)]:
        rows, lost = read(split_of(path, first_offset=first, end_offset=end), columns=["offset"])
        assert offsets_of(rows) == [offset for offset in range(50) if first <= offset < end]
        assert lost == []


def test_a_file_that_has_grown_since_it_was_planned_is_read_as_far_as_planned(tmp_path: Path) -> None:
    path = segment_of(tmp_path, batch_of(records(0, 3)))
    split = split_of(path)
    path.write_bytes(path.read_bytes() + batch_of(records(3, 3)))
    assert read(split, columns=["offset"]) == ([{"offset": 0}, {"offset": 1}, {"offset": 2}], [])


def test_bounds_of_time_take_records_not_batches(tmp_path: Path) -> None:
    path = segment_of(tmp_path, *(batch_of(records(n, 10, timestamp=n * 100)) for n in range(0, 30, 10)))
    everything, _ = read(split_of(path))
    for since, until in [
        (None, 1005),
        (1003, None),
        (1003, 2001),
        (1009, 1010),
        (5000, None),
        (2**62, 2**63),
    ]:
        rows, _ = read(split_of(path), ReadOptions((), since_ms=since, until_ms=until))
        assert rows == [
            row
            for row in everything
            if (since or 0) * 1000 <= row["timestamp"] < (until or EVERY_OFFSET) * 1000
        ]
        # The column that decides need not be asked for.
        chosen, _ = read(split_of(path), ReadOptions((), since_ms=since, until_ms=until), ["offset"])
        assert chosen == [{"offset": row["offset"]} for row in rows]


def test_times_that_microseconds_cannot_hold_are_null_and_none_is_minus_one_millisecond(
    tmp_path: Path,
) -> None:
    times = [-1, 0, 2**63 // 1000 - 1, 2**63 // 1000 + 1, 2**63 - 1]
    path = segment_of(tmp_path, *(batch_of([RecordData(n, time, None, b"")]) for n, time in enumerate(times)))
    rows, _ = read(split_of(path))
    assert [row["timestamp"] for row in rows] == [-1000, 0, (2**63 // 1000 - 1) * 1000, None, None]


def test_a_record_without_headers_has_none_and_null_differs_from_empty(tmp_path: Path) -> None:
    rows = [
        RecordData(0, 0, None, None, ()),
        RecordData(1, 0, b"", b"", ((b"a", None), (b"a", b""), (b"\xff", b"x"))),
        RecordData(2, 0, b"k", b"v", ()),
    ]
    found, _ = read(split_of(segment_of(tmp_path, batch_of(rows))), ALL, ["key", "value", "headers"])
    headers = [{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "\ufffd", "value": b"x"}]
    assert found == [
        {"key": None, "value": None, "headers": None},
        {"key": b"", "value": b"", "headers": headers},
        {"key": b"k", "value": b"v", "headers": None},
    ]


def test_batches_are_of_a_bounded_size_whatever_the_segment_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(reader, "_MEASURED_BYTES", 2_000)
    path = segment_of(
        tmp_path,
        batch_of(records(0, 100, b"x" * 1000)),
        batch_of(records(100, 100, b"y" * 1000), compression.LZ4),
        batch_of(records(200, 5, b"z" * 30_000)),
        *(batch_of(records(205 + n, 1)) for n in range(100)),
    )
    batches = list(read_split(split_of(path), ReadOptions(()), on_lost=lambda lost: pytest.fail(str(lost))))
    assert offsets_of([row for batch in batches for row in batch.to_pylist()]) == list(range(305))
    assert max(batch.nbytes for batch in batches) < 50_000
    assert len(batches) > 10


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_a_large_record_is_a_batch_of_its_own_and_its_bytes_are_not_overwritten(
    tmp_path: Path, codec: int
) -> None:
    large = [os.urandom(9 << 20), bytes(12 << 20)]
    path = segment_of(
        tmp_path,
        batch_of(records(0, 2), codec),
        *(batch_of([RecordData(2 + n, 0, None, value)], codec) for n, value in enumerate(large)),
        batch_of(records(4, 5), codec),
    )
    batches = list(read_split(split_of(path), ReadOptions(()), on_lost=lambda lost: pytest.fail(str(lost))))
    assert [batch.column("offset").to_pylist() for batch in batches] == [[0, 1], [2], [3], [4, 5, 6, 7, 8]]
    assert [batch.column("value")[0].as_py() for batch in batches[1:3]] == large
    assert batches[1].schema == batches[0].schema


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_decompression_bomb_is_lost_and_its_neighbours_are_read(tmp_path: Path, codec: int) -> None:
    batches = [
        batch_of(records(0, 2), codec),
        batch_of(records(2, 3, bytes(300_000)), codec),
        batch_of(records(5, 2)),
    ]
    path = segment_of(tmp_path, *batches)
    options = ReadOptions((), max_decompressed_bytes=500_000)
    rows, (lost,) = read(split_of(path), options, ["offset"])
    assert offsets_of(rows) == [0, 1, 5, 6]
    assert (lost.start_bytes, lost.end_bytes) == (len(batches[0]), len(batches[0]) + len(batches[1]))
    assert (lost.first_offset, lost.end_offset) == (2, 5)
    strict = ReadOptions((), max_decompressed_bytes=500_000, fail_on_data_loss=True)
    with pytest.raises(DecompressionLimitError):
        read(split_of(path), strict)


def test_a_batch_above_the_limit_is_not_read_into_memory(tmp_path: Path) -> None:
    path = segment_of(
        tmp_path, batch_of(records(0, 1)), batch_of(records(1, 1, bytes(2_000_000))), batch_of(records(2, 1))
    )
    rows, (lost,) = read(split_of(path), ReadOptions((), max_decompressed_bytes=1_500_000), ["offset"])
    assert offsets_of(rows) == [0, 2]
    assert (lost.first_offset, lost.end_offset) == (1, 2)
    assert "raise maxDecompressedBytes" in lost.reason


def with_crc(batch: bytearray) -> bytes:
    """A batch of magic 2 with the checksum that its bytes have."""
    from klog.formats.checksums import crc32c

    batch[17:21] = struct.pack(">I", crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def test_records_before_one_that_does_not_decode_are_read_and_the_rest_is_lost(tmp_path: Path) -> None:
    damaged = bytearray(batch_of(records(3, 4)))
    record_bytes = (len(damaged) - 61) // 4
    damaged[61 + 2 * record_bytes] = 0xFF  # the length of the third
    path = segment_of(tmp_path, batch_of(records(0, 3)), with_crc(damaged), batch_of(records(7, 2)))
    rows, (lost,) = read(split_of(path), columns=["offset"])
    assert offsets_of(rows) == [0, 1, 2, 3, 4, 7, 8]
    assert (lost.first_offset, lost.end_offset) == (5, 7)


def message(offset: int, value: bytes, attributes: int = 0) -> bytearray:
    """A message of magic 1."""
    body = struct.pack(">bBq", 1, attributes, 1000 + offset) + struct.pack(">i", -1)
    body += struct.pack(">i", len(value)) + value
    return bytearray(struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body)


def test_only_the_damaged_message_inside_a_valid_set_is_lost(tmp_path: Path) -> None:
    inner = [message(n, b"value") for n in range(4)]
    inner[1][-1] ^= 1
    inner[2][-1] ^= 1
    packed = compression.compress(compression.GZIP, b"".join(bytes(one) for one in inner), magic=1)
    path = segment_of(tmp_path, bytes(message(13, packed, compression.GZIP)), bytes(message(14, b"next")))
    rows, lost = read(split_of(path), columns=["offset", "value"])
    assert offsets_of(rows) == [10, 13, 14]
    assert [(one.first_offset, one.end_offset) for one in lost] == [(11, 13)]


def test_constant_and_changing_fields_of_batches_are_given_to_each_record(tmp_path: Path) -> None:
    fields = [
        BatchFields(
            producer_id=5, producer_epoch=1, base_sequence=2**31 - 1, leader_epoch=3, is_transactional=True
        ),
        BatchFields(log_append_time_ms=77, codec=compression.ZSTD),
        BatchFields(),
    ]
    batches = [bytes(build_batch(records(2 * n, 2), one)) for n, one in enumerate(fields)]
    rows, _ = read(split_of(segment_of(tmp_path, *batches)), ALL)
    assert [row["sequence"] for row in rows] == [2**31 - 1, 0, -1, -1, -1, -1]
    assert [row["timestampType"] for row in rows] == [0, 0, 1, 1, 0, 0]
    assert [row["timestamp"] for row in rows] == [0, 1000, 77000, 77000, 0, 1000]
    assert [row["codec"] for row in rows] == ["none", "none", "zstd", "zstd", "none", "none"]
    assert [row["isTransactional"] for row in rows] == [True, True, False, False, False, False]
    assert [row["leaderEpoch"] for row in rows][:3] == [3, 3, -1]
    assert [row["batchPosition"] for row in rows] == [
        0,
        0,
        len(batches[0]),
        len(batches[0]),
        *[len(batches[0] + batches[1])] * 2,
    ]


def test_offsets_alone_are_read_without_touching_values(tmp_path: Path) -> None:
    path = segment_of(tmp_path, batch_of(records(0, 50, bytes(10_000))))
    (batch,) = read_split(split_of(path), ReadOptions(()), columns=["offset"], on_lost=lambda _: None)
    assert (batch.schema, batch.nbytes) == (pa.schema([("offset", pa.int64())]), 400)
