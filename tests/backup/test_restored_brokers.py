"""Brokers start on what `klog restore` has written, without recovery, and clients go on where they were."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import klog.testing
from tests.backup.recorded import CLIENTS, Recorded, visible
from tests.backup.transactional_load import INPUT, PARTITIONS, TOPIC
from tests.commands.running import Run, runner
from tests.peers import KafkaPeer
from tests.peers.broker import ZooKeeperBroker
from tests.peers.zookeeper import ZooKeeperServer

TIMEOUT_S = 30


@pytest.fixture
def klog_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def restored_by_command(
    recorded: Recorded, klog_command: Run, path: Path, *words: object
) -> list[dict[str, object]]:
    at_ms = (recorded.begin_ms + recorded.end_ms) // 2
    done = klog_command(
        "restore", recorded.repository.place, "--at", at_ms, "--to", path, "-o", "jsonl", *words
    )
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def read_committed(bootstrap: str, partition: int) -> list[str]:
    """All values that a read_committed consumer gets of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        found.append(message.value().decode())
    assert message is not None
    consumer.close()
    return found


def committed(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(INPUT, 0)], TIMEOUT_S)
    consumer.close()
    return int(found.offset)


def require_clients_go_on(bootstrap: str, path: Path) -> None:
    """Consumers read what the files hold, groups are where they were, and producers write on."""
    before = {number: visible(path / f"{TOPIC}-{number}") for number in range(PARTITIONS)}
    for number, values in before.items():
        assert Counter(read_committed(bootstrap, number)) == Counter(values)
    seen = [value.split() for values in before.values() for value in values]
    for name in CLIENTS:
        assert committed(bootstrap, name) == max(int(number) for who, number in seen if who == name)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": CLIENTS[0]})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(PARTITIONS):
        producer.produce(TOPIC, value="after", partition=number)
    producer.commit_transaction(TIMEOUT_S)
    for number in range(PARTITIONS):
        assert read_committed(bootstrap, number)[-1] == "after"


def test_klog_starts_on_a_restored_directory_and_clients_go_on(
    recorded: Recorded, klog_command: Run, tmp_path: Path
) -> None:
    path = tmp_path / "restored"
    restored_by_command(recorded, klog_command, path, "--topic", f"{TOPIC}|__.*")
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)

    with klog.testing.broker({"log.dirs": str(path), "log.retention.ms": -1}) as broker:
        require_clients_go_on(broker.bootstrap_servers, copy)
        assert not re.search("recover(ed|ing|s)|rebuil|WARN|ERROR", broker.log_text(), re.IGNORECASE)


@pytest.mark.kafka
def test_kafka_starts_on_a_restored_directory_without_recovery(
    recorded: Recorded, klog_command: Run, tmp_path: Path, kafka3: KafkaPeer
) -> None:
    path = tmp_path / "restored"
    restored_by_command(recorded, klog_command, path, "--topic", f"{TOPIC}|__.*")
    work = tmp_path / "kafka"
    work.mkdir()

    config = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 2}
    with ZooKeeperBroker.on_log_directory(path, work, config) as broker:
        require_clients_go_on(broker.bootstrap, path)
        text = broker.log_path.read_text()
    assert "since clean shutdown file was found" in text
    assert not re.search("Recovering|rebuilding index|Corrupt|Found invalid", text), text


@pytest.mark.kafka
def test_kafka_starts_with_the_metadata_that_was_restored_into_zookeeper(
    recorded: Recorded, klog_command: Run, tmp_path: Path, kafka3: KafkaPeer
) -> None:
    path, copy = tmp_path / "restored", tmp_path / "copy"
    work = tmp_path / "kafka"
    work.mkdir()
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        connect = f"{zookeeper.hosts}/restored"
        words = ("--topic", f"{TOPIC}|__.*", "--brokers", 0, "--zookeeper", connect)
        restored_by_command(recorded, klog_command, path, *words)
        shutil.copytree(path, copy)
        config = {
            "log.dirs": str(path),
            "zookeeper.connect": connect,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 2,
        }

        with ZooKeeperBroker(work, config) as broker:
            require_clients_go_on(broker.bootstrap, copy)
            text = broker.log_path.read_text()
    assert "since clean shutdown file was found" in text
    assert not re.search("Recovering|rebuilding index|Corrupt|Found invalid", text)
