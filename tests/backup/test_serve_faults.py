"""`klog serve --read-only` of a repository in S3 that fails, is slow, or has a damaged object: clients get
the right records or an error that they retry, and the broker goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from klog.backup import keys
from klog.backup.keys import UserKey
from klog.backup.restoring.request import RestoreRequest
from klog.backup.serving import loading
from klog.backup.serving.blocks import Block, Place
from klog.backup.serving.loading import FAILURE_LASTS_S, Loads
from klog.formats.errors import CorruptRecordError, StorageError
from klog.server.startup.broker import Broker
from tests.backup.hanging_s3 import FaultyS3, faulty_s3
from tests.backup.recorded import Recorded
from tests.backup.repositories import Backups
from tests.backup.served import address, admin, consumed, served_repository, served_restore
from tests.backup.transactional_load import PARTITIONS, TOPIC
from tests.export.logs import batch, replica
from tests.threads import join, started
from tests.waiting import eventually

KEY = UserKey(b"the key of these tests")
EVERYTHING = dict.fromkeys(range(PARTITIONS), 0)


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as found:
        yield found


@pytest.fixture
def backups(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backups:
    """A repository in S3."""
    monkeypatch.setattr(keys, "_COST", 16)
    return Backups(s3.uri.replace("cluster", tmp_path.name), "zstd")


# -- What clients get ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_a_repository_in_s3_is_served_as_a_restore_gives_it(
    recorded: Recorded, s3: FaultyS3, backups: Backups, key: UserKey | None, tmp_path: Path
) -> None:
    backups.key = key
    backups.run(recorded.directory)
    request = RestoreRequest(wants=lambda topic: topic == TOPIC)
    s3.busy_every, s3.cut = 10, 2
    try:
        with (
            served_restore(backups.repository, request, tmp_path / "restored") as expected,
            served_repository(str(backups.place), request, key) as found,
        ):
            for isolation in ("read_committed", "read_uncommitted"):
                records = consumed(found, TOPIC, EVERYTHING, isolation)
                assert records == consumed(expected, TOPIC, EVERYTHING, isolation)
                assert all(records.values())
    finally:
        s3.busy_every = s3.cut = 0


def test_a_store_that_hangs_stops_neither_the_broker_nor_clients_for_good(
    s3: FaultyS3,
    backups: Backups,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Loads, "wait_s", 1.0)
    monkeypatch.setattr(loading, "FAILURE_LASTS_S", 0.5)
    for number in range(PARTITIONS):
        replica(logs / f"{TOPIC}-{number}", [batch(5 * each, 5, size=200) for each in range(4)])
    backups.run(logs)

    with (
        served_repository(str(backups.place), RestoreRequest()) as broker,
        caplog.at_level(logging.WARNING),
    ):
        s3.hang()
        reads: list[dict[int, list[tuple[object, ...]]]] = []
        reader = started(lambda: reads.append(consumed(broker, TOPIC, EVERYTHING, "read_uncommitted")))
        try:
            eventually(lambda: "does not answer" in caplog.text)
            topics = admin(broker).list_topics(timeout=10).topics
            assert (TOPIC in topics, reads) == (True, [])
        finally:
            s3.go_on()
        join([reader])

    assert {each: [record[0] for record in found] for each, found in reads[0].items()} == {
        each: list(range(20)) for each in range(PARTITIONS)
    }


def test_a_damaged_object_is_an_error_of_its_partition_for_clients(
    backups: Backups, logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5, size=200) for each in range(4)])
    replica(logs / "payments-0", [batch(5 * each, 5) for each in range(4)])
    backups.compression = "none"
    backups.run(logs)
    store = backups.repository.store
    [name] = [each for each in backups.objects() if "orders-0" in each]
    data = bytearray(store.read(name))
    data[-1] ^= 1
    store.put(name, bytes(data))

    with (
        served_repository(str(backups.place), RestoreRequest()) as broker,
        caplog.at_level(logging.WARNING),
    ):
        errors, offsets = _errors_and_offsets(broker)

    assert errors == {("orders", KafkaError.INVALID_MSG)}  # CORRUPT_MESSAGE
    assert offsets == list(range(20))
    assert [name in each.getMessage() for each in caplog.records] == [True]


def _errors_and_offsets(broker: Broker) -> tuple[set[tuple[str, int]], list[int]]:
    """The errors that a consumer of both topics gets, and the offsets of `payments`, until it has both."""
    consumer = Consumer({"bootstrap.servers": address(broker), "group.id": "reader"})
    consumer.assign([TopicPartition("orders", 0, 0), TopicPartition("payments", 0, 0)])
    errors: set[tuple[str, int]] = set()
    offsets: list[int] = []
    try:
        while len(offsets) < 20 or not errors:
            message = consumer.poll(20)
            assert message is not None, "the consumer got no answer"
            error = message.error()
            if error is None:
                assert message.topic() == "payments"
                offsets.append(message.offset())
            else:
                errors.add((message.topic(), error.code()))
    finally:
        consumer.close()
    return errors, offsets


# -- Waiting ------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loads(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Loads:
    monkeypatch.setattr(Loads, "wait_s", 0.05)
    return Loads(clock)


def block() -> Block:
    return Block(Place(1, 0))


def test_a_load_that_takes_too_long_goes_on_and_is_not_begun_again(loads: Loads, clock: Clock) -> None:
    goes_on, made, begun = threading.Event(), block(), []

    def load() -> Block:
        begun.append(time)
        goes_on.wait(30)
        return made

    for _ in range(2):
        with pytest.raises(StorageError, match="a: the repository does not answer"):
            loads.wait_for("a", load, "a")
        clock.now_s += FAILURE_LASTS_S
    loads.wait_s = 30
    goes_on.set()
    assert loads.wait_for("a", lambda: made, "a") is made
    assert len(begun) == 1


def test_while_the_repository_does_not_answer_nobody_waits(
    loads: Loads, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def fail() -> Block:
        asked.append("failing")
        raise StorageError("is down", file="a") from OSError("503")

    with pytest.raises(StorageError, match="is down"):
        loads.wait_for("a", fail, "a")
    with pytest.raises(StorageError, match="b: the repository does not answer"):
        loads.wait_for("b", fail, "b")
    clock.now_s += FAILURE_LASTS_S
    with pytest.raises(StorageError, match="is down"):
        loads.wait_for("b", fail, "b")
    assert (len(asked), len(caplog.records)) == (2, 1)

    clock.now_s += FAILURE_LASTS_S
    loads.wait_for("b", block, "b")
    with pytest.raises(StorageError, match="is down"):
        loads.wait_for("b", fail, "b")
    assert len(caplog.records) == 2  # it is a new outage


@pytest.mark.parametrize("damage", [CorruptRecordError("is damaged"), StorageError("is too short")])
def test_damage_of_one_object_stops_no_other(loads: Loads, damage: Exception) -> None:
    def fail() -> Block:
        raise damage

    with pytest.raises(type(damage)):
        loads.wait_for("a", fail, "a")
    assert loads.wait_for("b", block, "b")
