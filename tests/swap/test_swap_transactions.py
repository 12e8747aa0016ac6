"""Transactions when klog and Apache Kafka 3.9 take turns: each goes on where the other stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from klog.protocol.error_codes import ErrorCode
from tests.clients.python_clients import ConfluentKafka
from tests.metadata.proxy import Proxy
from tests.peers.broker import Config, ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker
from tests.swap.raw_transactions import RawProducer
from tests.swap.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC, OTHER = "orders", "bills"
TOPIC_IDS = {TOPIC: "b3JkZXJzLW9yZGVycy1vcg", OTHER: "YmlsbHMtYmlsbHMtYmlsbA"}
BROKER = 7
TURNS = [("klog", "kafka"), ("kafka", "klog")]
IDS = ["klog-then-kafka", "kafka-then-klog"]


class TransactionWorld(World):
    """A world whose broker is always at one port, and reaches itself through a proxy."""

    def __init__(self, work: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(work, zookeeper)
        port, inner_port = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        self.proxy = Proxy(inner_port)
        self._listeners: Config = {
            "listeners": f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:{inner_port}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:{self.proxy.port}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
        }

    @property
    def _config(self) -> Config:
        return {**super()._config, **self._listeners}

    def start(self, name: str) -> KlogBroker | ZooKeeperBroker:
        """klog or Kafka, when it leads the topics that there are."""
        broker = self.klog() if name == "klog" else self.kafka()
        wanted = self.acknowledged.keys()
        eventually(lambda: wanted <= Admin(self.bootstrap).led())
        return broker

    def take_leader_of_transactions(self) -> None:
        """What a controller does that outlives the broker: `__transaction_state` has no leader.

        Kafka 3.9.1 alone in its cluster loads the transactions before it knows any topic. It takes the
        partitions of a decided transaction for deleted and writes no markers. If the leader must be elected
        first, it knows the topics.
        """
        path = "/brokers/topics/__transaction_state/partitions/0/state"
        client = KazooClient(self.zookeeper.hosts)
        client.start(60)
        try:
            state = json.loads(client.get(path)[0])
            state |= {"leader": -1, "leader_epoch": state["leader_epoch"] + 1}
            client.set(path, json.dumps(state).encode())
        finally:
            client.stop()
            client.close()

    def create_waiting(self, topic: str) -> None:
        """A topic with a second replica, on a broker that never starts, and with min.insync.replicas 2.

        Records with acks=1 can be written, and markers cannot: the ISR is too small for them.
        """
        state = {
            "version": 3,
            "topic_id": TOPIC_IDS[topic],
            "partitions": {"0": [BROKER, BROKER + 1]},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        client = KazooClient(self.zookeeper.hosts)
        client.start(60)
        try:
            config = {"version": 1, "config": {"min.insync.replicas": "2"}}
            client.create(f"/config/topics/{topic}", json.dumps(config).encode(), makepath=True)
            client.create(f"/brokers/topics/{topic}", json.dumps(state).encode(), makepath=True)
        finally:
            client.stop()
            client.close()
        self.acknowledged[topic, 0] = {}
        eventually(lambda: (topic, 0) in Admin(self.bootstrap).led())

    def committed(self, topic: str = TOPIC) -> list[bytes | None]:
        """What a consumer sees that reads committed records only."""
        found = ConfluentKafka(self.bootstrap).read(topic, isolation="read_committed")
        return [one.value for one in found]

    def await_committed(self, *expected: bytes, topic: str = TOPIC) -> None:
        eventually(lambda: self.committed(topic) == [*expected])


@pytest.fixture
def world(tmp_path: Path, kafka3: KafkaPeer) -> Iterator[TransactionWorld]:
    with ExitStack() as closing:
        zookeeper = closing.enter_context(ZooKeeperServer(tmp_path / "zookeeper", kafka3))
        made = TransactionWorld(tmp_path, zookeeper)
        closing.callback(made.proxy.close)
        yield made


def create_topics(world: TransactionWorld) -> None:
    for topic in (TOPIC, OTHER):
        world.create(Admin(world.bootstrap), topic)


def committed_offset(world: TransactionWorld, group: str) -> int | None:
    """The group's offset of the topic; None if it has none."""
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return next((each.offset for each in found.topic_partitions), None)


def stop(broker: KlogBroker | ZooKeeperBroker, *, kill: bool) -> None:
    if kill:
        broker.kill()
    else:
        broker.stop()


