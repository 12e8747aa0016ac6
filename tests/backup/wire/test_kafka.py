"""Kafka 3.9.1 and 4.1.1 are backed up over the wire under transactional clients, and come back whole."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from klog.backup.restoring.request import RestoreRequest
from tests.backup.recorded import Recorded, check, restore, started_clients, without_input
from tests.backup.repositories import Backups
from tests.backup.test_restored_brokers import require_clients_go_on
from tests.backup.transactional_load import INPUT, PARTITIONS, TOPIC, now_ms
from tests.peers.broker import KRaftBroker, ZooKeeperBroker

pytestmark = pytest.mark.kafka

CONFIG = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 2}
RUNS = 3


def recorded(backups: Backups, broker: ZooKeeperBroker | KRaftBroker, directory: Path) -> Recorded:
    """What clients wrote, with a run every second meanwhile and one after them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(TOPIC, PARTITIONS), NewTopic(INPUT, 1)]
    for made in admin.create_topics(topics).values():
        made.result()
    clients = started_clients(broker.bootstrap)
    begin_ms = now_ms()
    for _ in range(RUNS):
        time.sleep(1.0)
        backups.run_over_wire(broker.bootstrap, now_ms=now_ms)
    end_ms = now_ms()
    for client in clients.values():
        client.stop()
    result = backups.run_over_wire(broker.bootstrap, now_ms=now_ms)
    assert result.is_clean, result.manifest.problems
    broker.stop()
    return Recorded(clients, backups.repository, directory, begin_ms, end_ms)


@pytest.mark.parametrize("kind", [ZooKeeperBroker, KRaftBroker], ids=["3.9", "4.1"])
def test_what_was_written_comes_back_byte_for_byte_and_kafka_opens_it(
    kind: Callable[..., ZooKeeperBroker | KRaftBroker],
    backups: Backups,
    tmp_path: Path,
    kafka3: object,
    kafka4: object,
) -> None:
    with kind(tmp_path / "source", CONFIG) as broker:
        found = recorded(backups, broker, tmp_path / "source" / "logs")
    middle = (found.begin_ms + found.end_ms) // 2
    for number, at_ms in enumerate((middle, None)):
        path = tmp_path / f"restored-{number}"
        plan = restore(found.repository, RestoreRequest(at_ms=at_ms, wants=without_input), path)
        assert check(found, plan, path, at_ms) > 0

    if kind is ZooKeeperBroker:
        with ZooKeeperBroker.on_log_directory(path, tmp_path / "kafka", CONFIG) as again:
            require_clients_go_on(again.bootstrap, path)
            text = again.log_path.read_text()
        assert "since clean shutdown file was found" in text
        assert not re.search("Recovering|rebuilding index|Corrupt|Found invalid", text), text
