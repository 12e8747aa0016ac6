"""Row for row what Spark's own Kafka source reads from a running broker, klog reads from its directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import klog.testing
from tests.export.export_support import in_order
from tests.export.reading import rows_of
from tests.peers import KafkaPeer
from tests.peers.broker import ZooKeeperBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
# Records of 2020 stay; and some segments are rolled.
SETTINGS = {"log.segment.bytes": 20_000, "log.retention.ms": -1}


@pytest.fixture(scope="module")
def klog_broker_directory() -> Iterator[tuple[str, Path]]:
    with klog.testing.broker(SETTINGS) as broker:
        fill(broker.bootstrap_servers)
        yield broker.bootstrap_servers, broker.log_dirs[0]


@pytest.fixture(scope="module")
def kafka_directory(
    kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    work = tmp_path_factory.mktemp("kafka")
    with ZooKeeperBroker(work, SETTINGS, kafka3) as broker:
        fill(broker.bootstrap)
        transact(broker.bootstrap)
        yield broker.bootstrap, work / "logs"


def fill(bootstrap: str) -> None:
    """A topic in all codecs, with headers, nulls and empty values; and an empty one."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("codecs", 3, 1), NewTopic("money", 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result(30)
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec or "none", "linger.ms": 20}
        )
        for index in range(120):
            send(producer, "codecs", number * 120 + index)
        producer.flush(30)


def send(producer: Any, topic: str, index: int) -> None:
    headers: Sequence[tuple[str, bytes | None]] = [("h", b"%d" % index), ("h", None), ("é", b"")][: index % 4]
    producer.produce(
        topic,
        value=None if index % 7 == 0 else b"v%d" % index * (index % 50),
        key=None if index % 5 == 0 else b"k%d" % (index % 11),
        headers=list(headers) or None,
        timestamp=1_600_000_000_000 + index * 977,
    )


def transact(bootstrap: str) -> None:
    """Committed and aborted transactions into the other, and one that stays open."""
    from confluent_kafka import Producer

    for number, end in enumerate(("commit", "abort", "commit", "open")):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{number}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for index in range(40):
            send(producer, "money", number * 40 + index)
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)


def both(
    spark: SparkSession, where: tuple[str, Path], **options: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of klog, and those of Spark's Kafka source, for the same options."""
    bootstrap, directory = where
    klog_frame = spark.read.format("klog").options(**options).load(str(directory))
    kafka_frame = (
        spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).options(**options).load()
    )
    assert klog_frame.schema == kafka_frame.schema
    return ordered(klog_frame), ordered(kafka_frame)


def ordered(frame: DataFrame) -> list[dict[str, Any]]:
    return in_order(rows_of(frame.toArrow().to_batches()))


OPTIONS: dict[str, dict[str, Any]] = {
    "with headers": {"subscribe": "codecs", "includeHeaders": True},
    "some partitions": {"assign": '{"codecs": [0, 2]}', "minPartitions": 5},
    "offsets": {
        "subscribe": "codecs",
        "startingOffsets": '{"codecs": {"0": 10, "1": -2, "2": 3}}',
        "endingOffsets": '{"codecs": {"0": 50, "1": 7, "2": -1}}',
    },
    "a time for all": {
        "subscribePattern": "co.*",
        "startingTimestamp": str(1_600_000_000_000 + 100 * 977),
        "endingTimestamp": str(1_600_000_000_000 + 400 * 977),
    },
}
# The klog broker has no transaction coordinator yet.
TRANSACTIONAL: dict[str, dict[str, Any]] = {
    "read_uncommitted": {"subscribe": "money", "includeHeaders": True},
    "read_committed": {"subscribe": "money", "kafka.isolation.level": "read_committed"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_a_klog_brokers_topics_are_the_same_rows(
    spark_with_kafka: SparkSession, klog_broker_directory: tuple[str, Path], options: dict[str, Any]
) -> None:
    from_files, from_broker = both(spark_with_kafka, klog_broker_directory, **options)
    assert from_files == from_broker
    assert from_broker


@pytest.mark.kafka
@pytest.mark.parametrize("options", (OPTIONS | TRANSACTIONAL).values(), ids=list(OPTIONS | TRANSACTIONAL))
def test_real_kafkas_topics_are_the_same_rows(
    spark_with_kafka: SparkSession, kafka_directory: tuple[str, Path], options: dict[str, Any]
) -> None:
    from_files, from_broker = both(spark_with_kafka, kafka_directory, **options)
    assert from_files == from_broker
    assert from_broker
