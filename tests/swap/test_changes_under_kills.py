"""Topics are created, extended, changed and deleted while the broker is killed.

klog and Kafka take turns on one ZooKeeper. The next broker completes the changes of the one before, and no
acknowledged change is undone. `KLOG_TEST_CHANGE_ROUNDS` sets the number of rounds and `KLOG_TEST_SEED` the
sequence of changes.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient

from tests.peers.broker import Config, read_properties
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.world import World
from tests.threads import join, started
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROUNDS: Final = int(os.environ.get("KLOG_TEST_CHANGE_ROUNDS", "4"))
SEED: Final = int(os.environ.get("KLOG_TEST_SEED", "8"))
NAMES: Final = ("a", "b", "c", "d", "e.f")
MOST_PARTITIONS: Final = 8
# The outcome of a change that takes longer is unknown, as of one that a kill interrupts.
OUTCOME_S: Final = 5.0
TIMES: Final = {"operation_timeout": OUTCOME_S, "request_timeout": OUTCOME_S}
CONFIG: Final = "max.message.bytes"


class State(NamedTuple):
    """A possible state of a topic in ZooKeeper. A topic without partitions does not exist."""

    partitions: int = 0
    max_message_bytes: str | None = None


class Topic:
    """The possible states of one topic: a single one, as long as the outcome of every change is known."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.possible = {State()}
        self.acknowledged: Written = {}

    def attempt(self, after: State, change: Callable[[], Mapping[Any, Any]]) -> None:
        """Makes a change that leads to `after`. If there is no answer, both states are possible."""
        self.possible |= {after}
        for future in change().values():
            future.result(2 * OUTCOME_S)
        self.possible = {after}


class Changes:
    """A thread that changes topics, one after the other, until `end` is called."""

    def __init__(self, topics: list[Topic], bootstrap: str, chance: random.Random) -> None:
        self.made = 0
        self._topics = topics
        self._bootstrap = bootstrap
        self._chance = chance
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None}
        )
        self._ending = threading.Event()
        self._thread = started(self._run)

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended. It also ends once no topic is left whose state is known."""
        return not self._thread.is_alive()

    def end(self) -> None:
        self._ending.set()
        join([self._thread])

    def _run(self) -> None:
        while not self._ending.is_set():
            certain = [topic for topic in self._topics if len(topic.possible) == 1]
            if not certain:
                return
            with suppress(KafkaException):
                self._change(self._chance.choice(certain))
                self.made += 1

    def _change(self, topic: Topic) -> None:
        (now,) = topic.possible
        if not now.partitions:
            self._create(topic)
            return
        what = self._chance.choice(("delete", "grow", "configure", "write", "write"))
        if what == "delete":
            topic.acknowledged = {}
            topic.attempt(State(), lambda: self._admin.delete_topics([topic.name], **TIMES))
        elif what == "configure":
            self._configure(topic, now)
        elif what == "grow" and now.partitions < MOST_PARTITIONS:
            wanted = NewPartitions(topic.name, now.partitions + 1)
            grown = now._replace(partitions=now.partitions + 1)
            topic.attempt(grown, lambda: self._admin.create_partitions([wanted], **TIMES))
        else:
            self._write(topic)

    def _create(self, topic: Topic) -> None:
        after = State(self._chance.randint(1, 3), self._chance.choice((None, "2000000")))
        configs = {} if after.max_message_bytes is None else {CONFIG: after.max_message_bytes}
        wanted = NewTopic(topic.name, after.partitions, 1, config=configs)
        topic.attempt(after, lambda: self._admin.create_topics([wanted], **TIMES))

    def _configure(self, topic: Topic, now: State) -> None:
        value = str(self._chance.randint(1_000_000, 2_000_000))
        entry = ConfigEntry(CONFIG, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[entry])
        topic.attempt(
            now._replace(max_message_bytes=value),
            lambda: self._admin.incremental_alter_configs([resource], request_timeout=OUTCOME_S),
        )

    def _write(self, topic: Topic) -> None:
        # Not idempotent: getting a producer id for a few records would take longer than all the rest.
        writer = Writer(self._bootstrap, topic.acknowledged, enable_idempotence=False, acks="all")
        for number in range(20):
            writer.write(topic.name, b"%d/" % number * 50)
        writer.flush(OUTCOME_S)
        writer.abandon()


class ChangingWorld(World):
    """A world whose topics are compared with ZooKeeper and with the log directories."""

    @property
    def _config(self) -> Config:
        return {**super()._config, "log.segment.delete.delay.ms": 100, "auto.create.topics.enable": "false"}

    @contextmanager
    def _tree(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper.hosts)
        client.start(60)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def settled(self, bootstrap: str) -> bool:
        """Whether every change is complete: each topic has its leaders, logs and config."""
        with self._tree() as tree:
            if tree.get_children("/admin/delete_topics"):
                return False
            ids = {
                f"{name}-{number}": node["topic_id"]
                for name, node in self._nodes(tree).items()
                for number in node["partitions"]
            }
        led = {f"{name}-{number}" for name, number in Admin(bootstrap).led()}
        found = [path for each in self.directories for path in each.glob("*-*") if path.is_dir()]
        if led != ids.keys() or sorted(path.name for path in found) != sorted(ids):
            return False
        return all(
            read_properties(path / "partition.metadata", ":")["topic_id"] == ids[path.name] for path in found
        )

    def states(self) -> dict[str, State]:
        with self._tree() as tree:
            return {
                name: State(
                    len(node["partitions"]),
                    json.loads(tree.get(f"/config/topics/{name}")[0])["config"].get(CONFIG),
                )
                for name, node in self._nodes(tree).items()
            }

    def _nodes(self, tree: KazooClient) -> dict[str, Any]:
        names = tree.get_children("/brokers/topics")
        return {name: json.loads(tree.get(f"/brokers/topics/{name}")[0]) for name in names}

    def look(self, bootstrap: str, topics: list[Topic]) -> None:
        """Checks that every topic is in a possible state, which is its known state from now on."""
        eventually(lambda: self.settled(bootstrap))
        states = self.states()
        # Kafka creates a topic for the offsets of consumers when the first of them connects.
        assert states.keys() <= {*NAMES, "__consumer_offsets"}
        for topic in topics:
            now = states.get(topic.name, State())
            assert now in topic.possible, topic.name
            topic.possible = {now}
            if now.partitions:
                found = read(bootstrap, [(topic.name, number) for number in range(now.partitions)])
                for partition, records in topic.acknowledged.items():
                    assert records.items() <= found[partition].items(), partition


def test_the_next_broker_completes_changes_and_acknowledged_ones_stay(
    tmp_path: Path, kafka3: KafkaPeer
) -> None:
    chance = random.Random(SEED)
    topics = [Topic(name) for name in NAMES]
    made = 0
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        world = ChangingWorld(tmp_path, zookeeper)
        for number in range(ROUNDS):
            broker = world.kafka() if number % 3 == 1 else world.klog()
            try:
                world.look(broker.bootstrap, topics)
                changes = Changes(topics, broker.bootstrap, chance)
                eventually(lambda changes=changes: changes.made > 2 or changes.has_ended)
                time.sleep(chance.uniform(0, 2))
            finally:
                broker.kill()
            changes.end()
            made += changes.made
        with world.klog() as klog:
            world.look(klog.bootstrap, topics)
            assert "Traceback" not in klog.log_text
            klog.stop()
    assert made > 2 * ROUNDS
