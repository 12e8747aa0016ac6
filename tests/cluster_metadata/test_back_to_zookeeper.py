"""The metadata and logs of a Kafka 4 go back to ZooKeeper: real Kafka 3.9 goes on with everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from klog.cluster_metadata import comparison, kraft_form, tree_form, tree_output, without_kraft
from klog.cluster_metadata.model import Cluster
from klog.formats import meta_properties
from klog.metadata import paths, znodes
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.zookeeper import ZooKeeperStore
from tests.peers import KafkaPeer, KRaftBroker, ZooKeeperBroker
from tests.peers.broker import BrokerFailedError, Config, free_port
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "wonder",
}
RECORDS = 40


def secured(authorizer: str, plain: int, sasl: int, more: str = "") -> dict[str, str | int]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}{more}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "authorizer.class.name": authorizer,
        "super.users": "User:ANONYMOUS",
    }


def kraft_config(plain: int, sasl: int) -> Config:
    controller = free_port()
    return {
        **secured(
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            plain,
            sasl,
            f",CONTROLLER://127.0.0.1:{controller}",
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    }


def wait(futures: dict) -> None:
    for future in futures.values():
        future.result(20)


def fill(bootstrap: str) -> None:
    """Topics, records of all kinds, groups, users, ACLs and configs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait(
        admin.create_topics(
            [
                NewTopic("plain", 3, config={"retention.ms": "99999999"}),
                NewTopic("secret", 1),
                NewTopic("compacted", 1, config={"cleanup.policy": "compact"}),
            ]
        )
    )
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wait(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", credential, b"wonder")]))
    wait(
        admin.create_acls(
            [
                AclBinding(
                    kind,
                    name,
                    ResourcePatternType.LITERAL,
                    "User:alice",
                    "*",
                    operation,
                    AclPermissionType.ALLOW,
                )
                for kind, name, operation in (
                    (ResourceType.TOPIC, "plain", AclOperation.READ),
                    (ResourceType.GROUP, "of-alice", AclOperation.READ),
                )
            ]
        )
    )
    changed = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    wait(admin.incremental_alter_configs([changed]))
    produce(bootstrap, 0)
    commit(bootstrap, "classic-group", {})
    commit(bootstrap, "consumer-group", {"group.protocol": "consumer"})


def produce(bootstrap: str, start: int) -> None:
    """Records of a transaction, of one that is aborted, and of an idempotent producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    producer.init_transactions(20)
    for commits in (True, False):
        producer.begin_transaction()
        for number in range(start, start + RECORDS):
            producer.produce("plain", f"{commits} {number}", str(number), partition=number % 3)
            producer.produce("compacted", f"{commits} {number}", str(number))
        if commits:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    idempotent = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    idempotent.produce("secret", f"{start}", "k")
    assert idempotent.flush(20) == 0


def commit(bootstrap: str, group: str, more: dict[str, str]) -> None:
    """A member reads some records and commits."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False, **more})
    consumer.subscribe(["plain"])
    eventually(lambda: bool(consumer.poll(0.5)))
    places = [TopicPartition("plain", number, 5 + number) for number in range(3)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def read_all(config: dict[str, str], topic: str, group: str) -> list[str]:
    """The committed records of a topic from its start on."""
    consumer = Consumer({**config, "group.id": group, "enable.auto.commit": False})
    try:
        return read_by(consumer, topic)
    finally:
        consumer.close()


def read_by(consumer: Consumer, topic: str) -> list[str]:
    described = consumer.list_topics(topic, 20).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    places = [TopicPartition(topic, number, 0) for number in described.partitions]
    ends = {each.partition: consumer.get_watermark_offsets(each, 20)[1] for each in places}
    consumer.assign(places)
    found: list[str] = []

    def is_read() -> bool:
        for message in consumer.consume(500, 0.5):
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(message.value().decode())
        return all(each.offset >= ends[each.partition] for each in consumer.position(places))

    eventually(is_read)
    return sorted(found)


def has_begun(config: dict[str, str]) -> bool:
    """Whether the broker leads its partitions again."""
    try:
        return bool(read_all(config, "plain", "r"))
    except KafkaException:
        return False


def expected(*starts: int) -> list[str]:
    return sorted(f"True {number}" for start in starts for number in range(start, start + RECORDS))


def committed(bootstrap: str, group: str) -> Sequence[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group)]
    (future,) = admin.list_consumer_group_offsets(asked).values()
    found = future.result(20).topic_partitions
    return [each.offset for each in sorted(found, key=lambda each: each.partition)]


def test_kafka_3_9_goes_on_where_a_kafka_4_was_stopped(
    kafka3: KafkaPeer, kafka4: KafkaPeer, tmp_path: Path
) -> None:
    plain, sasl = free_port(), free_port()
    with KRaftBroker(tmp_path / "four", kraft_config(plain, sasl), kafka4):
        fill(f"127.0.0.1:{plain}")
    logs = tmp_path / "four" / "logs"
    old = kraft_form.read([str(logs)]).cluster
    cluster, kept_back = without_kraft.cluster_without_kraft(old)
    assert kept_back == ()
    assert [each.partition(":")[0] for each in without_kraft.not_read_by_kafka_3_9(old)] == [
        "groups of the consumer protocol (KIP-848)"
    ]
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as server:
        hosts = f"{server.hosts}/back"
        write(hosts, cluster)
        identity = meta_properties.parse((logs / "meta.properties").read_bytes())
        without_kraft.rewrite_identities({str(logs): identity})
        config = {
            **secured("kafka.security.authorizer.AclAuthorizer", plain, sasl),
            "broker.id": 1,
            "zookeeper.connect": hosts,
            "log.dirs": str(logs),
        }
        with ZooKeeperBroker(tmp_path / "three", config, kafka3):
            goes_on(f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}")
            now = read(hosts)
    assert {name: each.topic_id for name, each in now.topics.items()} == {
        name: each.topic_id for name, each in old.topics.items()
    }
    kinds = {"topic", "config", "quota", "credential", "acl"}
    assert [each for each in comparison.differences(old, now) if each.item.kind in kinds] == []
    assert now.controller_epoch > old.controller_epoch


def goes_on(bootstrap: str, sasl: str) -> None:
    everybody = {"bootstrap.servers": bootstrap}
    alice = {"bootstrap.servers": sasl, **ALICE}
    eventually(lambda: has_begun(everybody))
    assert read_all(everybody, "plain", "r") == expected(0)
    assert read_all(everybody, "compacted", "r") == expected(0)
    assert read_all(everybody, "secret", "r") == ["0"]
    assert committed(bootstrap, "classic-group") == [5, 6, 7]
    assert committed(bootstrap, "consumer-group") == [5, 6, 7]
    commit(bootstrap, "classic-group", {})
    produce(bootstrap, 1000)
    assert read_all(everybody, "plain", "r") == expected(0, 1000)
    assert read_all(alice, "plain", "of-alice") == expected(0, 1000)
    with pytest.raises(KafkaException) as refused:
        read_all(alice, "secret", "of-alice")
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def write(hosts: str, cluster: Cluster) -> None:
    store = ZooKeeperStore(hosts)
    try:
        tree_output.write(store, cluster)
    finally:
        store.close()


def read(hosts: str) -> Cluster:
    store = ZooKeeperStore(hosts)
    try:
        return tree_form.read(store, "").cluster
    finally:
        store.close()


def test_no_kafka_starts_on_a_tree_that_was_not_written_to_its_end(kafka3: KafkaPeer, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as server:
        store = ZooKeeperStore(f"{server.hosts}/half")
        store.create(paths.CLUSTER_ID, znodes.encode_unfinished_tree("x"), make_parents=True)
        try:
            with pytest.raises(BrokerFailedError):
                ZooKeeperBroker(tmp_path / "kafka", {"zookeeper.connect": f"{server.hosts}/half"}, kafka3)
            assert store.children(paths.BROKER_IDS) == []
            with pytest.raises(InvalidZnodeError, match="not written to its end"):
                tree_form.read(store, "")
        finally:
            store.close()
