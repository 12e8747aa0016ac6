"""Consumers of the protocol of Kafka 4 (KIP-848): librdkafka's and Java's, on klog and on Kafka 4.1."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from klog.testing.topics import create_topic
from tests.clients.brokers import klog_broker
from tests.clients.group_clients import Member
from tests.clients.member_programs import MemberProgram, ProgramMember
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.peers import KRaftBroker
from tests.waiting import eventually

PARTITIONS = 4
COUNT = 20
SECOND_MS = 1_000
CONFIG = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 30 * SECOND_MS,
    "group.consumer.min.session.timeout.ms": SECOND_MS,
}
# Members check in rarely enough for a busy machine.
REBALANCE_MS = 60 * SECOND_MS

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["klog", pytest.param("kafka4", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that accepts the protocol."""
    if request.param == "klog":
        with klog_broker(CONFIG) as broker:
            yield broker.bootstrap_servers
        return
    peer = request.getfixturevalue("kafka4")
    work: Path = tmp_path_factory.mktemp("kafka4")
    with KRaftBroker(work, CONFIG, peer) as kafka:
        yield kafka.bootstrap


def new_topic(servers: str, name: str | None = None) -> str:
    """A topic with records in every partition."""
    topic = name or f"topic-{next(_numbers)}"
    create_topic(servers, topic, PARTITIONS, {})
    writer = ConfluentKafka(servers)
    for partition in range(PARTITIONS):
        values = [b"%d:%d" % (partition, number) for number in range(COUNT)]
        writer.write(topic, [Sent(value) for value in values], partition=partition)
    return topic


WRITTEN = sorted(b"%d:%d" % each for each in itertools.product(range(PARTITIONS), range(COUNT)))


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def topic(servers: str) -> str:
    return new_topic(servers)


class ConsumerMember(Member):
    """librdkafka with the consumer protocol; with `protocol="classic"` as it was before."""

    def _run(self, servers, topic, group, options) -> None:
        config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": options.get("protocol", "consumer"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": REBALANCE_MS,
        }
        if options.get("protocol") == "classic":
            config |= {"session.timeout.ms": 30 * SECOND_MS, "heartbeat.interval.ms": 200}
            config["partition.assignment.strategy"] = "cooperative-sticky"
        if "assignor" in options:
            config["group.remote.assignor"] = options["assignor"]
        if "instance" in options:
            config["group.instance.id"] = options["instance"]
        consumer = Consumer(config)
        consumer.subscribe([topic])
        while not self._stop.is_set():
            message = consumer.poll(0.05)
            self.assigned = {each.partition for each in consumer.assignment()}
            if message is not None and message.error() is None:
                self.read.append(message.value())
                consumer.store_offsets(message=message) if False else None
                consumer.commit(message=message, asynchronous=True)
        consumer.close()


class JavaConsumerMember(ProgramMember):
    """Java's consumer of Kafka 4.1 with the consumer protocol."""

    def configs(self) -> dict[str, str]:
        return {"group.protocol": "consumer"}
