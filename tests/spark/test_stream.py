"""`spark.readStream.format("klog")`: every record once, none half written, nothing lost in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog.testing
from klog.testing import BrokerProcess
from tests import corpora
from tests.export.expected import log_rows

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with klog.testing.broker(
        {"log.segment.bytes": "100000", "auto.create.topics.enable": "false"}
    ) as running:
        yield running


def produce(broker: BrokerProcess, topic: str, values: list[bytes], partition: int = 0) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    for value in values:
        producer.send(topic, value=value, partition=partition)
    producer.flush()
    producer.close()


class Stream:
    """A query that keeps what it got, batch by batch; started again it goes on from its checkpoint."""

    def __init__(self, spark: SparkSession, path: Path | str, checkpoint: Path, **options: Any) -> None:
        self.batches: list[list[tuple[str, int, int, bytes]]] = []
        self.checkpoint = checkpoint
        self._frame = spark.readStream.format("klog").options(**options).load(str(path))

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self._frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(self._keep).trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def _keep(self, frame: DataFrame, _number: int) -> None:
        columns = frame.select("topic", "partition", "offset", "value")
        self.batches.append([tuple(row) for row in columns.collect()])

    def take_all(self) -> list[tuple[str, int, int, bytes]]:
        """Everything there is now (`availableNow`), since the last time."""
        self.batches.clear()
        query = self.start(availableNow=True)
        assert query.awaitTermination(TIMEOUT_S)
        return [row for batch in self.batches for row in batch]

    def offsets(self) -> dict[str, dict[str, int]]:
        """The newest offsets of the checkpoint."""
        newest = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        told: dict[str, dict[str, int]] = json.loads(newest.read_text().splitlines()[-1])
        return told


def test_a_live_brokers_directory_is_followed_while_it_grows_rolls_and_gets_partitions(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    broker.create_topic("growing", partitions=1)
    stream = Stream(
        spark, broker.log_dirs[0], tmp_path / "cp", subscribePattern="growing.*", startingOffsets="earliest"
    )
    produced: list[tuple[str, int, int, bytes]] = []
    query = stream.start()
    try:
        for turn in range(4):
            values = [b"%d-%d" % (turn, number) + b"x" * 900 for number in range(100)]
            produce(broker, "growing", values)
            produced += [("growing", 0, turn * 100 + number, value) for number, value in enumerate(values)]
            query.processAllAvailable()
            assert [row for batch in stream.batches for row in batch] == produced
        broker.create_topic("growing-more", partitions=1)
        produce(broker, "growing-more", [b"first"])
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(list(broker.partition_dir("growing").glob("*.log"))) > 2
    assert stream.batches[-1] == [("growing-more", 0, 0, b"first")]
    assert stream.offsets() == {"growing": {"0": 400}, "growing-more": {"0": 1}}


def test_a_restarted_stream_continues_where_it_stopped(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    broker.create_topic("restarted", partitions=2)
    options = {"subscribe": "restarted", "startingOffsets": "earliest"}
    stream = Stream(spark, broker.log_dirs[0], tmp_path / "cp", **options)
    produce(broker, "restarted", [b"a", b"b"])
    assert stream.take_all() == [("restarted", 0, 0, b"a"), ("restarted", 0, 1, b"b")]
    assert stream.take_all() == []
    produce(broker, "restarted", [b"c"])
    produce(broker, "restarted", [b"d"], partition=1)
    again = Stream(spark, broker.log_dirs[0], tmp_path / "cp", **options)
    assert again.take_all() == [("restarted", 0, 2, b"c"), ("restarted", 1, 0, b"d")]
    assert again.offsets() == {"restarted": {"0": 3, "1": 1}}


def test_a_limited_trigger_cuts_what_is_there_into_batches_of_that_many_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    log_dir = corpora.corpora("k39-compact")[0].log_dirs()[0]
    stream = Stream(
        spark, log_dir.path, tmp_path / "cp", startingOffsets="earliest", maxOffsetsPerTrigger=500
    )
    found = stream.take_all()
    partitions = {row[:2] for row in found}
    assert len(stream.batches) > 3
    wanted = [
        tuple(row[name] for name in ("topic", "partition", "offset", "value")) for row in log_rows(log_dir)
    ]
    for partition in partitions:
        assert [row for row in found if row[:2] == partition] == [
            row for row in wanted if row[:2] == partition
        ]
    assert len(found) == len(wanted)


def test_a_new_stream_starts_at_the_end_by_default(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    broker.create_topic("late", partitions=1)
    produce(broker, "late", [b"before"])
    stream = Stream(spark, broker.log_dirs[0], tmp_path / "cp", subscribe="late")
    assert stream.take_all() == []
    produce(broker, "late", [b"after"])
    assert stream.take_all() == [("late", 0, 1, b"after")]


@pytest.mark.parametrize("strict", [False, True], ids=["passed over", "failOnDataLoss"])
def test_segments_that_retention_deleted_unread_are_skipped_or_an_error(
    spark: SparkSession, tmp_path: Path, strict: bool
) -> None:
    from pyspark.errors import StreamingQueryException

    log_dir = corpora.corpora("k39-compact")[0].log_dirs()[0]
    source = max(log_dir.partitions(), key=lambda partition: len(partition.files(".log")))
    _, first, second, *others = source.files(".log")  # the very first is compacted away
    logs = tmp_path / "logs" / "gone-0"
    logs.mkdir(parents=True)
    one = next(line for line in source.expected_batches() if line["file"] == first.name and "size" in line)
    (logs / first.name).write_bytes(first.read_bytes()[: one["position"] + one["size"]])
    options = {"startingOffsets": "earliest", "failOnDataLoss": strict}
    stream = Stream(spark, tmp_path / "logs", tmp_path / "cp", **options)
    assert stream.take_all()
    (logs / first.name).unlink()
    for log in (second, *others):
        shutil.copy(log, logs)
    if strict:
        with pytest.raises(StreamingQueryException, match="were deleted before they were read"):
            stream.take_all()
        return
    wanted = [line["offset"] for line in source.expected_records() if line["offset"] >= int(second.stem)]
    assert [row[2] for row in stream.take_all()] == wanted