def complaints(broker: KlogBroker | ZooKeeperBroker) -> list[str]:
    """Those of klog. At its start, the proxy breaks connections that it has accepted too early."""
    lines = broker.complaints if isinstance(broker, KlogBroker) else []
    return [line for line in lines if "drivers.control_requests" not in line]


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_transactional_ids_keep_their_producer_and_epoch(world: TransactionWorld, kill: bool) -> None:
    producer = RawProducer(world.bootstrap, "pay")
    values: list[bytes] = []
    known = None
    for turn, name in enumerate(("klog", "kafka", "klog", "kafka")):
        with world.start(name) as broker:
            if not turn:
                create_topics(world)
            else:
                assert producer.state() == ("CompleteCommit", *known)
            producer_id, epoch = producer.init()
            assert known is None or (producer_id, epoch) == (known[0], known[1] + 1)
            known = producer_id, epoch
            for value, committed in ((b"aborted %d" % turn, False), (b"committed %d" % turn, True)):
                producer.begin(TOPIC)
                assert producer.send(TOPIC, value) is ErrorCode.NONE
                assert producer.end(committed=committed) is ErrorCode.NONE
            values.append(b"committed %d" % turn)
            eventually(lambda: producer.state()[0] == "CompleteCommit")
            world.await_committed(*values)
            stop(broker, kill=kill)
            assert complaints(broker) == []


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), TURNS, ids=IDS)
def test_an_open_transaction_goes_on(world: TransactionWorld, first: str, second: str, kill: bool) -> None:
    producers = [RawProducer(world.bootstrap, name) for name in ("commits", "aborts")]
    group = "readers"
    with world.start(first) as broker:
        create_topics(world)
        for producer in producers:
            producer.init()
            producer.begin(TOPIC)
            assert producer.send(TOPIC, producer.name.encode() + b" 1") is ErrorCode.NONE
            producer.commit_offset(f"{group}-{producer.name}", TOPIC, 7)
        assert world.committed() == []
        stop(broker, kill=kill)
    with world.start(second) as broker:
        assert world.committed() == []
        for producer in producers:
            assert producer.state() == ("Ongoing", producer.producer_id, producer.epoch)
            assert producer.send(TOPIC, producer.name.encode() + b" 2") is ErrorCode.NONE
            producer.begin(OTHER)
            assert producer.send(OTHER, producer.name.encode() + b" 3") is ErrorCode.NONE
            assert producer.end(committed=producer.name == "commits") is ErrorCode.NONE
        world.await_committed(b"commits 1", b"commits 2")
        world.await_committed(b"commits 3", topic=OTHER)
        eventually(lambda: committed_offset(world, f"{group}-commits") == 7)
        assert committed_offset(world, f"{group}-aborts") is None
        stop(broker, kill=kill)
    with world.start(first):
        world.await_committed(b"commits 1", b"commits 2")
        eventually(lambda: committed_offset(world, f"{group}-commits") == 7)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(("first", "second"), TURNS, ids=IDS)
def test_what_one_broker_has_decided_the_other_completes(
    world: TransactionWorld, first: str, second: str, committed: bool
) -> None:
    producer, group = RawProducer(world.bootstrap, "pay"), "readers"
    with world.start(first) as broker:
        for topic in (TOPIC, OTHER):
            world.create_waiting(topic)
        producer.init()
        producer.begin(TOPIC, OTHER)
        for topic in (TOPIC, OTHER):
            assert producer.send(topic, b"decided", acks=1) is ErrorCode.NONE
        producer.commit_offset(group, TOPIC, 7)
        assert producer.end(committed=committed) is ErrorCode.NONE
        assert producer.state()[0] == ("PrepareCommit" if committed else "PrepareAbort")
        assert world.committed() == []
        broker.kill()
    if second == "kafka":
        world.take_leader_of_transactions()
    with world.start(second) as broker:
        for topic in (TOPIC, OTHER):
            Admin(world.bootstrap).set_configs(topic, {"min.insync.replicas": "1"})
        wanted = "CompleteCommit" if committed else "CompleteAbort"
        eventually(lambda: producer.state()[0] == wanted)
        for topic in (TOPIC, OTHER):
            world.await_committed(*([b"decided"] if committed else []), topic=topic)
        eventually(lambda: committed_offset(world, group) == (7 if committed else None))
        known = producer.producer_id, producer.epoch
        assert producer.init() == (known[0], known[1] + 1)
        assert complaints(broker) == []


@pytest.mark.parametrize(("first", "second"), TURNS, ids=IDS)
def test_a_transaction_that_was_left_open_times_out(world: TransactionWorld, first: str, second: str) -> None:
    producer = RawProducer(world.bootstrap, "pay", timeout_ms=15_000)
    with world.start(first) as broker:
        create_topics(world)
        producer.init()
        producer.begin(TOPIC)
        assert producer.send(TOPIC, b"left") is ErrorCode.NONE
        broker.kill()
    with world.start(second):
        eventually(lambda: producer.state()[0] == "CompleteAbort")
        assert producer.end(committed=True) is ErrorCode.PRODUCER_FENCED
        producer.init()
        producer.begin(TOPIC)
        assert producer.send(TOPIC, b"new") is ErrorCode.NONE
        assert producer.end(committed=True) is ErrorCode.NONE
        world.await_committed(b"new")
