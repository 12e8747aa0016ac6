"""`spark.read.format("klog")`: the rows that Kafka says are there, whichever way Spark is asked for them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klog.export.schema import METADATA_COLUMNS
from tests import corpora
from tests.export.expected import before_damage, log_rows
from tests.export.reading import rows_of

pytest.importorskip("pyspark")

from klog.spark.source import KlogDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

TRANSACTIONS = corpora.corpora("k39-txn")[0].log_dir()
EPOCHS = corpora.corpora("k39-epochs")[0].log_dirs()[0]


def klog(spark: SparkSession, **options: Any) -> DataFrameReader:
    return spark.read.format("klog").options(**options)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return rows_of(frame.toArrow().to_batches())


def pick(found: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in columns} for row in found]


@pytest.mark.parametrize("log_dir", corpora.log_dirs(), ids=str)
def test_every_log_directory_gives_the_rows_that_kafka_says_in_their_order(
    spark: SparkSession, log_dir: corpora.LogDirectory
) -> None:
    reader = klog(spark, includeHeaders=True, metadataColumns=",".join(METADATA_COLUMNS))
    found, expected = rows(reader.load(str(log_dir.path))), log_rows(log_dir)
    assert before_damage(log_dir, found) == before_damage(log_dir, expected)
    if not log_dir.corpus.is_corrupt:
        assert found == expected


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession) -> None:
    plain = klog(spark).load(str(TRANSACTIONS.path)).schema.simpleString()
    assert plain == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_headers = klog(spark, includeHeaders=True).load(str(TRANSACTIONS.path)).schema
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_a_schema_with_fewer_columns_prunes_the_others(spark: SparkSession) -> None:
    reader = klog(spark).schema(
        "offset BIGINT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING"
    )
    frame = reader.load(str(TRANSACTIONS.path))
    assert frame.columns == ["offset", "headers", "topic"]
    assert rows(frame) == pick(log_rows(TRANSACTIONS), "offset", "headers", "topic")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [("ofset BIGINT", "ofset, which klog does not have"), ("offset INT", "column offset is int32")],
)
def test_a_schema_that_klog_cannot_give_is_refused(spark: SparkSession, schema: str, complaint: str) -> None:
    assert complaint in failure(klog(spark).schema(schema).load(str(TRANSACTIONS.path)))


def failure(frame: DataFrame) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        frame.count()
    return str(caught.value)


def test_an_option_that_is_not_known_is_refused_and_the_nearest_named(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="startingOffsets"):
        klog(spark, startingOfsets="earliest").load(str(TRANSACTIONS.path))


def test_a_path_without_segments_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    assert "no partition is found" in failure(klog(spark).load(str(tmp_path)))


def test_several_paths_are_one_table(spark: SparkSession) -> None:
    paths = [str(TRANSACTIONS.partition("t-txn-0").path), str(EPOCHS.path)]
    found = rows(klog(spark).load(paths))
    wanted = [row for row in log_rows(TRANSACTIONS) if (row["topic"], row["partition"]) == ("t-txn", 0)]
    names = ("topic", "partition", "offset", "value")
    assert pick(found, *names) == pick(
        sorted([*wanted, *log_rows(EPOCHS)], key=lambda row: (row["topic"], row["partition"], row["offset"])),
        *names,
    )


def test_a_view_in_sql_takes_options_and_columns(spark: SparkSession) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW log (topic STRING, offset BIGINT) USING klog "
        f"OPTIONS (path '{TRANSACTIONS.path}', subscribe 't-txn')"
    )
    [row] = spark.sql("SELECT count(*) AS n, min(offset) AS first, max(topic) AS topic FROM log").collect()
    wanted = [row["offset"] for row in log_rows(TRANSACTIONS) if row["topic"] == "t-txn"]
    assert (row.n, row.first, row.topic) == (len(wanted), min(wanted), "t-txn")


def test_offsets_and_isolation_have_the_names_of_sparks_kafka_source(spark: SparkSession) -> None:
    reader = klog(
        spark,
        subscribe="t-txn",
        startingOffsets='{"t-txn": {"0": 3}}',
        endingOffsets='{"t-txn": {"0": -1}}',
        **{"kafka.isolation.level": "read_committed"},
    )
    consumed = TRANSACTIONS.partition("t-txn-0").expected_consumer("read_committed")
    assert consumed
    found = [row for row in rows(reader.load(str(TRANSACTIONS.path))) if row["partition"] == 0]
    wanted = [line["offset"] for line in consumed if "offset" in line and line["offset"] >= 3]
    assert [row["offset"] for row in found] == wanted


def test_many_small_splits_share_tasks_and_min_partitions_asks_for_more(spark: SparkSession) -> None:
    few = klog(spark).load(str(EPOCHS.path)).rdd.getNumPartitions()
    more = klog(spark, minPartitions=few + 2, targetSplitBytes="4k").load(str(EPOCHS.path))
    assert few < len(EPOCHS.partitions())
    assert more.rdd.getNumPartitions() >= few + 2
    assert pick(rows(more), "offset", "value") == pick(log_rows(EPOCHS), "offset", "value")


def test_a_damaged_batch_is_left_out_or_an_error_with_fail_on_data_loss(spark: SparkSession) -> None:
    log_dir = corpora.corpora("corrupt-k39")[0].log_dir()
    path = str(log_dir.partition("c-b.flip-first-0").path)
    wanted = [row for row in log_rows(log_dir) if row["topic"] == "c-b.flip-first"]
    assert pick(rows(klog(spark).load(path)), "offset", "value") == pick(wanted, "offset", "value")
    assert "checksum" in failure(klog(spark, failOnDataLoss=True).load(path))


def test_a_shipped_klog_is_registered_by_hand(spark: SparkSession) -> None:
    from klog.spark.source import register

    register(spark)
    assert klog(spark).load(str(TRANSACTIONS.path)).count() == len(log_rows(TRANSACTIONS))


def test_the_package_in_which_spark_looks_for_the_source_is_installed_with_klog() -> None:
    project = tomllib.loads((corpora.REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert "pyspark_klog" in project["tool"]["setuptools"]["packages"]["find"]["include"]


def test_a_task_of_the_source_on_the_pure_python_kernel_logs_it_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from klog.export.options import ReadOptions
    from klog.spark import rows

    monkeypatch.setattr(rows, "slowness", lambda: "it is slow")
    schema = spark.read.format("klog").load(str(TRANSACTIONS.path)).schema
    source = rows.RowSource.of(ReadOptions((str(TRANSACTIONS.path),)), schema)
    groups = list(rows.planned_tasks(source))
    assert list(source.rows(groups[0]))
    assert caplog.messages == ["it is slow"]


def test_options_of_the_kafka_source_that_have_no_meaning_are_ignored_with_one_warning(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(corpora.corpora("k39-txn")[0].log_dir().path)
    options = {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.group.id": "g",
        "groupIdPrefix": "p",
        "subscribe": "t-txn",
    }
    frame = spark.read.format("klog").option("subscribe", "t-txn").load(path)
    assert spark.read.format("klog").options(**options).load(path).count() == frame.count() > 0
    source = KlogDataSource({**options, "path": path})
    source.schema()
    source.reader(frame.schema)
    assert [record.getMessage() for record in caplog.records] == [
        f"options without meaning for segments are ignored: {names} (no broker is asked)"
        for names in ("groupIdPrefix, kafka.bootstrap.servers, kafka.group.id",)
    ]


def test_the_driver_is_told_that_a_query_runs_on_the_pure_python_kernel(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from klog.spark import source

    monkeypatch.setattr(source, "slowness", lambda: "it is slow")
    schema = spark.read.format("klog").load(str(TRANSACTIONS.path)).schema
    KlogDataSource({"path": str(TRANSACTIONS.path)}).reader(schema)
    assert caplog.messages == ["it is slow"]
