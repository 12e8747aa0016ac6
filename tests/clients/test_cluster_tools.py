"""Kafka's own tools, kafka-python and plain requests administer a cluster of three klog brokers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Producer

from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.testing.cluster import KlogCluster, cluster
from klog.testing.process import BrokerFailedError, BrokerProcess
from tests.cluster.tools import NOTHING_LISTED, ClusterTools
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer, java_environment
from tests.peers.tool_server import Ended, ToolServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
VERIFY_REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"
RECORD_BYTES, RECORDS = 1_000, 2_000


class World:
    """A cluster, and Kafka's tools for it."""

    def __init__(self, brokers: KlogCluster, tools: ToolServer, work: Path) -> None:
        self.brokers = brokers
        self._tools = ClusterTools(tools, brokers.bootstrap_servers, work)

    def run(self, tool: str, *words: object) -> Ended:
        return self._tools.run(tool, *words)

    def reassign(self, topic: str, targets: dict[int, list[int]], action: str, *words: object) -> str:
        plan = {(topic, number): replicas for number, replicas in targets.items()}
        return self._tools.reassign(action, plan, *words)

    def listed(self) -> str:
        return self._tools.listed()

    def create(self, topic: str, *replicas: list[int]) -> None:
        # Clients are told of the brokers that the asked one knows.
        self.brokers.await_members()
        assignment = ",".join(":".join(map(str, each)) for each in replicas)
        self.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment)
        self.brokers.await_in_sync(topic)

    def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        """The replicas of each partition, as `kafka-topics --describe` shows them."""
        out = self.run(TOPICS, "--describe", "--topic", topic).out
        found = re.findall(r"Partition: (\d+)\s.*?Replicas: ([\d,]+)", out)
        return {int(number): tuple(map(int, ids.split(","))) for number, ids in found}

    def await_replicas(self, topic: str, wanted: dict[int, tuple[int, ...]]) -> None:
        """The tool may ask any broker, which hears of changes later than the controller."""
        eventually(lambda: self.replicas(topic) == wanted)

    def fill(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.brokers.bootstrap_servers, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number * 8 + b"x" * RECORD_BYTES, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0

    def count(self, topic: str) -> int:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.brokers.bootstrap_servers)
        where = kafka.TopicPartition(topic, 0)
        try:
            return int(consumer.end_offsets([where])[where])
        finally:
            consumer.close()


def hosts(broker: BrokerProcess, topic: str) -> bool:
    """Whether partition 0 has a directory on a broker."""
    try:
        return broker.partition_dir(topic, 0).is_dir()
    except BrokerFailedError:
        return False


@pytest.fixture(scope="module")
def world(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    config = {
        # With a low rate one fetch goes through, and no other one for as long as the windows last.
        "replication.quota.window.num": 120,
        # A controller elects preferred leaders by itself 5 s after its own election.
        "auto.leader.rebalance.enable": "false",
    }
    with cluster(3, config) as brokers, ToolServer(kafka3) as tools:
        yield World(brokers, tools, tmp_path_factory.mktemp("plans"))


def test_partitions_move_between_brokers(world: World) -> None:
    world.create("moves", [0, 1], [1, 2])
    world.fill("moves")
    targets = {0: [2, 1], 1: [0, 1, 2]}
    out = world.reassign("moves", targets, "execute")
    assert "Successfully started partition reassignments for moves-0,moves-1" in out

    def verified() -> bool:
        out = world.reassign("moves", targets, "verify")
        return out.count("is completed.") == len(targets)

    eventually(verified)
    assert world.listed() == NOTHING_LISTED
    world.await_replicas("moves", {0: (2, 1), 1: (0, 1, 2)})
    eventually(lambda: world.count("moves") == RECORDS)
    assert world.brokers.brokers[2].partition_dir("moves", 0).is_dir()
    eventually(lambda: not hosts(world.brokers.brokers[0], "moves"))


def test_preferred_leaders_are_elected(world: World) -> None:
    world.create("elects", [0, 1])
    world.reassign("elects", {0: [1, 0]}, "execute")
    world.await_replicas("elects", {0: (1, 0)})
    assert world.brokers.leader("elects") == 0
    where = ("--topic", "elects", "--partition", 0, "--election-type")
    out = world.run(ELECT, *where, "preferred").out
    assert "Successfully completed leader election (PREFERRED) for partitions elects-0" in out
    eventually(lambda: world.brokers.leader("elects") == 1)
    out = world.run(ELECT, *where, "preferred").out
    assert "Valid replica already elected for partitions elects-0" in out
    out = world.run(ELECT, *where, "unclean").out
    assert "Valid replica already elected for partitions elects-0" in out


def test_a_reassignment_is_cancelled(world: World) -> None:
    world.create("cancels", [0, 1])
    world.fill("cancels")
    targets = {0: [2, 1]}
    world.reassign("cancels", targets, "execute", "--throttle", 1_000)
    listed = world.listed()
    assert "cancels-0: replicas: 2,1,0. adding: 2. removing: 0." in listed
    out = world.reassign("cancels", targets, "cancel")
    assert "Successfully cancelled partition reassignment for: cancels-0" in out
    eventually(lambda: set(world.replicas("cancels")[0]) == {0, 1})
    eventually(lambda: world.listed() == NOTHING_LISTED)
    assert world.count("cancels") == RECORDS


def requests_to_controllers() -> dict[ApiKey, dict[str, Any]]:
    """Requests that only the controller carries out, and that have an error code for the whole request."""
    timeout = timedelta(seconds=5)
    return {
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"topics": (), "timeout": timeout},
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None, "timeout": timeout},
        ApiKey.ALLOCATE_PRODUCER_IDS: {"broker_id": 0, "broker_epoch": 1},
        ApiKey.ALTER_PARTITION: {"broker_id": 0, "broker_epoch": 1, "topics": ()},
    }


