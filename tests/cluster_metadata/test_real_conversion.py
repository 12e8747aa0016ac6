"""A cluster of Kafka 3.9 with ZooKeeper is stopped, converted, and started as Kafka 4.1, which goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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
REPLICATED = {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def fill(address: str, *, replicas: int = 1) -> None:
    """Topics with records, committed and aborted transactions, and a group with offsets."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    topics = [NewTopic(name, 3, replicas, config=configs) for name, configs in TOPICS.items()]
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


def allow_alice(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
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
        allow_alice(address)
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


def test_three_controllers_and_three_brokers_start_on_what_is_converted(klog: Run, tmp_path: Path) -> None:
    ports = {node_id: free_port() for node_id in range(6)}
    zookeeper = tmp_path / "0" / "zookeeper"
    first = ZooKeeperBroker(tmp_path / "0", {"broker.id": 0, **REPLICATED, "listeners": _plain(ports[0])})
    connect = {"zookeeper.connect": first.config["zookeeper.connect"], **REPLICATED}
    with first, ExitStack() as others:
        for each in (1, 2):
            config = {"broker.id": each, "listeners": _plain(ports[each]), **connect}
            others.enter_context(ZooKeeperBroker(tmp_path / str(each), config))
        fill(_address(ports[0]), replicas=3)
        before = records(_address(ports[0]))
    voters = ",".join(f"{each}@{_address(ports[each])}" for each in (3, 4, 5))
    configs: dict[int, dict[str, str | int]] = {
        each: {
            "process.roles": "broker" if each < 3 else "controller",
            "node.id": each,
            "listeners": _plain(ports[each]) if each < 3 else f"CONTROLLER://{_address(ports[each])}",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{tmp_path / str(each) / 'logs'}",
            **REPLICATED,
        }
        for each in range(6)
    }
    files: list[object] = []
    for each, config in configs.items():
        path = tmp_path / f"{each}.properties"
        path.write_text(properties_text(config))
        files += ["--config", path]
    done = klog("metadata", "convert", zookeeper, *files, "--yes")
    assert done.code == 0, done.err
    assert "problem:" not in done.err
    with ExitStack() as running:
        # One controller is not ready before another is there. Brokers stop first: they ask the controllers.
        with ThreadPoolExecutor(6) as starting:
            starts = [
                starting.submit(KRaftBroker, tmp_path / str(each), configs[each])
                for each in (3, 4, 5, 0, 1, 2)
            ]
            for start in starts:
                running.enter_context(start.result())
        admin = AdminClient({"bootstrap.servers": _address(ports[0]), **QUIET})
        eventually(lambda: all(_in_sync(admin, topic) == [3, 3, 3] for topic in TOPICS))
        assert records(_address(ports[1])) == before
        assert committed(_address(ports[2])) == [2, 3, -1001]
    logs = [f"{tmp_path / str(each) / 'logs'}" for each in (3, 4, 5)]
    _require_same_metadata(zookeeper, ",".join(logs))


def _plain(port: int) -> str:
    return f"PLAINTEXT://{_address(port)}"


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"


def _in_sync(admin: AdminClient, topic: str) -> list[int]:
    """The sizes of the ISRs of a topic's partitions."""
    found = admin.list_topics(timeout=10).topics.get(topic)
    return [] if found is None else [len(each.isrs) for each in found.partitions.values()]


def _alter(address: str, *words: str) -> None:
    *entity, change = words
    done = KafkaPeer(KAFKA_3).java(
        "kafka.admin.ConfigCommand", "--bootstrap-server", address, "--alter", *entity, "--add-config", change
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _has_leaders(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(timeout=10).topics.get(topic)
    return found is not None and all(each.leader == 0 for each in found.partitions.values())


def _require_same_metadata(source: Path, logs: Path | str) -> None:
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
