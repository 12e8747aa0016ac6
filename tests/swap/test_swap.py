"""klog and Apache Kafka 3.9 take turns on one ZooKeeper and the same log.dirs, and neither finds a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, read
from tests.swap.world import CODECS, World
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CLEANED_SOON = {"cleanup_policy": "compact", "segment_bytes": 6000, "min_cleanable_dirty_ratio": "0.01"}


@pytest.fixture
def world(tmp_path: Path, kafka3: KafkaPeer) -> Iterator[World]:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        yield World(tmp_path, zookeeper)


def everything(world: World, bootstrap: str, who: str) -> None:
    """Creates topics of every kind with records, on the present broker."""
    admin = Admin(bootstrap)
    for codec in CODECS:
        world.create(admin, f"{who}-{codec}", 2, segment_bytes=30_000)
        world.write(bootstrap, f"{who}-{codec}", 400, who, codec)
    world.create(admin, f"{who}-appendtime", message_timestamp_type="LogAppendTime")
    world.create(admin, f"{who}-recompressed", compression_type="lz4")
    world.create(admin, f"{who}-compacted", **CLEANED_SOON)
    world.create(admin, f"{who}-both", **{**CLEANED_SOON, "cleanup_policy": "compact,delete"})
    world.create(admin, f"{who}-shortened", segment_bytes=6000)
    world.create(admin, f"{who}-deleted", 3)
    world.create(admin, f"{who}-empty", 2, retention_ms=86_400_000, max_message_bytes=5000)
    for kind in ("recompressed", "compacted", "both", "shortened", "deleted"):
        world.write(bootstrap, f"{who}-{kind}", 600, who, "gzip")
    world.delete(admin, f"{who}-deleted")
    world.delete_records(admin, f"{who}-shortened", 0, 350)


def more(world: World, bootstrap: str, who: str) -> None:
    """Writes more records into every topic, and enough for a cleaning into the compacted ones."""
    for number, topic in enumerate(sorted({topic for topic, _ in world.acknowledged})):
        if not topic.endswith(("appendtime", "empty")):
            world.write(bootstrap, topic, 100, f"more by {who}", CODECS[number % len(CODECS)])


def first_offset_of(directories: list[Path], partition: str) -> int:
    return min(int(path.stem) for each in directories for path in each.glob(f"{partition}/*.log"))


def test_klog_then_kafka_then_klog_lose_nothing_and_recover_nothing(world: World) -> None:
    with world.klog() as klog:
        everything(world, klog.bootstrap, "klog")
        world.check(klog.bootstrap)
        klog.stop()
        assert klog.complaints == []
    assert all((each / ".kafka_cleanshutdown").exists() for each in world.directories)

    with world.kafka() as kafka:
        assert world.kafka_recovery == []
        world.check(kafka.bootstrap)
        admin = Admin(kafka.bootstrap)
        assert "klog-deleted" not in admin.topics()
        assert admin.own_configs("klog-empty") == {"retention.ms": "86400000", "max.message.bytes": "5000"}
        admin.set_configs("klog-empty", {"max.message.bytes": "7000", "retention.bytes": "123456789"})
        everything(world, kafka.bootstrap, "kafka")
        more(world, kafka.bootstrap, "kafka")
        world.delete(admin, "klog-gzip")
        world.delete_records(admin, "klog-zstd", 0, 20)
        world.check(kafka.bootstrap)
    assert world.kafka_recovery == []
    assert world.kafka_complaints == []

    with world.klog() as klog:
        world.check(klog.bootstrap)
        admin = Admin(klog.bootstrap)
        assert not {"klog-gzip", "kafka-deleted"} & admin.topics()
        assert admin.own_configs("klog-empty") == {
            "retention.ms": "86400000",
            "max.message.bytes": "7000",
            "retention.bytes": "123456789",
        }
        assert admin.own_configs("kafka-empty") == {"retention.ms": "86400000", "max.message.bytes": "5000"}
        more(world, klog.bootstrap, "klog")
        world.check(klog.bootstrap)
        klog.stop()
        assert klog.complaints == []
        assert "recovered" not in klog.log_text

    with world.kafka() as kafka:
        world.check(kafka.bootstrap)
    assert world.kafka_recovery == []
    assert world.kafka_complaints == []


def test_after_kill_9_of_either_the_other_recovers_all_that_was_acknowledged(world: World) -> None:
    with world.klog() as klog:
        admin = Admin(klog.bootstrap)
        for codec in CODECS:
            world.create(admin, codec, 2, segment_bytes=20_000)
        more(world, klog.bootstrap, "klog")
        writer = Writer(klog.bootstrap, world.acknowledged)
        for number in range(3000):
            writer.write("none", b"under load %d" % number * 5)
        klog.kill()
        writer.abandon()

    with world.kafka() as kafka:
        assert world.kafka_recovery != []
        check_acknowledged(world, kafka.bootstrap)
        more(world, kafka.bootstrap, "kafka")
        writer = Writer(kafka.bootstrap, world.acknowledged)
        for number in range(3000):
            writer.write("none", b"under load %d" % number * 5)
        writer.flush(0.2)
        kafka.kill()
        writer.abandon()

    with world.klog() as klog:
        assert "recovered" in klog.log_text
        check_acknowledged(world, klog.bootstrap)
        more(world, klog.bootstrap, "klog")
        check_acknowledged(world, klog.bootstrap)
        klog.stop()

    with world.kafka() as kafka:
        assert world.kafka_recovery == []
        check_acknowledged(world, kafka.bootstrap)


def test_a_transaction_that_kafka_left_open_stays_open_while_klog_runs(world: World) -> None:
    def producer(bootstrap: str) -> Producer:
        config = {"transactional.id": "left", "transaction.timeout.ms": 600_000, "log_level": 0}
        made = Producer({"bootstrap.servers": bootstrap, **config})
        made.init_transactions(60)
        return made

    with world.kafka() as kafka:
        world.create(Admin(kafka.bootstrap), "t")
        left = producer(kafka.bootstrap)
        left.begin_transaction()
        for number in range(10):
            left.produce("t", b"in a transaction %d" % number)
        assert left.flush(60) == 0

    with world.klog() as klog:
        eventually(lambda: ("t", 0) in Admin(klog.bootstrap).led())
        world.write(klog.bootstrap, "t", 5, "beside it")
        assert list(read(klog.bootstrap, [("t", 0)], "read_committed")["t", 0]) == []
        assert list(read(klog.bootstrap, [("t", 0)])["t", 0]) == list(range(15))
        klog.stop()

    with world.kafka() as kafka:
        assert world.kafka_recovery == []
        # A new producer with the same transactional id aborts the open transaction.
        producer(kafka.bootstrap)
        wanted = world.acknowledged["t", 0]
        assert list(wanted) == list(range(10, 15))
        eventually(lambda: read(kafka.bootstrap, [("t", 0)], "read_committed")["t", 0] == wanted)

    with world.klog() as klog:
        eventually(lambda: ("t", 0) in Admin(klog.bootstrap).led())
        assert read(klog.bootstrap, [("t", 0)], "read_committed")["t", 0] == wanted
        klog.stop()


def check_acknowledged(world: World, bootstrap: str) -> None:
    """As `World.check`, but there may be records that were never acknowledged."""
    found = world.read(bootstrap)
    for partition, offsets in world.acknowledged.items():
        assert offsets.items() <= found[partition].items(), partition
        assert list(found[partition]) == list(range(len(found[partition]))), partition
