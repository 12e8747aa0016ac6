"""The stream's reader by itself, as Spark calls it: logs that are cut, gone, damaged, or new."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from klog.export.options_parsing import read_options
from klog.formats.errors import KlogError, StorageError, UsageError
from klog.spark.stream import KlogStreamReader
from tests import corpora

SCHEMA = StructType([StructField("offset", LongType())])
SOURCE = corpora.corpora("k39-codecs")[0].log_dir().partition("t-none-0")
[LOG, *_] = SOURCE.files(".log")
ENDS = [
    (line["position"] + line["size"], line["lastOffset"] + 1)
    for line in SOURCE.expected_batches()
    if line["file"] == LOG.name and "position" in line
]
EVERYTHING = ReadAllAvailable()


def place(root: Path, batches: int, topic: str = "cut", damaged: bool = False) -> None:
    """A partition of the first so many batches; the last but one damaged on request."""
    data = bytearray(LOG.read_bytes()[: ENDS[batches - 1][0]])
    if damaged:
        data[ENDS[batches - 2][0] - 1] ^= 1
    (root / f"{topic}-0").mkdir(parents=True, exist_ok=True)
    (root / f"{topic}-0" / LOG.name).write_bytes(data)


def reader(root: Path, **options: Any) -> KlogStreamReader:
    return KlogStreamReader(read_options({"path": str(root), **options}), SCHEMA)


def offsets(of: KlogStreamReader, start: dict, end: dict) -> list[int]:
    return [
        offset
        for task in of.partitions(start, end)
        for batch in of.read(task)
        for offset in batch.column("offset").to_pylist()
    ]


def test_a_truncated_log_is_a_loss_and_is_read_from_its_new_end(tmp_path: Path) -> None:
    place(tmp_path, 2)
    before = {"cut": {"0": ENDS[2][1]}}
    with pytest.raises(StorageError, match="was truncated to offset"):
        reader(tmp_path, failOnDataLoss="true").latestOffset(before, EVERYTHING)
    stream = reader(tmp_path)
    end = stream.latestOffset(before, EVERYTHING)
    assert end == {"cut": {"0": ENDS[1][1]}}
    assert offsets(stream, before, end) == []
    place(tmp_path, 4)
    later = stream.latestOffset(end, EVERYTHING)
    assert offsets(stream, end, later) == list(range(ENDS[1][1], ENDS[3][1]))


def test_a_missing_partition_is_a_loss_and_is_read_when_it_is_back(tmp_path: Path) -> None:
    place(tmp_path, 2)
    place(tmp_path, 2, "other")
    start = {"cut": {"0": ENDS[1][1]}, "other": {"0": ENDS[1][1]}}
    shutil.rmtree(tmp_path / "cut-0")
    with pytest.raises(StorageError, match="cut-0 does not exist any more"):
        reader(tmp_path, failOnDataLoss="true").latestOffset(start, EVERYTHING)
    stream = reader(tmp_path)
    assert stream.latestOffset(start, EVERYTHING) == start
    place(tmp_path, 3)
    end = stream.latestOffset(start, EVERYTHING)
    assert offsets(stream, start, end) == list(range(ENDS[1][1], ENDS[2][1]))


def test_a_batch_planned_again_after_a_restart_gives_the_same_records(tmp_path: Path) -> None:
    place(tmp_path, 3)
    start, end = {"cut": {"0": 0}}, {"cut": {"0": ENDS[1][1] - 1}}
    first = offsets(reader(tmp_path), start, end)
    place(tmp_path, 4)
    assert offsets(reader(tmp_path), start, end) == first == list(range(ENDS[1][1] - 1))


def test_a_batch_planned_again_reports_what_was_deleted_since(tmp_path: Path) -> None:
    place(tmp_path, 2, "other")
    with pytest.raises(StorageError, match="cut-0 does not exist any more"):
        reader(tmp_path, failOnDataLoss="true").partitions({"cut": {"0": 0}}, {"cut": {"0": 9}})


def test_available_now_ends_at_what_was_there_when_it_began(tmp_path: Path) -> None:
    place(tmp_path, 2)
    stream = reader(tmp_path)
    start = {"cut": {"0": 0}}
    stream.prepareForTriggerAvailableNow()
    place(tmp_path, 3)
    place(tmp_path, 2, "new")
    end = stream.latestOffset(start, EVERYTHING)
    assert end == {"cut": {"0": ENDS[1][1]}}
    assert stream.latestOffset(end, EVERYTHING) == end
    assert stream.reportLatestOffset() == {"cut": {"0": ENDS[2][1]}, "new": {"0": ENDS[1][1]}}


def test_a_limit_may_end_a_batch_inside_a_batch_of_the_log(tmp_path: Path) -> None:
    place(tmp_path, 2)
    stream = reader(tmp_path)
    start = {"cut": {"0": 0}}
    end = stream.latestOffset(start, ReadMaxRows(3))
    assert offsets(stream, start, end) == [0, 1, 2]
    further = stream.latestOffset(end, ReadMaxRows(3))
    assert offsets(stream, end, further) == [3, 4, 5]


def test_a_damaged_batch_inside_the_log_is_skipped_or_an_error(tmp_path: Path) -> None:
    place(tmp_path, 3, damaged=True)
    start = {"cut": {"0": 0}}
    stream = reader(tmp_path)
    end = stream.latestOffset(start, EVERYTHING)
    assert offsets(stream, start, end) == [
        *range(ENDS[0][1]),
        *range(ENDS[1][1], ENDS[2][1]),
    ]
    strict = reader(tmp_path, failOnDataLoss="true")
    with pytest.raises(KlogError, match="checksum"):
        offsets(strict, start, strict.latestOffset(start, EVERYTHING))


def test_a_stream_has_no_end(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no end"):
        reader(tmp_path, endingOffsets="latest", endingTimestamp="5")


@pytest.mark.parametrize("preallocated", [False, True], ids=["grown", "preallocated"])
def test_an_incomplete_batch_is_read_when_it_is_complete(tmp_path: Path, preallocated: bool) -> None:
    data = LOG.read_bytes()[: ENDS[1][0]]
    log = tmp_path / "cut-0" / LOG.name
    log.parent.mkdir()
    stream, strict = reader(tmp_path), reader(tmp_path, failOnDataLoss="true")
    second_bytes = ENDS[1][0] - ENDS[0][0]
    at = {"cut": {"0": 0}}
    for there_bytes, expected in (
        (7, []),
        (ENDS[0][0] // 2, []),
        (ENDS[0][0], list(range(ENDS[0][1]))),
        (ENDS[0][0] + 40, []),
        (ENDS[0][0] + second_bytes // 2, []),
        (ENDS[1][0], list(range(ENDS[0][1], ENDS[1][1]))),
    ):
        zeros = bytes(len(data) - there_bytes + 1000) if preallocated else b""
        log.write_bytes(data[:there_bytes] + zeros)
        end = stream.latestOffset(at, EVERYTHING)
        assert strict.latestOffset(at, EVERYTHING) == end
        assert offsets(stream, at, end) == expected
        at = end
