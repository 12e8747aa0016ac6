"""Groups where `__consumer_offsets` may not be read: runs ask for their offsets, a restore has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import klog.testing
from klog.backup.restoring.request import RestoreRequest
from klog.backup.restoring.state_records import committed_offsets
from klog.formats.names import CONSUMER_OFFSETS
from klog.testing.process import BrokerProcess
from tests.backup.recorded import restore, rows_of
from tests.backup.repositories import Backups

CONFIG = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin",
    "offsets.topic.num.partitions": 3,
}
GROUPS = ("billing", "search", "audit")


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with klog.testing.broker(CONFIG) as running:
        running.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(100):
            producer.produce("orders", str(number).encode(), partition=number % 2)
        assert producer.flush(30) == 0
        yield running


def commit(broker: BrokerProcess, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    positions = [Position("orders", number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def deny_reading_of_offsets(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    rule = AclBinding(
        ResourceType.TOPIC,
        CONSUMER_OFFSETS,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    admin.create_acls([rule])[rule].result()


def restored_groups(backups: Backups, path: Path, request: RestoreRequest) -> dict[str, dict[int, int]]:
    restore(backups.repository, request, path)
    found: dict[str, dict[int, int]] = {}
    for directory in path.glob(f"{CONSUMER_OFFSETS}-*"):
        for group, offsets in committed_offsets(directory.name, rows_of(directory)).items():
            found[group] = {number: each.offset for (_, number), each in offsets.items()}
    return found


def test_the_offsets_of_each_run_come_back(broker: BrokerProcess, backups: Backups, tmp_path: Path) -> None:
    for group in GROUPS:
        commit(broker, group, 10, 20)
    deny_reading_of_offsets(broker)
    first = backups.run_over_wire(broker.bootstrap_servers)
    assert first.is_clean, first.manifest.problems
    at_ms = backups.now_ms
    commit(broker, "billing", 30, 40)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_consumer_groups(["audit"])["audit"].result()
    second = backups.run_over_wire(broker.bootstrap_servers)

    before = {group: {0: 10, 1: 20} for group in GROUPS}
    after = {"billing": {0: 30, 1: 40}, "search": {0: 10, 1: 20}}
    assert restored_groups(backups, tmp_path / "1", RestoreRequest(backup=first.manifest.id)) == before
    assert restored_groups(backups, tmp_path / "2", RestoreRequest(backup=second.manifest.id)) == after
    assert restored_groups(backups, tmp_path / "3", RestoreRequest(at_ms=at_ms + 500)) == before


def test_unchanged_offsets_are_not_stored_again(broker: BrokerProcess, backups: Backups) -> None:
    commit(broker, "billing", 10, 20)
    deny_reading_of_offsets(broker)
    backups.run_over_wire(broker.bootstrap_servers)
    assert backups.run_over_wire(broker.bootstrap_servers).changed == 0


def test_what_may_be_read_is_read(broker: BrokerProcess, backups: Backups) -> None:
    commit(broker, "billing", 10, 20)
    backups.run_over_wire(broker.bootstrap_servers)
    offsets = [each for each in backups.states() if each.topic == CONSUMER_OFFSETS]
    assert len(offsets) == 3
