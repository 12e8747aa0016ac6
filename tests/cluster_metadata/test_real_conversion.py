"""A cluster of Kafka 3.9 with ZooKeeper is stopped, converted, and started as Kafka 4.1, which goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from klog.cluster_metadata.comparison import differences
from klog.cluster_metadata.sources import read_source
from tests.commands.running import Run, runner
from tests.peers.broker import KRaftBroker, ZooKeeperBroker, free_port, properties_text
from tests.peers.kafka import KAFKA_3, KafkaPeer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka
TOPICS = {
    "t-delete": {"retention.ms": "-1", "message.timestamp.difference.max.ms": "9000000000000"},
    "t-compact": {"cleanup.policy": "compact"},
}
SASL = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "super.users": "User:ANONYMOUS",
}
QUIET = {"log_level": 0}


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def fill(address: str) -> None:
    """Topics with records, committed and aborted transactions, a group with offsets, and an ACL."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    topics = [NewTopic(name, 3, 1, config=configs) for name, configs in TOPICS.items()]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "x", **QUIET})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for topic in TOPICS:
            for partition in range(3):
                producer.produce(topic, f"{number}", f"k{number % 2}", partition=partition)
        if number % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    offsets = [TopicPartition("t-delete", 0, 2), TopicPartition("t-delete", 1, 3)]
    group = [ConsumerGroupTopicPartitions("g", offsets)]
    for altered in admin.alter_consumer_group_offsets(group).values():
        altered.result(30)
    allowed = AclBinding(
        ResourceType.TOPIC,
        "t-delete",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for created in admin.create_acls([allowed]).values():
        created.result(30)


def records(address: str) -> list[tuple[str, int, int, bytes, bytes]]:
    """All committed records."""
    reading = {"group.id": "reader", "enable.partition.eof": True, **QUIET}
    consumer = Consumer({"bootstrap.servers": address, **reading})
    places = [TopicPartition(topic, partition, 0) for topic in TOPICS for partition in range(3)]
    consumer.assign(places)
    found, at_end = [], 0
    while at_end < len(places):
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found.append(
                (message.topic(), message.partition(), message.offset(), message.key(), message.value())
            )
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            at_end += 1
    consumer.close()
    return sorted(found)


def committed(address: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", **QUIET})
    found = consumer.committed([TopicPartition("t-delete", each) for each in range(3)], 30)
    consumer.close()
    return [each.offset for each in found]


def error_of_alice(address: str, topic: str) -> str | None:
    """What a user who logs in with the old password hears about a record."""
    heard: list[KafkaError | None] = []
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "old-secret",
    }
    producer = Producer({"bootstrap.servers": address, **login, **QUIET})
    producer.produce(topic, b"from alice", partition=0, on_delivery=lambda error, _: heard.append(error))
    assert producer.flush(30) == 0
    return None if heard[0] is None else heard[0].name()


def test_a_stopped_cluster_with_zookeeper_goes_on_as_kafka_4(klog: Run, tmp_path: Path) -> None:
    plain, sasl, controller = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    address = f"127.0.0.1:{plain}"
    before_config = {
        "listeners": listeners,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        **SASL,
    }
    with ZooKeeperBroker(tmp_path, before_config):
        fill(address)
        _alter(
            address, "--entity-type", "users", "--entity-name", "alice", "SCRAM-SHA-256=[password=old-secret]"
        )
        _alter(address, "--entity-type", "users", "--entity-name", "alice", "producer_byte_rate=1048576")
        _alter(address, "--entity-type", "brokers", "--entity-default", "log.cleaner.threads=2")
        before, offsets = records(address), committed(address)
        refused = error_of_alice(f"127.0.0.1:{sasl}", "t-compact")
    source = tmp_path / "zookeeper"
    config = {
        "process.roles": "broker,controller",
        "node.id": 0,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "log.dirs": f"{tmp_path / 'logs'}",
        **SASL,
    }
    properties = tmp_path / "kraft.properties"
    properties.write_text(properties_text(config))
    done = klog("metadata", "convert", source, "--to", "kraft", "--config", properties, "--yes")
    assert done.code == 0, done.err
    assert "message.timestamp.difference.max.ms of topic t-delete becomes" in done.out
    assert "problem:" not in done.err
    with KRaftBroker(tmp_path, config):
        admin = AdminClient({"bootstrap.servers": address, **QUIET})
        eventually(lambda: all(_has_leaders(admin, topic) for topic in TOPICS))
        assert records(address) == before
        assert len(before) == 2 * 3 * 4
        assert committed(address) == offsets == [2, 3, -1001]
        assert error_of_alice(f"127.0.0.1:{sasl}", "t-delete") is None
        assert error_of_alice(f"127.0.0.1:{sasl}", "t-compact") == refused == "TOPIC_AUTHORIZATION_FAILED"
    _require_same_metadata(source, tmp_path / "logs")


def _alter(address: str, *words: str) -> None:
    *entity, change = words
    done = KafkaPeer(KAFKA_3).java(
        "kafka.admin.ConfigCommand", "--bootstrap-server", address, "--alter", *entity, "--add-config", change
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _has_leaders(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(timeout=10).topics.get(topic)
    return found is not None and all(each.leader == 0 for each in found.partitions.values())


def _require_same_metadata(source: Path, logs: Path) -> None:
    """What users set is the same in ZooKeeper's files and in the metadata log that Kafka 4 went on with."""
    kept = ("topic", "acl", "quota", "credential", "config")
    found = [
        (each.item.kind, each.item.name, each.item.member)
        for each in differences(read_source(str(source)).cluster, read_source(str(logs)).cluster)
        if each.item.kind in kept
    ]
    assert found == [
        ("config", "topic t-delete", "message.timestamp.after.max.ms"),
        ("config", "topic t-delete", "message.timestamp.before.max.ms"),
        ("config", "topic t-delete", "message.timestamp.difference.max.ms"),
    ]
