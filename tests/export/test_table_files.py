"""Rows find their files: Hive-style directories, names made of offsets, one file a day if wanted."""

from __future__ import annotations

import errno
import os

import pytest

from klog.export import layout, reader, table_files, writers
from klog.export.layout import NO_VALUE, PartitionBy, parse_partition_by
from klog.export.outputs import Sink
from klog.export.schema import KAFKA_COLUMNS
from klog.export.writers import Format
from klog.formats.errors import StorageError, UsageError
from klog.replicas.splits import Split
from tests import corpora
from tests.export.expected import log_rows
from tests.export.export_support import EVERYTHING, data_files, export, file_rows, in_order, table_rows, tree

TIMES = corpora.corpora("k39-times")[0].log_dir()
GZIP = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path
SPLIT = Split(7, "orders", 3, "f", 0, 0, 1, 0, 10)


def names(output) -> list[str]:
    return [path.relative_to(output).as_posix() for path in data_files(output)]


def test_files_are_named_after_the_offsets_in_them(tmp_path) -> None:
    export(GZIP, tmp_path / "out")
    place = "topic=t-gzip/partition=0"
    assert names(tmp_path / "out") == [
        f"{place}/00000000000000000000-00000000000000000139-00000.parquet",
        f"{place}/00000000000000000140-00000000000000000264-00001.parquet",
        f"{place}/00000000000000000265-00000000000000000399-00002.parquet",
        f"{place}/00000000000000000400-00000000000000000419-00003.parquet",
    ]


def test_columns_that_are_directories_are_not_in_the_files(tmp_path) -> None:
    export(GZIP, tmp_path / "out")
    rows = file_rows(data_files(tmp_path / "out")[0])
    assert list(rows[0]) == ["key", "value", "offset", "timestamp", "timestampType"]


def test_without_directories_files_have_all_columns(tmp_path) -> None:
    export(TIMES.path, tmp_path / "out", read=EVERYTHING, partition_by=())
    assert all("/" not in name for name in names(tmp_path / "out"))
    assert len(names(tmp_path / "out")) == len(set(names(tmp_path / "out")))
    assert in_order(table_rows(tmp_path / "out")) == log_rows(TIMES)


@pytest.mark.parametrize("levels", ["topic,day", "day", "topic,partition,day"])
def test_each_row_is_below_its_day(levels, tmp_path) -> None:
    export(TIMES.path, tmp_path / "out", read=EVERYTHING, partition_by=parse_partition_by(levels))
    rows = table_rows(tmp_path / "out")
    for row in rows:
        day = row.pop("day")
        assert day == _day(row["timestamp"])
    assert in_order(rows) == log_rows(TIMES)


def test_records_without_a_timestamp_are_below_the_name_that_hive_has_for_that(tmp_path) -> None:
    old = corpora.corpora("k08-codecs")[0].log_dir()
    export(old.path, tmp_path / "out", partition_by=(PartitionBy.DAY,))
    assert {name.split("/")[0] for name in names(tmp_path / "out")} == {f"day={NO_VALUE}"}
    assert len(table_rows(tmp_path / "out")) == len(log_rows(old))


def test_few_files_are_open_at_once_and_no_row_is_lost_for_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(table_files, "_OPEN_FILES", 2)
    monkeypatch.setattr(table_files, "_HELD_BYTES", 1000)
    export(TIMES.path, tmp_path / "out", read=EVERYTHING, partition_by=(PartitionBy.DAY,), verify=True)
    rows = [{name: row[name] for name in row if name != "day"} for row in table_rows(tmp_path / "out")]
    assert in_order(rows) == log_rows(TIMES)


def test_columns_that_place_a_row_are_read_but_not_written(tmp_path) -> None:
    export(GZIP, tmp_path / "out", partition_by=(PartitionBy.DAY,), columns=("value",))
    assert {tuple(row) for row in file_rows(data_files(tmp_path / "out")[0])} == {("value",)}


def test_levels_are_named_once_each() -> None:
    assert parse_partition_by("topic, day") == (PartitionBy.TOPIC, PartitionBy.DAY)
    assert parse_partition_by("none") == ()
    for wrong in ("topic,topic", "hour", "none,day"):
        with pytest.raises(UsageError, match="cannot partition by"):
            parse_partition_by(wrong)


def test_names_that_a_directory_cannot_have_are_escaped() -> None:
    odd = Split(0, "a/b=c", 0, "f", 0, 0, 1, 0, 10)
    assert layout.directory(odd, (PartitionBy.TOPIC,)) == "topic=a%2Fb%3Dc"


def test_no_file_name_begins_with_an_ignored_character(tmp_path) -> None:
    """Spark takes no file whose name begins with an underscore, as those of internal topics do."""
    groups = corpora.corpora("k39-groups")[0].log_dir()
    export(groups.path, tmp_path / "out", partition_by=())
    assert in_order(table_rows(tmp_path / "out")) == [
        {name: row[name] for name in KAFKA_COLUMNS} for row in log_rows(groups)
    ]


def test_an_export_knows_its_own_files_by_their_names() -> None:
    stem = layout.file_stem(SPLIT, 0, 9)
    assert layout.is_data(f"{stem}.parquet")
    assert layout.is_data(f"day=2020-01-01/{stem}-2.jsonl.zst")
    assert not layout.is_data("_klog/manifest.json")
    assert not layout.is_data("cat.parquet")


def _day(micros: int) -> str:
    import datetime

    if micros == -1000:
        return NO_VALUE
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=micros // 86_400_000_000)).isoformat()


def test_a_disk_that_fails_under_many_open_files_leaves_none_of_them(tmp_path, monkeypatch) -> None:
    """Encoding fails in one of the files of the days, while the others are open."""
    real, writes = Sink.write, []

    def fail_late(sink: Sink, data: object) -> int:
        writes.append(1)
        if len(writes) > 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(sink, data)

    monkeypatch.setattr(Sink, "write", fail_late)
    with pytest.raises(StorageError, match="No space left on device"):
        export(TIMES.path, tmp_path / "out", partition_by=(PartitionBy.DAY,))
    assert not list((tmp_path / "out").rglob("*.tmp"))


# A file of ORC has at least a stripe, which is more than these rows.
@pytest.mark.parametrize("wanted", [Format.PARQUET, Format.JSONL])
def test_a_file_of_the_target_size_is_followed_by_another(tmp_path, wanted, monkeypatch) -> None:
    monkeypatch.setattr(writers, "_LEAST_GROUP_BYTES", 1)
    monkeypatch.setattr(reader, "BATCH_BYTES", 2_000)
    monkeypatch.setattr(reader, "_MEASURED_BYTES", 500)
    whole, divided = tmp_path / "whole", tmp_path / "divided"
    how = {"format": wanted, "compression": "none"}
    export(GZIP, whole, **how)
    report = export(GZIP, divided, **how, target_file_bytes=2_000, verify=True)
    assert report.clean
    assert report.files > 2 * len(names(whole))
    assert table_rows(divided) == table_rows(whole)
    sizes = [path.stat().st_size for path in data_files(divided)]
    assert sum(size >= 2_000 for size in sizes) >= len(sizes) - len(names(whole))
    again = tmp_path / "again"
    export(GZIP, again, **how, target_file_bytes=2_000)
    assert tree(again).keys() == tree(divided).keys()
    with pytest.raises(UsageError, match="targetFileBytes"):
        export(GZIP, again, **how, target_file_bytes=3_000, resume=True)
