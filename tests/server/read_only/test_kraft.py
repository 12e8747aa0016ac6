"""Directories of KRaft nodes, served read-only: topics, ids and configs are those of the metadata log."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from klog.cluster_metadata import kraft_form
from klog.cluster_metadata.model import Cluster
from klog.config.topic import KEYS_BY_NAME
from klog.formats.names import TopicPartition as Partition
from klog.server.read_only.kraft_metadata import as_served
from tests.clients.python_clients import ConfluentKafka
from tests.corpora import Corpus
from tests.peers import KafkaPeer, KRaftBroker
from tests.server.read_only.serving import served, state_of
from tests.server.read_only.test_corpora import expected

K4 = Corpus("k4-kraft").log_dir()
TIMEOUT_S = 60
NO_LEADER = -1


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(K4.path, tmp_path / "logs"))


def metadata(path: Path) -> Cluster:
    return kraft_form.read([str(path)]).cluster


def topics_of(bootstrap: str) -> dict[str, dict[int, int]]:
    """The leaders of all partitions, by topic and number."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    return {
        name: {number: each.leader for number, each in topic.partitions.items()}
        for name, topic in found.items()
    }


def as_text(topic_id: Uuid) -> str:
    """In Kafka's alphabet; librdkafka has the other one of base 64."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))


def topic_ids_of(bootstrap: str, *names: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
    return {name: as_text(each.result(TIMEOUT_S).topic_id) for name, each in found.items()}


def own_configs_of(bootstrap: str, topic: str) -> dict[str, str | None]:
    """The configs that the topic itself has."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource]
    dynamic_topic_source = 1
    return {
        name: each.value
        for name, each in found.result(TIMEOUT_S).items()
        if each.source == dynamic_topic_source
    }


def test_topics_ids_and_configs_are_those_of_the_metadata_log_and_nothing_is_written(logs: Path) -> None:
    before = state_of(logs)
    cluster = metadata(logs)
    assert cluster.configs, "the fixture has configs of topics"
    with served(logs) as bootstrap:
        assert topics_of(bootstrap) == {
            name: dict.fromkeys(topic.partitions, 1) for name, topic in cluster.topics.items()
        }
        ids = {name: topic.topic_id for name, topic in cluster.topics.items()}
        assert topic_ids_of(bootstrap, *ids) == ids
        for name in cluster.topics:
            configs = next((each for at, each in cluster.configs.items() if at.name == name), {})
            # Values of configs that nobody knows are hidden, as in Kafka.
            assert own_configs_of(bootstrap, name) == {
                key: value if key in KEYS_BY_NAME else None for key, value in configs.items()
            }
        for (topic, number), rows in expected(K4).items():
            if topic in cluster.topics:
                found = ConfluentKafka(bootstrap).read(topic, partition=number)
                assert [each.offset for each in found] == [row["offset"] for row in rows]
    assert state_of(logs) == before


def test_a_partition_without_a_directory_is_there_and_has_no_leader(logs: Path) -> None:
    shutil.rmtree(logs / "m-many-13")
    with served(logs) as bootstrap:
        leaders = topics_of(bootstrap)["m-many"]
        assert (leaders[12], leaders[13]) == (1, NO_LEADER)


def test_a_directory_that_the_metadata_log_does_not_own_is_left_out_and_named(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    shutil.copytree(logs / "m-one-0", logs / "m-two-0")
    shutil.copy(logs / "m-many-0" / "partition.metadata", logs / "m-one-0" / "partition.metadata")
    with served(logs) as bootstrap:
        found = topics_of(bootstrap)
    assert set(found) == {"m-many", "m-one"}
    assert found["m-one"] == {0: NO_LEADER}
    assert "m-two-0 is left out: the metadata log has no topic of this name" in caplog.text
    assert "m-one-0 is left out: the topic of this name has another topic id" in caplog.text


def test_partition_directories_alone_are_served_as_they_say(logs: Path) -> None:
    shutil.copytree(logs / "m-one-0", logs / "m-two-0")
    with served(logs / "m-two-0") as bootstrap:
        assert set(topics_of(bootstrap)) == {"m-two"}


def test_a_damaged_metadata_log_leaves_what_the_directories_say(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for each in (logs / "__cluster_metadata-0").glob("*.checkpoint"):
        each.unlink()
    log = logs / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[300] ^= 0xFF
    log.write_bytes(data)
    with served(logs) as bootstrap:
        assert set(topics_of(bootstrap)) == {"m-many", "m-one"}
    assert "the metadata log cannot be used" in caplog.text
    assert str(log) in caplog.text


def test_configs_of_brokers_are_left_out_and_all_partitions_are_led_here() -> None:
    cluster = metadata(K4.path)
    found = as_served(cluster, "id", {Partition("m-one", 0)}, 7)
    led = found.topics["m-one"].partitions[0]
    assert (led.assignment.replicas, led.state and led.state.isr) == ((7,), (7,))
    assert led.state is not None
    old = cluster.topics["m-one"].partitions[0].state
    assert old is not None
    assert led.state.leader_epoch == old.leader_epoch


@pytest.mark.kafka
def test_what_kafka_4_wrote_is_read_as_the_metadata_log_says(kafka4: KafkaPeer, tmp_path: Path) -> None:
    with KRaftBroker(tmp_path / "kafka", peer=kafka4) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        # A retention that has passed: the records must be read all the same.
        old = {"retention.ms": "1000", "segment.ms": "1000", "cleanup.policy": "delete"}
        created = admin.create_topics([NewTopic("t", 3, 1, config=old), NewTopic("c", 1, 1)])
        for each in created.values():
            each.result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(300):
            producer.produce("t", f"v{number}".encode(), partition=number % 3)
        assert producer.flush(TIMEOUT_S) == 0
        group = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False}
        consumer = Consumer(group)
        consumer.commit(offsets=[TopicPartition("t", 1, 42)], asynchronous=False)
        consumer.close()
        ids = topic_ids_of(broker.bootstrap, "t", "c")
        configs = own_configs_of(broker.bootstrap, "t")
    logs = tmp_path / "kafka" / "logs"
    before = state_of(logs)
    at_once = ("log.initial.task.delay.ms=1", "log.retention.check.interval.ms=10")
    with served(logs, options=at_once) as bootstrap:
        assert topic_ids_of(bootstrap, "t", "c") == ids
        assert own_configs_of(bootstrap, "t") == configs == old
        for number in range(3):
            values = [each.value for each in ConfluentKafka(bootstrap).read("t", partition=number)]
            assert values == [f"v{each}".encode() for each in range(300) if each % 3 == number]
        consumer = Consumer({**group, "bootstrap.servers": bootstrap})
        assert [each.offset for each in consumer.committed([TopicPartition("t", 1)], TIMEOUT_S)] == [42]
        consumer.close()
    assert state_of(logs) == before
