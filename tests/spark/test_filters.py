"""Filters that a query pushes down: what they leave to read is what they leave of the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql.datasource", reason="needs pyspark")

from pyspark.sql import datasource as spark_filters

from klog.export.options import ReadOptions
from klog.spark.filters import Bounds, PushedFilters, push
from tests import corpora
from tests.export.expected import log_rows
from tests.export.reading import rows_of, split_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEGMENT = corpora.corpora("k39-txn")[0].log_dir().partition("t-txn-0").files(".log")[0]

COMPARISONS = {
    "EqualTo": lambda actual, value: actual == value,
    "EqualNullSafe": lambda actual, value: actual == value,
    "GreaterThan": lambda actual, value: actual > value,
    "GreaterThanOrEqual": lambda actual, value: actual >= value,
    "LessThan": lambda actual, value: actual < value,
    "LessThanOrEqual": lambda actual, value: actual <= value,
}


def filter_of(kind: str, column: str, value: Any) -> spark_filters.Filter:
    made: spark_filters.Filter = getattr(spark_filters, kind)((column,), value)
    return made


def holds(bounds: Bounds, number: int) -> bool:
    return (bounds.first is None or bounds.first <= number) and (bounds.end is None or number < bounds.end)


@given(st.sampled_from(sorted(COMPARISONS)), st.integers(0, 20), st.integers(0, 20))
def test_bounds_of_offsets_are_exact(kind: str, value: int, offset: int) -> None:
    pushed, rest = push([filter_of(kind, "offset", value)])
    assert rest == []
    assert holds(pushed.offset, offset) == COMPARISONS[kind](offset, value)


@given(st.sampled_from(sorted(COMPARISONS)), st.integers(-3_000, 9_000), st.integers(-3, 9))
def test_bounds_of_time_in_ms_are_exact_for_a_value_in_microseconds(
    kind: str, value_us: int, record_ms: int
) -> None:
    pushed, rest = push([filter_of(kind, "timestamp", EPOCH + timedelta(microseconds=value_us))])
    assert rest == []
    assert holds(pushed.timestamp_ms, record_ms) == COMPARISONS[kind](record_ms * 1000, value_us)


@given(st.sampled_from(sorted(COMPARISONS)), st.integers(0, 3), st.booleans())
def test_a_filter_on_the_partition_keeps_or_drops_whole_splits(kind: str, value: int, negated: bool) -> None:
    wanted = filter_of(kind, "partition", value)
    pushed, rest = push([spark_filters.Not(wanted) if negated else wanted])
    assert rest == []
    assert bool(pushed.splits([split_of(SEGMENT)])) == (COMPARISONS[kind](0, value) != negated)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (spark_filters.In(("topic",), ("t-lat", "t-txn")), True),
        (spark_filters.In(("topic",), ("t-lat",)), False),
        (spark_filters.StringStartsWith(("topic",), "t-"), True),
        (spark_filters.StringEndsWith(("topic",), "lat"), False),
        (spark_filters.StringContains(("topic",), "-tx"), True),
        (spark_filters.IsNull(("topic",)), False),
        (spark_filters.Not(spark_filters.EqualTo(("topic",), "t-txn")), False),
    ],
    ids=str,
)
def test_a_filter_on_the_topic_keeps_or_drops_whole_splits(wanted: spark_filters.Filter, kept: bool) -> None:
    pushed, rest = push([wanted])
    assert rest == []
    assert bool(pushed.splits([split_of(SEGMENT)])) == kept


@pytest.mark.parametrize(
    "foreign",
    [
        spark_filters.EqualTo(("value",), b"x"),
        spark_filters.EqualTo(("topic",), None),
        spark_filters.EqualTo(("partition",), True),
        spark_filters.EqualTo(("headers", "key"), "x"),
        spark_filters.Not(spark_filters.EqualTo(("offset",), 3)),
        spark_filters.Not(spark_filters.GreaterThan(("timestamp",), EPOCH)),
        spark_filters.EqualTo(("timestamp",), datetime(2020, 1, 1)),
        spark_filters.In(("timestamp",), (EPOCH,)),
    ],
    ids=str,
)
def test_what_cannot_be_answered_stays_with_spark(foreign: spark_filters.Filter) -> None:
    assert push([foreign]) == (PushedFilters(), [foreign])


def test_a_list_of_offsets_bounds_what_is_read_and_stays_with_spark() -> None:
    wanted = spark_filters.In(("offset",), (7, 3))
    assert push([wanted]) == (PushedFilters(offset=Bounds(3, 8)), [wanted])


def test_bounds_of_several_filters_and_of_the_options_meet() -> None:
    at = [EPOCH + timedelta(milliseconds=ms) for ms in (10, 90)]
    pushed, _ = push(
        [
            spark_filters.GreaterThan(("offset",), 3),
            spark_filters.GreaterThanOrEqual(("offset",), 7),
            spark_filters.GreaterThanOrEqual(("timestamp",), at[0]),
            spark_filters.LessThan(("timestamp",), at[1]),
        ]
    )
    options = pushed.options(ReadOptions((), since_ms=20))
    assert (options.since_ms, options.until_ms) == (20, 90)
    [split] = pushed.splits([split_of(SEGMENT, first_offset=5, end_offset=9)])
    assert (split.first_offset, split.end_offset) == (7, 9)


QUERIES = {
    "topic = 't-txn' AND partition = 0": lambda row: (row["topic"], row["partition"]) == ("t-txn", 0),
    "offset >= 3 AND offset < 5": lambda row: 3 <= row["offset"] < 5,
    "offset IN (2, 9)": lambda row: row["offset"] in (2, 9),
    "partition <> 0 OR offset = 1": lambda row: row["partition"] != 0 or row["offset"] == 1,
    "topic LIKE 't-%' AND topic <> 't-txn'": lambda row: row["topic"][:2] == "t-" and row["topic"] != "t-txn",
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_same_rows_with_and_without_pushdown(spark: SparkSession, query: str) -> None:
    log_dir = corpora.corpora("k39-txn")[0].log_dir()
    wanted = [(row["topic"], row["offset"]) for row in log_rows(log_dir) if QUERIES[query](row)]
    frames = {}
    for pushed in (True, False):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        frame = spark.read.format("klog").option("pushFilters", pushed).load(str(log_dir.path)).where(query)
        found = rows_of(frame.select("topic", "offset").toArrow().to_batches())
        assert [(row["topic"], row["offset"]) for row in found] == wanted
        frames[pushed] = frame
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert wanted
    assert frames[True].rdd.getNumPartitions() <= frames[False].rdd.getNumPartitions()


def test_records_between_two_instants_come_from_the_scan(spark: SparkSession) -> None:
    log_dir = corpora.corpora("k39-times")[0].log_dir()
    every = sorted({row["timestamp"] for row in log_rows(log_dir) if row["timestamp"] >= 0})
    low, high = (every[len(every) * share // 4] for share in (1, 3))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    frame = spark.read.format("klog").option("pushFilters", True).load(str(log_dir.path))
    frame = frame.where(f"timestamp >= timestamp_micros({low}) AND timestamp < timestamp_micros({high})")
    wanted = [row["offset"] for row in log_rows(log_dir) if low <= row["timestamp"] < high]
    assert sorted(row.offset for row in frame.select("offset").collect()) == sorted(wanted)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert wanted
    assert "BatchScan" in plan
    assert "Filter (" not in plan


def test_the_option_without_sparks_setting_is_an_error_that_names_the_setting(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    path = str(corpora.corpora("k39-txn")[0].log_dir().path)
    with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        spark.read.format("klog").option("pushFilters", True).load(path).count()
