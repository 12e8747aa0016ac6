"""Only damaged data is lost: all valid batches are read, and each damaged range is reported once."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export.options import ReadOptions
from klog.export.reader import read_split
from klog.formats.errors import CorruptRecordError, KlogError, StorageError
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.replicas.splits import LostRange
from tests import corpora, strategies
from tests.export.reading import EVERY_OFFSET, read, split_of

CORRUPT = [corpora.Corpus(name).log_dir() for name in ("corrupt-k08", "corrupt-k28-lz4", "corrupt-k39")]
LAST = "00000000000000000025.log"
DAMAGED = [
    partition
    for log_dir in CORRUPT
    for partition in log_dir.partitions()
    if not {"c-b.intact-0", "c-b.empty-last-0"} & {partition.name}
]
WITH_HEADERS = ReadOptions((), include_headers=True, metadata_columns=("batchPosition", "sequence"))


def rows_without_topic(path: Path) -> tuple[list[dict[str, Any]], list[LostRange]]:
    rows, lost = read(split_of(path), WITH_HEADERS)
    for row in rows:
        del row["topic"]
    return rows, lost


@pytest.mark.parametrize("partition", DAMAGED, ids=str)
def test_valid_batches_around_damage_are_read_and_the_others_reported(
    partition: corpora.PartitionDirectory,
) -> None:
    for path in partition.files(".log"):
        intact, _ = rows_without_topic(partition.log_dir.partition("c-b.intact-0").path / path.name)
        rows, lost = rows_without_topic(path)
        assert [row for row in rows if row not in intact] == []
        missing = {row["offset"] for row in intact} - {row["offset"] for row in rows}
        reported = {
            offset for one in lost for offset in range(one.first_offset or 0, min(one.end_offset or 0, 45))
        }
        if partition.name in ("c-b.zero-inside-0", "c-b.trunc-hdr-0") and path.name == LAST:
            # Zeros to the end of the file (of the cut header, too) look like space that was never written.
            assert (missing, lost) == ({*range(45 - len(missing), 45)}, [])
        else:
            assert missing == reported
            assert bool(lost) == bool(missing) or partition.name == "c-b.garbage-tail-0"
            assert len(lost) <= 1
        # Never more than the damaged batch: they have five records each.
        assert len(missing) in ((10,) if partition.name == "c-b.zero-inside-0" and missing else (0, 5))


def damaged_copy(tmp_path: Path, name: str, position: int, data: bytes) -> Path:
    """The last segment of the intact partition with some bytes changed."""
    source = corpora.Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path / LAST
    path = tmp_path / "c-b.intact-0" / name
    path.parent.mkdir(exist_ok=True)
    content = bytearray(source.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)
    return path


# The last segment's batches start at 0, 356, 621 and 1166, with offsets 25, 30, 35 and 40; it ends at 1599.


@pytest.mark.parametrize(
    ("position", "data", "expected", "kept"),
    [
        (500, b"\xff", (356, 621, 30, 35), [25, 35, 40]),  # a value
        (364, (1 << 20).to_bytes(4, "big"), (356, 621, 30, 35), [25, 35, 40]),  # size far too large
        (364, (40).to_bytes(4, "big"), (356, 621, 30, 35), [25, 35, 40]),  # size too small
        (0, bytes(600), (0, 621, 25, 35), [35, 40]),  # zeros before batches
        (0, b"\x55" * 621, (0, 621, 25, 35), [35, 40]),  # the first two batches
        (356, b"\x55" * 900, (356, 1599, 30, 45), [25]),  # all that follows the first
    ],
)
def test_a_damaged_range_is_reported_with_its_bytes_and_the_missing_offsets(
    tmp_path: Path, position: int, data: bytes, expected: tuple[int, int, int, int], kept: list[int]
) -> None:
    path = damaged_copy(tmp_path, LAST, position, data)
    rows, lost = read(split_of(path, end_offset=45))
    assert [row["offset"] for row in rows if row["offset"] % 5 == 0] == kept
    (one,) = lost
    assert (one.start_bytes, one.end_bytes, one.first_offset, one.end_offset) == expected
    assert (one.topic, one.partition, one.file) == ("c-b.intact", 0, str(path))


@pytest.mark.parametrize(
    ("position", "offset", "lost_offsets"),
    [
        (356, 1 << 40, (30, 35)),  # the offset of a batch far ahead: the batch after it is right
        (356, 38, (30, 35)),
        (356, 2, (30, 35)),  # an offset that goes back
        (1166, 3, (40, 45)),
        (0, 1 << 40, (25, 30)),
    ],
)
def test_a_batch_with_a_wrong_offset_is_lost_although_its_checksum_matches(
    tmp_path: Path, position: int, offset: int, lost_offsets: tuple[int, int]
) -> None:
    path = damaged_copy(tmp_path, LAST, position, offset.to_bytes(8, "big"))
    rows, (lost,) = read(split_of(path, end_offset=45))
    assert [row["offset"] for row in rows] == [o for o in range(25, 45) if o not in range(*lost_offsets)]
    assert (lost.first_offset, lost.end_offset) == lost_offsets


def test_two_damaged_batches_apart_are_two_losses_and_two_that_adjoin_are_one(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 100, b"\xff")
    content = bytearray(path.read_bytes())
    content[700] ^= 0xFF
    path.write_bytes(content)
    _, lost = read(split_of(path, end_offset=45))
    assert [(one.start_bytes, one.end_bytes) for one in lost] == [(0, 356), (621, 1166)]
    content[400] ^= 0xFF
    path.write_bytes(content)
    _, lost = read(split_of(path, end_offset=45))
    assert [(one.start_bytes, one.end_bytes) for one in lost] == [(0, 1166)]


def test_damage_outside_the_wanted_offsets_is_not_reported(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 500, b"\xff")  # offsets 30 to 34
    assert read(split_of(path, first_offset=35, end_offset=45))[1] == []
    assert read(split_of(path, first_offset=25, end_offset=30))[1] == []
    assert len(read(split_of(path, first_offset=25, end_offset=31))[1]) == 1
    assert len(read(split_of(path, first_offset=34, end_offset=45))[1]) == 1


def test_each_split_of_a_damaged_segment_reports_only_its_own_damage(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 700, b"\xff")  # the batch at 621, offsets 35 to 39
    places = [0, 356, 621, 1166, 1599]
    found = [
        read(split_of(path, start_bytes=start, end_bytes=end, end_offset=45))
        for start, end in pairwise(places)
    ]
    assert [[row["offset"] for row in rows][:1] for rows, _ in found] == [[25], [30], [], [40]]
    assert [[(one.first_offset, one.end_offset) for one in lost] for _, lost in found] == [
        [],
        [],
        [(35, 40)],
        [],
    ]


def test_a_segment_truncated_since_it_was_planned_is_reported(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 0, b"")
    split = split_of(path, end_offset=45)
    path.write_bytes(path.read_bytes()[:621])
    rows, (lost,) = read(split)
    assert [row["offset"] for row in rows] == [*range(25, 35)]
    assert (lost.start_bytes, lost.end_bytes, lost.first_offset, lost.end_offset) == (621, 1599, 35, 45)
    assert "when it was planned" in lost.reason


def test_a_file_that_cannot_be_opened_is_all_lost(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 0, b"")
    split = split_of(path, end_offset=45)
    path.unlink()
    rows, (lost,) = read(split)
    assert rows == []
    assert (lost.start_bytes, lost.end_bytes, lost.first_offset, lost.end_offset) == (0, 1599, 25, 45)


@pytest.mark.parametrize(
    ("position", "data", "kind"), [(500, b"\xff", CorruptRecordError), (364, b"\xff", CorruptRecordError)]
)
def test_with_fail_on_data_loss_the_first_damage_is_raised(
    tmp_path: Path, position: int, data: bytes, kind: type[KlogError]
) -> None:
    path = damaged_copy(tmp_path, LAST, position, data)
    reported: list[LostRange] = []
    with pytest.raises(kind, match=f"{LAST} at byte 356"):
        list(read_split(split_of(path), ReadOptions((), fail_on_data_loss=True), on_lost=reported.append))
    assert reported == []


def test_with_fail_on_data_loss_a_missing_file_is_raised(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 0, b"")
    split = split_of(path)
    path.unlink()
    with pytest.raises(StorageError, match="cannot be opened"):
        list(read_split(split, ReadOptions((), fail_on_data_loss=True), on_lost=lambda _: None))


def test_the_number_of_offsets_in_a_cut_end_is_unknown(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, LAST, 0, b"")
    path.write_bytes(path.read_bytes()[:1400])
    _, (lost,) = read(split_of(path))
    assert (lost.start_bytes, lost.end_bytes) == (1166, 1400)
    assert (lost.first_offset, lost.end_offset) == (40, EVERY_OFFSET)


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """The values of a log of ten batches, all different, and what is left of it when something happened."""
    size = draw(st.sampled_from((5, 300)))
    values = [bytes([n]) * size for n in range(30)]
    log = bytearray()
    for first in range(0, 30, 3):
        rows = [RecordData(first + n, n, None, values[first + n]) for n in range(3)]
        log += build_batch(rows, BatchFields(codec=draw(st.sampled_from((0, 0, 1, 3)))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(log) - 1))
        what = draw(st.sampled_from(("flip", "overwrite", "cut out", "insert", "cut off")))
        if what == "flip":
            log[at] ^= 1 << draw(st.integers(0, 7))
        elif what == "overwrite":
            log[at : at + 40] = draw(st.binary(min_size=1, max_size=40))
        elif what == "cut out":
            del log[at : at + draw(st.integers(1, 400))]
        elif what == "insert":
            log[at:at] = draw(st.binary(min_size=1, max_size=40))
        else:
            del log[at + 1 :]
        log = log or bytearray(1)
    return values, bytes(log)


@given(damaged_logs())
def test_whatever_happens_to_a_log_no_record_is_invented_or_lost_without_a_report(
    log: tuple[list[bytes], bytes],
) -> None:
    values, data = log
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "any-0" / f"{0:020d}.log"
        path.parent.mkdir()
        path.write_bytes(data)
        split = split_of(path, end_offset=2**63 - 1)
        rows, lost = read(split, WITH_HEADERS, ["offset", "value", "batchPosition"])
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    found = [row["value"] for row in rows]
    assert len(found) == len(set(found))
    assert set(found) <= set(values)
    # Every byte is of a batch that was read, or reported as lost, or of a tail of zeros.
    positions = {row["batchPosition"] for row in rows}
    read_bytes = [(at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")) for at in positions]
    end = 0
    for start, stop in sorted([*read_bytes, *((one.start_bytes or 0, one.end_bytes or 0) for one in lost)]):
        assert (start, start < stop) == (end, True)
        end = stop
    assert not any(data[end:])


@settings(max_examples=60)
@given(strategies.segments() | strategies.damaged(strategies.segments()) | st.binary(max_size=300), st.data())
def test_no_bytes_stop_the_reader_wherever_a_split_is_cut(data: bytes, draws: st.DataObject) -> None:
    start = draws.draw(st.integers(0, len(data)))
    end = draws.draw(st.integers(start, len(data)))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "any-0" / f"{0:020d}.log"
        path.parent.mkdir()
        path.write_bytes(data)
        _, lost = read(split_of(path, start_bytes=start, end_bytes=end, end_offset=2**63 - 1), WITH_HEADERS)
    for one in lost:
        assert start <= (one.start_bytes or 0) <= (one.end_bytes or 0)
        assert (one.first_offset or 0) <= (one.end_offset or 0)
