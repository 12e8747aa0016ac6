"""One broker of real Kafka opens many restored directories at once, and consumers read all topics in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from klog.cluster_metadata import kraft_output
from klog.cluster_metadata.kraft_layout import Layout, Node, Role, new_id, with_directory_ids
from klog.cluster_metadata.metadata_versions import features_at, level_of
from klog.cluster_metadata.model import METADATA_VERSION, Cluster, Partition, Topic
from klog.formats import meta_properties, partition_metadata
from klog.formats.meta_properties import MetaProperties
from klog.formats.partition_metadata import PartitionMetadata
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from tests.peers.broker import KRaftBroker, ZooKeeperBroker, free_port, znodes_for

_CONFIG: Final[Mapping[str, str | int]] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 2,
    "log.cleaner.enable": "false",
}
_RECOVERY: Final = "Recovering|rebuilding index|Corrupt|Found invalid|stray"
_SKIPPED: Final = "since clean shutdown file was found"
# Above that of all records.
_LEADER_EPOCH: Final = 1000
_TIMEOUT_S: Final = 60


def give_new_ids(directory: Path) -> None:
    """Topics that were renamed get an id of their own. In one cluster no two topics may have the same."""
    ids: dict[str, str] = {}
    for path in sorted(directory.glob("*-*/partition.metadata")):
        topic = path.parent.name.rpartition("-")[0]
        ids.setdefault(topic, new_id(os.urandom))
        path.write_bytes(partition_metadata.build(PartitionMetadata(ids[topic])))


def leave_out_state(directory: Path) -> None:
    """Only one directory of a broker can have the topics of the coordinators, whose names are fixed."""
    for path in directory.glob("__*"):
        shutil.rmtree(path)


@contextmanager
def opened_by_kafka_3(directories: Sequence[Path], work: Path) -> Iterator[str]:
    """The address of Kafka 3.9 on these directories, which it must open without recovery."""
    znodes = {path: text for each in directories for path, text in znodes_for(each).items()}
    config = {**_CONFIG, "broker.id": _broker_id(directories[0]), "log.dirs": ",".join(map(str, directories))}
    with ZooKeeperBroker(work, config, znodes=znodes) as broker:
        yield broker.bootstrap
        _require_no_recovery(broker.log_path, directories)


@contextmanager
def opened_by_kafka_4(directories: Sequence[Path], work: Path) -> Iterator[str]:
    """The same for Kafka 4.1, on metadata that klog writes for them."""
    ids = with_directory_ids(list(map(str, directories)), os.urandom)
    level = level_of("4.1")
    topics = {name: topic for each in directories for name, topic in _topics(each, ids[str(each)])}
    features = {METADATA_VERSION: level, **features_at(level, {}, {})}
    cluster = Cluster(
        _identity(directories[0]).cluster_id, topics, features=features, next_producer_id=1_000_000
    )
    node_id = _broker_id(directories[0])
    layout = Layout((Node(node_id, frozenset(Role), ids, str(directories[0])),))
    kraft_output.write(cluster, layout, now_ms=int(time.time() * 1000))
    port, controller = free_port(), free_port()
    config = {
        **_CONFIG,
        "node.id": node_id,
        "log.dirs": ",".join(map(str, directories)),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller}",
    }
    with KRaftBroker(work, config) as broker:
        yield f"127.0.0.1:{port}"
        _require_no_recovery(broker.log_path, directories)


def _identity(directory: Path) -> MetaProperties:
    return meta_properties.parse((directory / "meta.properties").read_bytes())


def _broker_id(directory: Path) -> int:
    found = _identity(directory).node_id
    assert found is not None
    return found


def _topics(directory: Path, directory_id: str) -> Iterator[tuple[str, Topic]]:
    for path, text in znodes_for(directory).items():
        if path.startswith("/brokers/topics/"):
            state = json.loads(text)
            replicas = (_broker_id(directory),)
            partition = Partition(
                ReplicaAssignment(replicas),
                LeaderAndIsr(-1, _LEADER_EPOCH, replicas),
                directories=(directory_id,),
            )
            partitions = {int(number): partition for number in state["partitions"]}
            yield path.rpartition("/")[2], Topic(state["topic_id"], partitions)


def _require_no_recovery(log: Path, directories: Sequence[Path]) -> None:
    text = log.read_text()
    found = re.search(_RECOVERY, text)
    assert found is None, text[max(0, found.start() - 200) : found.end() + 500]
    assert text.count(_SKIPPED) == len(directories)


Read = dict[tuple[str, int], dict[int, tuple[str | None, str]]]


def read_committed(bootstrap: str, partitions: Iterable[tuple[str, int]]) -> Read:
    """Key and value of each record that a read_committed consumer gets, by its offset."""
    reading = {"group.id": "reader", "isolation.level": "read_committed", "check.crcs": True}
    end = {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **reading, **end, "log_level": 0})
    # Not from offset 0: it may be below the log start offset.
    places = [TopicPartition(*each, -2) for each in partitions]
    consumer.assign(places)
    found: Read = {(each.topic, each.partition): {} for each in places}
    at_end: set[tuple[str, int]] = set()
    while len(at_end) < len(places):
        message = consumer.poll(_TIMEOUT_S)
        assert message is not None, "nothing came"
        place = message.topic(), message.partition()
        error = message.error()
        if error is None:
            key = message.key()
            found[place][message.offset()] = (None if key is None else key.decode(), message.value().decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(place)
        else:
            assert error.retriable(), error
    consumer.close()
    return found
