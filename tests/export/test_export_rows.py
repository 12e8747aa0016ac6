"""An export holds the rows that Kafka says are in a log: for every corpus, in every format and layout."""

from __future__ import annotations

import datetime

import pytest

from klog.export.options import Isolation
from klog.export.writers import Format
from tests import corpora
from tests.export.expected import before_damage, log_rows
from tests.export.export_support import EVERYTHING, data_files, export, in_order, table_rows

LOG_DIRS = [log_dir for log_dir in corpora.log_dirs() if log_dir.partitions()]
CODECS = corpora.corpora("k39-codecs")[0].log_dir()


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=str)
def test_the_rows_of_a_log_directory_are_those_that_kafka_says_are_in_it(log_dir, tmp_path) -> None:
    report = export(log_dir.path, tmp_path / "out", read=EVERYTHING, verify=True)
    assert report.findings == ()
    rows = in_order(table_rows(tmp_path / "out"))
    assert before_damage(log_dir, rows) == before_damage(log_dir, log_rows(log_dir))
    assert report.rows == len(rows)


@pytest.mark.parametrize(
    ("wanted", "compression"), [(Format.ORC, "zstd"), (Format.ORC, "none"), (Format.PARQUET, "none")]
)
def test_every_table_format_holds_the_same_rows(wanted, compression, tmp_path) -> None:
    edge = corpora.corpora("k39-edge")[0].log_dir()
    export(edge.path, tmp_path / "out", read=EVERYTHING, format=wanted, compression=compression)
    assert {path.suffix for path in data_files(tmp_path / "out")} == {f".{wanted}"}
    assert in_order(table_rows(tmp_path / "out")) == log_rows(edge)


@pytest.mark.parametrize(
    ("compression", "suffix"), [("zstd", ".jsonl.zst"), ("gzip", ".jsonl.gz"), ("none", ".jsonl")]
)
def test_json_lines_hold_the_same_rows_with_times_as_text(compression, suffix, tmp_path) -> None:
    edge = corpora.corpora("k39-edge")[0].log_dir()
    export(edge.path, tmp_path / "out", read=EVERYTHING, format=Format.JSONL, compression=compression)
    assert all(path.name.endswith(suffix) for path in data_files(tmp_path / "out"))
    expected = log_rows(edge)
    for row in expected:
        row["timestamp"] = _iso(row["timestamp"])
    assert in_order(table_rows(tmp_path / "out")) == expected


def _iso(micros: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    return moment.isoformat(timespec="microseconds") + "Z"


CONSUMED = [
    (log_dir, isolation)
    for log_dir in LOG_DIRS
    for isolation in Isolation
    if any(one.expected_consumer(isolation) for one in log_dir.partitions())
]


@pytest.mark.parametrize(("log_dir", "isolation"), CONSUMED, ids=str)
def test_the_records_are_those_that_a_consumer_got_of_the_running_broker(
    log_dir, isolation, tmp_path
) -> None:
    export(log_dir.path, tmp_path / "out", read={"isolation": isolation})
    found: dict[str, list[int]] = {}
    for row in in_order(table_rows(tmp_path / "out")):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    compared = 0
    for partition in log_dir.partitions():
        lines = partition.expected_consumer(isolation)
        if lines is not None:
            wanted = [line["offset"] for line in lines if "offset" in line]
            assert found.get(partition.name, []) == wanted, partition.name
            compared += 1
    assert compared
