"""Filters that are pushed down leave the rows that Spark itself leaves, on edge values of every column."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql.datasource", reason="needs pyspark")

from pyspark.sql import datasource as kinds

from klog.export.options import ReadOptions
from klog.export.schema import spark_schema_ddl
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from tests.export.logs import write_segment
from tests.export.reading import rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
FARTHEST_MS = INT64_MAX // 1000
"""The greatest timestamp in ms that fits microseconds in 64 bits; a later one is null in the table."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_MS = (-1, 0, 1, 1_500, -1_500, 2**62, -(2**62), FARTHEST_MS, FARTHEST_MS + 1, -FARTHEST_MS, INT64_MAX)
BYTES = (None, b"", b"\0", b"NaN", b"\xff" * 3, b"a", b"A", b"-0.0")


@dataclass(frozen=True)
class Wanted:
    """A filter as Spark hands it to a source, and the same as Spark's own expression."""

    pushed: kinds.Filter
    expression: Column


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions with edge values of every column."""
    root = tmp_path_factory.mktemp("edges")
    times, contents = list(TIMES_MS), list(BYTES)
    records = [
        RecordData(n, time, contents[n % len(contents)], contents[-n % len(contents)])
        for n, time in enumerate(times)
    ]
    every = [bytes(build_batch([record])) for record in records]
    write_segment(root / "a-0", every)
    write_segment(root / "a-1", [bytes(build_batch(records[:4])), bytes(build_batch(records[4:]))])
    append = BatchFields(log_append_time_ms=1_500)
    write_segment(root / f"A.b_-{INT32_MAX}", [bytes(build_batch(records, append))])
    last = [RecordData(INT64_MAX - n, 7, None, b"") for n in (9, 1)]
    write_segment(root / "z-3", [bytes(build_batch(last))], base=INT64_MAX - 9)
    body = b"\0\0" + struct.pack(">ii", -1, 1) + b"v"  # magic 0: no timestamp
    old = root / "old-0"
    old.mkdir()
    (old / "00000000000000000000.log").write_bytes(struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body)
    return root


VALUES: dict[str, Sequence[Any]] = {
    "topic": ("", "a", "A", "A.b_", "b", "z", "old", "é", "\U0001f600", "NaN"),
    "partition": (-1, 0, 1, 3, INT32_MAX, -INT32_MAX - 1),
    "offset": (0, 1, 4, 5, 10, -1, INT64_MAX, INT64_MAX - 1, INT64_MAX - 9, -INT64_MAX - 1),
    "timestamp": (
        *(EPOCH + timedelta(milliseconds=ms) for ms in (-1_500, -1, 0, 1, 1_499, 1_500, 1_501)),
        *(EPOCH + timedelta(microseconds=us) for us in (-1_001, -999, -1, 1, 999, 1_001, 1_500_001)),
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    "timestampType": (-1, 0, 1, 2),
    "key": BYTES[1:],
    "value": BYTES[1:],
}
COMPARISONS = {
    "EqualTo": lambda column, value: column == value,
    "EqualNullSafe": lambda column, value: column.eqNullSafe(value),
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
}
OF_TEXT = {
    "StringStartsWith": lambda column, value: column.startswith(value),
    "StringEndsWith": lambda column, value: column.endswith(value),
    "StringContains": lambda column, value: column.contains(value),
}


def every_filter() -> Iterator[Wanted]:
    """Each kind of filter that Spark has, on each column and each value, as it is and negated."""
    for column, values in VALUES.items():
        for wanted in _of_column(column, values):
            yield wanted
            yield Wanted(kinds.Not(wanted.pushed), ~wanted.expression)


def _of_column(name: str, values: Sequence[Any]) -> Iterator[Wanted]:
    from pyspark.sql import functions as F  # noqa: N812 (as everybody does)

    path, column = (name,), F.col(name)
    yield Wanted(kinds.IsNull(path), column.isNull())
    yield Wanted(kinds.IsNotNull(path), column.isNotNull())
    for kind, compare in {**COMPARISONS, **(OF_TEXT if name == "topic" else {})}.items():
        for value in values:
            yield Wanted(getattr(kinds, kind)(path, value), compare(column, F.lit(value)))
    null = F.lit(None).cast("string" if name == "topic" else "binary" if name in {"key", "value"} else "long")
    if name != "timestamp":
        yield Wanted(kinds.EqualTo(path, None), column == null)
        yield Wanted(kinds.EqualNullSafe(path, None), column.eqNullSafe(null))
    for some in (values[:1], values[::2], values):
        yield Wanted(kinds.In(path, tuple(some)), column.isin(*map(F.lit, some)))


@dataclass(frozen=True)
class Answers:
    """Each filter with the rows for which Spark says true; rows are (topic, partition, offset)."""

    of_filter: tuple[tuple[kinds.Filter, frozenset[tuple[str, int, int]]], ...]
    all_rows: frozenset[tuple[str, int, int]]


@pytest.fixture(scope="module")
def answers(spark: SparkSession, logs: Path) -> Answers:
    """What Spark answers, from one query over the rows without any pushed filter."""
    from pyspark.sql import functions as F  # noqa: N812

    wanted = list(every_filter())
    frame = spark.read.format("klog").load(str(logs))
    columns = [F.coalesce(one.expression, F.lit(False)).alias(f"f{n}") for n, one in enumerate(wanted)]
    names = ("topic", "partition", "offset")
    table = frame.select(*names, F.array(*columns).alias("holds")).collect()
    places = [tuple(row[name] for name in names) for row in table]
    sets = [
        frozenset(place for place, row in zip(places, table, strict=True) if row["holds"][n])
        for n in range(len(wanted))
    ]
    return Answers(
        tuple((one.pushed, found) for one, found in zip(wanted, sets, strict=True)), frozenset(places)
    )


def read_pushed(logs: Path, filters: Sequence[kinds.Filter]) -> tuple[set[tuple[str, int, int]], list[Any]]:
    """The rows that a reader gives to which these filters were pushed, and those that it leaves to Spark."""
    from pyspark.sql.types import StructType

    from klog.spark.filters import FilteringReader

    options = ReadOptions((str(logs),))
    reader = FilteringReader(options, StructType.fromDDL(spark_schema_ddl(options)))
    rest = list(reader.pushFilters(list(filters)))
    rows = [row for task in reader.partitions() for row in rows_of(reader.read(task))]
    places = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert len(places) == len(set(places))
    return set(places), rest


def test_every_pushed_filter_leaves_the_rows_that_spark_leaves(answers: Answers, logs: Path) -> None:
    pushed = 0
    for each, wanted in answers.of_filter:
        found, rest = read_pushed(logs, [each])
        assert found >= wanted, each
        if not rest:
            pushed += 1
            assert found == wanted, each
    assert len(answers.all_rows) == 3 * len(TIMES_MS) + 3
    assert pushed > 200


@settings(max_examples=150)
@given(data=st.data())
def test_filters_together_leave_the_rows_for_which_all_hold(
    answers: Answers, logs: Path, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(answers.of_filter), min_size=2, max_size=4))
    found, rest = read_pushed(logs, [each for each, _ in chosen])
    wanted = answers.all_rows.intersection(*(rows for _, rows in chosen))
    assert found >= wanted
    applied = [rows for each, rows in chosen if each not in rest]
    assert found <= answers.all_rows.intersection(*applied)


@pytest.mark.parametrize(
    "query",
    [
        "timestamp IS NOT NULL",
        "timestamp IS NULL",
        "timestamp >= timestamp_millis(0)",
        "timestamp < timestamp_micros(-999)",
        "NOT timestamp <= timestamp_millis(1500)",
        "timestamp <=> timestamp_millis(1)",
        "key = X'' AND value IS NOT NULL",
        "key IS NULL OR timestamp IS NULL",
        f"offset > {INT64_MAX - 9}",
        f"offset <= {INT64_MAX} AND partition = {INT32_MAX}",
        "timestampType = -1 OR timestampType = 1",
        "topic >= 'a' AND topic < 'z' AND offset NOT IN (0, 1)",
    ],
)
def test_a_query_on_edges_gives_the_same_rows_with_and_without_pushdown(
    spark: SparkSession, logs: Path, query: str
) -> None:
    found = {}
    for pushed in (True, False):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        frame = spark.read.format("klog").option("pushFilters", pushed).load(str(logs)).where(query)
        found[pushed] = sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found[True] == found[False]
    assert found[True]


def test_the_log_names_the_filters_that_klog_applies(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "klog.spark"):
        read_pushed(logs, [kinds.EqualTo(("topic",), "a"), kinds.Not(kinds.EqualTo(("offset",), 3))])
    assert [record.getMessage() for record in caplog.records] == [
        "filters that klog applies: EqualTo(topic, 'a'); that Spark applies: Not(EqualTo(offset, 3))"
    ]


def test_in_a_worker_of_spark_that_log_line_reaches_stderr(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    read_pushed(logs, [kinds.IsNotNull(("topic",))])
    assert "klog: filters that klog applies: IsNotNull(topic); that Spark applies: none" in (
        capsys.readouterr().err
    )
