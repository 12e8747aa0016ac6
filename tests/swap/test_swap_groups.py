"""Groups when klog and Apache Kafka 3.9 take turns: each goes on where the other stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.peers.broker import SINGLE_BROKER, BrokerFailedError, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker
from tests.swap.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "orders"
COUNT = 100
BOTH_PROTOCOLS = {"group.coordinator.rebalance.protocols": "classic,consumer"}
NEW_PROTOCOL = {"group.protocol": "consumer"}
STATIC = {"group.instance.id": "shop", "session.timeout.ms": 120_000}


@pytest.fixture
def world(tmp_path: Path, kafka3: KafkaPeer) -> Iterator[World]:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        yield World(tmp_path, zookeeper)


def write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def consumer_of(bootstrap: str, group: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def read_and_commit(bootstrap: str, group: str, count: int, **config: object) -> list[bytes]:
    """What a member reads that reads so many records, commits and closes."""
    consumer = consumer_of(bootstrap, group, **config)
    consumer.subscribe([TOPIC])
    read: list[bytes] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(read), 0.1):
            assert message.error() is None
            read.append(message.value())
        return len(read) == count

    # A member that a killed broker leaves behind is waited for until its session of 45 s has expired.
    eventually(enough, 150)
    consumer.commit(asynchronous=False)
    consumer.close()
    return read


def commit_without_members(bootstrap: str, group: str, offset: int) -> None:
    consumer = consumer_of(bootstrap, group)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset, "by hand")], asynchronous=False)
    consumer.close()


class Groups:
    """What administrators see of groups."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def states(self) -> dict[str, ConsumerGroupState]:
        found = self._admin.list_consumer_groups(request_timeout=30).result()
        return {each.group_id: each.state for each in found.valid}

    def offset(self, group: str) -> int:
        found = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        (partition,) = found[group].result().topic_partitions
        offset: int = partition.offset
        return offset

    def members(self, group: str) -> dict[str, str]:
        """Member ids by instance id."""
        described = self._admin.describe_consumer_groups([group])[group].result()
        return {each.group_instance_id: each.member_id for each in described.members}

    def described(self, group: str) -> list[tuple[str, ...]]:
        """The group's state, and its members with what they are assigned."""
        found = self._admin.describe_consumer_groups([group])[group].result()
        members = [
            (each.member_id, each.host, *map(str, each.assignment.topic_partitions)) for each in found.members
        ]
        return [(found.state.name, found.partition_assignor), *members]

    def delete(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result()


def take_over(bootstrap: str, before: int, held: dict[str, str]) -> dict[str, str]:
    """Everything is as the other broker left it; then the groups go on. The static member's new id."""
    groups = Groups(bootstrap)
    empty, stable = ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE
    eventually(lambda: groups.states() == {"plain": empty, "static": stable, "simple": empty})
    assert [groups.offset(group) for group in ("plain", "static", "simple")] == [before, before, before]
    assert groups.members("static") == held
    expected = [b"%d" % number for number in range(before, before + 10)]
    assert read_and_commit(bootstrap, "plain", 10) == expected
    assert read_and_commit(bootstrap, "static", 10, **STATIC) == expected
    commit_without_members(bootstrap, "simple", before + 10)
    now = groups.members("static")
    assert now.keys() == held.keys()
    assert now != held
    return now


def test_groups_go_on_where_the_other_broker_stopped(world: World) -> None:
    with world.klog() as klog:
        world.create(Admin(klog.bootstrap), TOPIC)
        write(klog.bootstrap)
        read_and_commit(klog.bootstrap, "plain", 10)
        read_and_commit(klog.bootstrap, "static", 10, **STATIC)
        read_and_commit(klog.bootstrap, "gone", 10)
        commit_without_members(klog.bootstrap, "simple", 10)
        Groups(klog.bootstrap).delete("gone")
        held = Groups(klog.bootstrap).members("static")
        klog.stop()
        assert klog.complaints == []
    with world.kafka() as kafka:
        assert world.kafka_recovery == []
        held = take_over(kafka.bootstrap, 10, held)
    assert world.kafka_complaints == []
    with world.klog() as klog:
        held = take_over(klog.bootstrap, 20, held)
        klog.kill()
    with world.kafka() as kafka:
        held = take_over(kafka.bootstrap, 30, held)
        kafka.kill()
    with world.klog() as klog:
        take_over(klog.bootstrap, 40, held)
        assert klog.complaints == []


def go_on(bootstrap: str, before: int, **config: str) -> None:
    """Two groups are where they were left; each reads on."""
    groups = Groups(bootstrap)
    eventually(lambda: {"left", "held"} <= groups.states().keys())
    expected = [b"%d" % number for number in range(before, before + 10)]
    for group in ("left", "held"):
        assert groups.offset(group) == before
        assert read_and_commit(bootstrap, group, 10, **config) == expected


def test_groups_of_the_new_protocol_go_on_with_kafka_as_classic_ones_and_come_back(world: World) -> None:
    with world.klog(BOTH_PROTOCOLS) as klog:
        world.create(Admin(klog.bootstrap), TOPIC)
        write(klog.bootstrap)
        read_and_commit(klog.bootstrap, "left", 10, **NEW_PROTOCOL)
        member = consumer_of(klog.bootstrap, "held", **NEW_PROTOCOL)
        member.subscribe([TOPIC])
        read: list[bytes] = []
        eventually(
            lambda: (
                read.extend(each.value() for each in member.consume(10 - len(read), 0.1)) or len(read) == 10
            )
        )
        member.commit(asynchronous=False)
        # It is a member in the log for good: nobody says that it leaves.
        klog.kill()
        assert klog.complaints == []
    with pytest.raises(BrokerFailedError, match="only supported in KRaft"):
        world.kafka(BOTH_PROTOCOLS)
    with world.kafka() as kafka:
        go_on(kafka.bootstrap, 10)
    skipped = "Unknown message key with version"
    assert [each for each in world.kafka_complaints if skipped not in each] == []
    assert world.kafka_complaints != []
    with world.klog(BOTH_PROTOCOLS) as klog:
        go_on(klog.bootstrap, 20, **NEW_PROTOCOL)
        klog.stop()
        assert klog.complaints == []
    with world.kafka() as kafka:
        go_on(kafka.bootstrap, 30)
    # A broker that accepts classic members alone takes the groups over as Kafka does.
    with world.klog() as klog:
        go_on(klog.bootstrap, 40)
        klog.stop()
        assert klog.complaints == []
    member.close()


@pytest.mark.parametrize("protocol", ["1.1", "2.1-IV0"])
def test_kafka_reads_the_records_of_an_older_protocol(tmp_path: Path, kafka3: KafkaPeer, protocol) -> None:
    config = {**SINGLE_BROKER, "inter.broker.protocol.version": protocol}
    with KlogBroker(tmp_path / "klog", config) as klog:
        klog.start()
        Admin(klog.bootstrap).create({TOPIC: (1, {})})
        write(klog.bootstrap)
        read_and_commit(klog.bootstrap, "plain", 10)
        commit_without_members(klog.bootstrap, "simple", 7)
        # The other broker must not have ended its session before it is asked.
        member = consumer_of(klog.bootstrap, "held", **{"session.timeout.ms": 120_000})
        member.subscribe([TOPIC])
        eventually(lambda: [each.value() for each in member.consume(1, 0.1)] == [b"0"])
        before = Groups(klog.bootstrap).described("held")
        klog.kill()
        with ZooKeeperBroker.on_log_directory(klog.log_directories()[0], tmp_path / "kafka") as kafka:
            groups = Groups(kafka.bootstrap)
            eventually(lambda: {"plain", "simple", "held"} <= groups.states().keys())
            assert (groups.offset("plain"), groups.offset("simple")) == (10, 7)
            assert groups.described("held") == before
        member.close()
