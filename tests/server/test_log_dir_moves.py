"""Replicas move between the log directories of a running broker: under load, throttled, and after kills."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaStorageError, LogDirNotFoundError, NoError, ReplicaNotAvailableError

import klog.testing
from klog.testing.process import BrokerProcess
from tests.waiting import eventually

TOPIC = "orders"
BROKER_ID = 1
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
CONFIG = {
    "broker.id": BROKER_ID,
    "log.segment.delete.delay.ms": 500,
    "log.cleaner.backoff.ms": 200,
}


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with klog.testing.broker(CONFIG, log_dir_count=2) as found:
        yield found


@contextmanager
def admin_of(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


def move(broker: BrokerProcess, directory: str | Path, topic: str = TOPIC) -> type[Exception]:
    with admin_of(broker) as admin:
        answers = admin.alter_replica_log_dirs({(topic, 0, BROKER_ID): str(directory)})
    (answer,) = answers.values()
    return answer


def throttle(broker: BrokerProcess) -> None:
    """Copy almost nothing from now on."""
    set_rate(broker, 1_000)
    # A change is heard of later than it is answered.
    broker.restart()


def set_rate(broker: BrokerProcess, bytes_per_second: int) -> None:
    with admin_of(broker) as admin:
        # Brokers do not describe this config unless it is set.
        resource = ConfigResource(ConfigResourceType.BROKER, str(BROKER_ID), {RATE: str(bytes_per_second)})
        admin.alter_configs([resource], raise_on_unknown=False)


def described(broker: BrokerProcess) -> dict[str, tuple[bool, int]]:
    """By log directory: whether the log there is a future one, and its lag."""
    with admin_of(broker) as admin:
        (answer,) = admin.describe_log_dirs()
    return {
        directory["log_dir"]: (partition["is_future_key"], partition["offset_lag"])
        for directory in answer["log_dirs"]
        for topic in directory["topics"]
        if topic["name"] == TOPIC
        for partition in topic["partitions"]
    }


def other_directory(broker: BrokerProcess) -> Path:
    here = broker.partition_dir(TOPIC).parent
    (found,) = (each for each in broker.log_dirs if each != here)
    return found


def produce(broker: BrokerProcess, first: int, count: int, size: int = 100) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        value = b"%08d" % number + b"." * size
        producer.produce(TOPIC, value, partition=0, on_delivery=_require_success)
        producer.poll(0)
    assert producer.flush(60) == 0


def _require_success(error: object, _: object) -> None:
    assert error is None, error


def numbers(broker: BrokerProcess) -> list[int]:
    """What a consumer reads from the beginning to the end."""
    from kafka import KafkaConsumer, TopicPartition

    where = TopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    (end,) = consumer.end_offsets([where]).values()
    found: list[int] = []
    while consumer.position(where) < end:
        for records in consumer.poll(1000).values():
            found += [int(record.value[:8]) for record in records]
    consumer.close()
    return found


def test_a_replica_moves_while_it_is_written_to(broker: BrokerProcess) -> None:
    broker.create_topic(TOPIC, config={"segment.bytes": 1_000_000})
    produce(broker, 0, 40_000)
    source, target = broker.partition_dir(TOPIC).parent, other_directory(broker)
    stopping = threading.Event()
    written = [40_000]

    def write() -> None:
        while not stopping.is_set():
            produce(broker, written[0], 500)
            written[0] += 500

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert move(broker, target) is NoError
        eventually((target / f"{TOPIC}-0").is_dir)
        eventually(lambda: described(broker) == {str(target): (False, 0)})
    finally:
        stopping.set()
        writer.join()
    produce(broker, written[0], 100)
    assert numbers(broker) == list(range(written[0] + 100))
    eventually(lambda: not list(source.glob(f"{TOPIC}-0*")))
    broker.restart()
    assert broker.partition_dir(TOPIC).parent == target
    assert numbers(broker) == list(range(written[0] + 100))


def test_a_throttled_move_is_described_goes_on_after_a_kill_and_ends_without_the_throttle(
    broker: BrokerProcess,
) -> None:
    broker.create_topic(TOPIC)
    produce(broker, 0, 6_000, size=1_000)
    source, target = broker.partition_dir(TOPIC).parent, other_directory(broker)
    throttle(broker)
    assert move(broker, target) is NoError
    # One piece is copied before the rate is known to be too high.
    eventually(lambda: 0 < described(broker)[str(target)][1] < 6_000)
    assert described(broker)[str(source)] == (False, 0)
    assert described(broker)[str(target)][0]
    broker.kill()
    broker.start()
    assert described(broker)[str(target)][0]
    assert numbers(broker) == list(range(6_000))
    set_rate(broker, 2**62)
    eventually(lambda: described(broker) == {str(target): (False, 0)})
    assert numbers(broker) == list(range(6_000))


def test_a_move_to_where_the_replica_is_cancels_the_one_that_runs(broker: BrokerProcess) -> None:
    broker.create_topic(TOPIC)
    produce(broker, 0, 3_000, size=1_000)
    source, target = broker.partition_dir(TOPIC).parent, other_directory(broker)
    throttle(broker)
    assert move(broker, target) is NoError
    assert move(broker, target) is NoError
    assert set(described(broker)) == {str(source), str(target)}
    assert move(broker, source) is NoError
    assert described(broker) == {str(source): (False, 0)}
    eventually(lambda: not list(target.glob(f"{TOPIC}-0*")))
    produce(broker, 3_000, 10)
    assert numbers(broker) == list(range(3_010))


def test_a_topic_is_deleted_while_its_replica_moves(broker: BrokerProcess) -> None:
    broker.create_topic(TOPIC)
    produce(broker, 0, 3_000, size=1_000)
    throttle(broker)
    assert move(broker, other_directory(broker)) is NoError
    with admin_of(broker) as admin:
        admin.delete_topics([TOPIC])
    eventually(lambda: not [path for each in broker.log_dirs for path in each.glob(f"{TOPIC}-0*")])
    set_rate(broker, 2**62)
    broker.create_topic(TOPIC)
    produce(broker, 0, 10)
    assert move(broker, other_directory(broker)) is NoError
    eventually(lambda: len(described(broker)) == 1)
    assert numbers(broker) == list(range(10))


def test_what_cannot_be_moved_is_refused(broker: BrokerProcess) -> None:
    broker.create_topic(TOPIC)
    assert move(broker, "/nowhere") is LogDirNotFoundError
    assert move(broker, broker.log_dirs[0], topic="unknown") is ReplicaNotAvailableError


def test_a_replica_that_is_not_there_yet_is_created_in_the_directory_that_was_asked_for(
    broker: BrokerProcess,
) -> None:
    fullest = broker.log_dirs[1]
    assert move(broker, fullest) is ReplicaNotAvailableError
    broker.create_topic("filler", 4)
    broker.create_topic(TOPIC)
    assert broker.partition_dir(TOPIC).parent == fullest


def test_a_compacted_topic_is_compacted_on_after_its_move(broker: BrokerProcess) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": 50_000,
        "min.cleanable.dirty.ratio": 0.01,
        "file.delete.delay.ms": 100,
    }
    broker.create_topic(TOPIC, config=config)
    produce_keyed(broker, 2_000)
    target = other_directory(broker)
    assert move(broker, target) is NoError
    eventually(lambda: described(broker) == {str(target): (False, 0)})
    produce_keyed(broker, 2_000)
    segments = target / f"{TOPIC}-0"
    # Segments without a record that is the last of its key vanish.
    eventually(lambda: sum(path.stat().st_size for path in segments.glob("*.log")) < 120_000)


def produce_keyed(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 10_000})
    for number in range(count):
        producer.produce(
            TOPIC, b"." * 100, key=b"%d" % (number % 10), partition=0, on_delivery=_require_success
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def test_no_move_begins_while_a_directory_is_offline(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in "abc"]
    with klog.testing.broker({**CONFIG, "log.dirs": ",".join(map(str, directories))}) as broker:
        broker.create_topic(TOPIC)
        free = [each for each in directories if each != broker.partition_dir(TOPIC).parent]
        broker.stop()
        # A file where a directory must be.
        for path in free[0].iterdir():
            path.unlink()
        free[0].rmdir()
        free[0].write_bytes(b"")
        broker.start()
        assert move(broker, free[0]) is KafkaStorageError
        assert move(broker, free[1]) is KafkaStorageError
        free[0].unlink()
