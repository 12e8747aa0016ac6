"""The command lines of kafka-consumer-groups, with Kafka's tool and with klog: the same stdout."""

from __future__ import annotations

import re

import confluent_kafka
import pytest

from tests.clients.test_command_lines import Both, bootstrap, both  # noqa: F401 (fixtures)
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

GROUPS = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "groups")


def alike(both: Both, *words: object) -> str:  # noqa: F811
    """What klog prints; what Kafka's tool prints has the same lines (it may not end the last one)."""
    kafka, klog = both.together(GROUPS, *words)
    assert klog.succeeded == kafka.succeeded
    assert klog.out.splitlines() == kafka.out.splitlines()
    return klog.out


@pytest.fixture
def consumed(both: Both, bootstrap: str) -> str:  # noqa: F811
    """A topic with records, of which the group `simple` has committed offsets."""
    create = ("org.apache.kafka.tools.TopicCommand", "topics")
    both.klog(create, "--create", "--topic", "orders", "--partitions", 2, "--if-not-exists")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce("orders", str(number), partition=number % 2)
    producer.flush()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    offsets = [confluent_kafka.TopicPartition("orders", number, 3 + number) for number in range(2)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    return "orders"


def test_groups_are_listed_described_and_reset_alike(both: Both, consumed: str) -> None:  # noqa: F811
    of_group = ("--group", "simple")
    assert alike(both, "--list") == "simple\n"
    assert alike(both, "--list", "--state")
    assert alike(both, "--list", "--state", "Empty", "--type", "classic")
    assert alike(both, "--describe", *of_group).count("\n") == 4
    assert alike(both, "--describe", "--all-groups", "--state")
    assert alike(both, "--describe", *of_group, "--members").count("\n") == 2
    reset = ("--reset-offsets", *of_group)
    for rule in (("--to-earliest",), ("--shift-by", 2), ("--to-offset", 99), ("--by-duration", "PT1H")):
        exported = alike(both, *reset, "--all-topics", *rule, "--export")
        assert len(exported.split()) == 2
        assert both.klog(GROUPS, *reset, "--topic", "orders:1", *rule).out.split()[4:7:2] == ["simple", "1"]


def test_members_are_described_alike(both: Both, bootstrap: str, consumed: str) -> None:  # noqa: F811
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "group.instance.id": "one"}
    )
    consumer.subscribe([consumed])

    def assigned() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    eventually(assigned)
    try:
        of_group = ("--describe", "--group", "readers")
        verbose = both.klog(GROUPS, *of_group, "--members", "--verbose").out
        # The tool of 3.9.1 leaves out the name of the topic.
        assert verbose.replace("orders(", "(") == both.kafka(GROUPS, *of_group, "--members", "--verbose").out
        assert re.search(r"orders\(0,1\)$", verbose, re.MULTILINE)
        assert alike(both, *of_group, "--members")
        assert alike(both, *of_group)
        assert alike(both, *of_group, "--state")
    finally:
        consumer.close()