def test_every_broker_names_the_controller_and_only_that_one_answers_as_controller(world: World) -> None:
    world.brokers.await_members()
    controller = world.brokers.controller()
    admins = [
        kafka.KafkaAdminClient(bootstrap_servers=each.bootstrap_servers)
        for each in world.brokers.brokers.values()
    ]
    try:
        assert {each.describe_cluster()["controller_id"] for each in admins} == {controller}
    finally:
        for each in admins:
            each.close()
    for broker_id, broker in world.brokers.brokers.items():
        host, port = broker.bootstrap_servers.split(":")
        with Channel(host, int(port)) as channel:
            for api, values in requests_to_controllers().items():
                version = 3 if api is ApiKey.ALTER_PARTITION else 0
                answer = channel.send(build(request_class(api, version), **values))
                refused = answer.error_code == ErrorCode.NOT_CONTROLLER
                assert refused == (broker_id != controller), (broker_id, api)


def test_producer_ids_of_all_brokers_come_from_the_controller(world: World) -> None:
    found = []
    api, version = ApiKey.INIT_PRODUCER_ID, 4
    for broker in world.brokers.brokers.values():
        host, port = broker.bootstrap_servers.split(":")
        with Channel(host, int(port)) as channel:

            def next_id(channel: Channel = channel) -> int | None:
                request = build(
                    request_class(api, version),
                    transactional_id=None,
                    transaction_timeout=timedelta(seconds=5),
                    producer_id=-1,
                    producer_epoch=-1,
                )
                answer = channel.send(request)
                return int(answer.producer_id) if answer.error_code == ErrorCode.NONE else None

            eventually(lambda ask=next_id: (found.append(ask()), found[-1] is not None)[1])
    blocks = [each // 1_000 for each in found if each is not None]
    assert len(set(blocks)) == len(world.brokers.brokers)


def test_the_next_controller_continues_a_reassignment(world: World) -> None:
    controller = world.brokers.controller()
    first, second = (each for each in world.brokers.brokers if each != controller)
    world.create("goes-on", [first])
    world.fill("goes-on")
    targets = {0: [second]}
    world.reassign("goes-on", targets, "execute", "--throttle", 1_000)
    world.brokers.kill(controller)

    def continued() -> bool:
        return "goes-on-0: replicas: " in world.listed()

    eventually(lambda: world.brokers.controller() != controller)
    eventually(continued)
    # Another throttle lets it end.
    world.reassign("goes-on", targets, "execute", "--throttle", 100_000_000, "--additional")
    eventually(lambda: "is completed." in world.reassign("goes-on", targets, "verify"))
    world.await_replicas("goes-on", {0: (second,)})
    eventually(lambda: world.count("goes-on") == RECORDS)
    world.brokers.start(controller)


def test_log_directories_of_all_brokers_are_described(world: World) -> None:
    world.create("described", [0, 1])
    world.fill("described")
    world.brokers.await_in_sync("described")
    ended = world.run(LOG_DIRS, "--describe", "--topic-list", "described")
    assert ended.status == 0, ended
    assert "Received log directory information from brokers 0,1,2" in ended.out
    found = json.loads(ended.out.splitlines()[-1])
    assert found["version"] == 1
    replicas = {
        each["broker"]: [partition for path in each["logDirs"] for partition in path["partitions"]]
        for each in found["brokers"]
    }
    assert [len(replicas[broker_id]) for broker_id in range(3)] == [1, 1, 0]
    for broker_id in (0, 1):
        (replica,) = replicas[broker_id]
        assert (replica["partition"], replica["offsetLag"], replica["isFuture"]) == ("described-0", 0, False)
        assert replica["size"] > RECORDS * RECORD_BYTES
    unknown = world.run(LOG_DIRS, "--describe", "--broker-list", "0,7")
    assert unknown.status == 1
    assert "The given brokers do not exist from --broker-list: 7." in unknown.out + unknown.err


def test_kafka_s_tool_finds_that_replicas_agree(world: World, kafka3: KafkaPeer) -> None:
    world.create("verified", [0, 1, 2])
    world.fill("verified")
    world.brokers.await_in_sync("verified")
    command = kafka3.command(
        VERIFY_REPLICAS,
        *("--broker-list", world.brokers.bootstrap_servers, "--topics-include", "verified"),
        *("--time", "-2", "--report-interval-ms", "500", "--max-wait-ms", "100"),
        jvm_flags=QUICK_FLAGS,
    )
    with subprocess.Popen(command, env=java_environment(), stdout=subprocess.PIPE, text=True) as tool:
        try:
            assert tool.stdout is not None
            lines = []
            # It runs until somebody ends it, and reports where its fetchers are.
            for line in tool.stdout:
                lines.append(line)
                if f"max lag is 0 for partition verified-0 at offset {RECORDS}" in line:
                    break
        finally:
            tool.kill()
    assert not [line for line in lines if "doesn't match" in line or "unmatched" in line]
    assert f"at offset {RECORDS}" in lines[-1], lines
