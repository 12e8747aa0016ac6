"""Kafka 3.9.1 elects a leader uncleanly between two runs: both histories of the log come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klog.backup.restoring.request import RestoreRequest
from klog.formats.names import TopicPartition
from klog.kernel.columns import RecordTable
from klog.storage.cleaner.decoding import decode_one
from tests.backup.recorded import restore, rows_of
from tests.backup.repositories import Backups
from tests.backup.transactional_load import now_ms
from tests.peers.broker import Config, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

TIMEOUT_S = 60
ORDERS = TopicPartition("orders", 0)


def produce(broker: ZooKeeperBroker, name: str, count: int) -> list[str]:
    """Several batches to the leader, whose values are given back."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "1"})
    values = [f"{name} {number}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce("orders", value)
        if number % 7 == 6:
            assert producer.flush(TIMEOUT_S) == 0
    assert producer.flush(TIMEOUT_S) == 0
    return values


def is_led_by(broker: ZooKeeperBroker, leader: int, isr: list[int]) -> bool:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("orders", TIMEOUT_S)
    partition = found.topics["orders"].partitions.get(0)
    return partition is not None and partition.leader == leader and sorted(partition.isrs) == isr


@pytest.mark.kafka
@pytest.mark.slow
def test_moments_before_and_after_an_unclean_election(
    backups: Backups, tmp_path: Path, kafka3: KafkaPeer
) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        shared: Config = {
            "zookeeper.connect": zookeeper.hosts,
            "unclean.leader.election.enable": "true",
            "controlled.shutdown.enable": "false",
        }

        def start(number: int) -> ZooKeeperBroker:
            return ZooKeeperBroker(tmp_path / f"broker-{number}", {**shared, "broker.id": number}, kafka3)

        with start(0) as first:
            with start(1) as second:
                admin = AdminClient({"bootstrap.servers": first.bootstrap})
                topic = NewTopic("orders", 1, replica_assignment=[[0, 1]])
                admin.create_topics([topic])["orders"].result(TIMEOUT_S)
                eventually(lambda: is_led_by(first, 0, [0, 1]), TIMEOUT_S)
                both = produce(first, "both", 20)
                eventually(lambda: second_has(tmp_path / "broker-1", first), TIMEOUT_S)
                second.stop()
            eventually(lambda: is_led_by(first, 0, [0]), TIMEOUT_S)
            lost = produce(first, "lost", 30)
            before = backups.run_over_wire(first.bootstrap, now_ms=now_ms)
        with start(1) as again:
            eventually(lambda: is_led_by(again, 1, [1]), TIMEOUT_S)
            other = produce(again, "other", 40)
            between_ms = now_ms()
            after = backups.run_over_wire(again.bootstrap, now_ms=now_ms)

    assert before.is_clean
    assert after.is_clean
    epochs = [each.epoch for each in backups.states()[ORDERS].epochs]
    assert len(epochs) == 2
    for number, (request, values) in enumerate(
        (
            (RestoreRequest(backup=before.manifest.id), both + lost),
            (RestoreRequest(at_ms=before.manifest.end_ms), both + lost),
            (RestoreRequest(at_ms=between_ms), both + lost),  # until a run has seen the other log
            (RestoreRequest(backup=after.manifest.id), both + other),
        )
    ):
        path = tmp_path / f"restored-{number}"
        restore(backups.repository, request, path)
        assert values_in(path / "orders-0") == values


def values_in(directory: Path) -> list[str]:
    records, found = RecordTable(), []
    for rows in rows_of(directory):
        for row in range(len(rows.table)):
            payload = decode_one(rows.data, rows.table, row, records)
            found += [
                bytes(payload[start : start + size]).decode()
                for start, size in zip(records.value_start, records.value_size, strict=True)
            ]
    return found


def second_has(follower: Path, leader: ZooKeeperBroker) -> bool:
    """Whether the logs of both brokers are the same."""
    logs = [sorted(each.glob("logs/orders-0/*.log")) for each in (follower, leader.work)]
    return all(logs) and len({b"".join(path.read_bytes() for path in each) for each in logs}) == 1
