"""Consumers of the protocol of Kafka 4 (KIP-848): librdkafka's and Java's, on klog and on Kafka 4.1."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from klog.testing.topics import create_topic
from tests.clients.brokers import klog_or_kafka4
from tests.clients.group_clients import Member
from tests.clients.member_programs import MemberProgram, ProgramMember
from tests.clients.python_clients import ConfluentKafka, Sent
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
    with klog_or_kafka4(request, tmp_path_factory, CONFIG) as address:
        yield address


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
            "metadata.max.age.ms": SECOND_MS,
        }
        if options.get("protocol") == "classic":
            config |= {"session.timeout.ms": 30 * SECOND_MS, "heartbeat.interval.ms": 200}
            config["partition.assignment.strategy"] = "cooperative-sticky"
        elif "assignor" in options:
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
                consumer.commit(message=message, asynchronous=True)
        consumer.close()


MEMBERS = ("librdkafka", "java 4.1")
Join = Callable[..., Member]


@pytest.fixture
def join(
    servers: str, topic: str, group: str, member_program: Callable[[str], MemberProgram]
) -> Iterator[Join]:
    """Lets members join; they are closed in the end."""
    with ExitStack() as closing:

        def make(kind: str = "librdkafka", *, subscribe: str = topic, **options: str) -> Member:
            options = {"protocol": "consumer", **options}
            if kind == "librdkafka":
                member: Member = ConsumerMember(servers, subscribe, group, **options)
            else:
                member = ProgramMember(member_program(kind), servers, subscribe, group, **options)
            closing.callback(member._stop.set)
            return member

        yield make


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def describe(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    return admin.describe_consumer_groups([group])[group].result()


def await_shared(*members: Member) -> None:
    """Wait until the members share all partitions evenly."""

    def shared() -> bool:
        held = sorted(number for member in members for number in member.assigned)
        sizes = [len(member.assigned) for member in members]
        return held == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

    eventually(lambda: any(each.failure for each in members) or shared())
    assert [each.failure for each in members] == [None] * len(members)


def await_read(*members: Member) -> None:
    """Wait until the members have read every record once."""
    eventually(lambda: sorted(value for member in members for value in member.read) == WRITTEN)


def await_committed(admin: AdminClient, group: str) -> None:
    """Wait until the group has committed every record."""

    def committed() -> int:
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked])[group].result().topic_partitions
        return sum(each.offset for each in found)

    eventually(lambda: committed() == len(WRITTEN))


@pytest.mark.parametrize("kind", MEMBERS)
def test_members_share_partitions_and_hand_them_over(
    join: Join, admin: AdminClient, group: str, kind: str
) -> None:
    first = join(kind)
    await_shared(first)
    await_read(first)
    if kind == "librdkafka":
        await_committed(admin, group)
    second = join(kind)
    await_shared(first, second)
    first.close()
    await_shared(second)
    if kind == "librdkafka":
        assert second.read == []  # it commits every record, Java's member when it closes
    second.close()


def test_java_and_librdkafka_share_a_group(join: Join) -> None:
    members = [join(kind) for kind in (*MEMBERS, *MEMBERS)]
    await_shared(*members)
    for member in members:
        member.close()


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_members_choose_the_assignor(join: Join, admin: AdminClient, group: str, assignor: str) -> None:
    members = [join(assignor=assignor), join(assignor=assignor)]
    await_shared(*members)
    described = describe(admin, group)
    assert (described.type, described.partition_assignor) == (ConsumerGroupType.CONSUMER, assignor)
    eventually(lambda: describe(admin, group).state is ConsumerGroupState.STABLE)
    for member in members:
        member.close()
    eventually(lambda: describe(admin, group).state is ConsumerGroupState.EMPTY)


def test_klog_s_own_command_describes_the_group(
    servers: str, join: Join, admin: AdminClient, topic: str, group: str
) -> None:
    member = join()
    await_shared(member)
    eventually(lambda: describe(admin, group).state is ConsumerGroupState.STABLE)
    command = [sys.executable, "-m", "klog", "groups", "describe", group, "--json"]
    done = subprocess.run(
        [*command, "--bootstrap-server", servers], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["protocolType"], told["assignmentStrategy"]) == (
        "Stable",
        "consumer",
        "uniform",
    )
    assert [each["assignment"] for each in told["members"]] == [{topic: list(range(PARTITIONS))}]
    member.close()


def test_a_static_member_comes_back_to_its_partitions(join: Join, admin: AdminClient, group: str) -> None:
    first, second = join(instance="a"), join(instance="b")
    await_shared(first, second)
    held = set(second.assigned)
    second.close()
    again = join(instance="b")
    again.await_partitions(*held)
    assert first.assigned == set(range(PARTITIONS)) - held
    assert {each.group_instance_id for each in describe(admin, group).members} == {"a", "b"}
    first.close()
    again.close()


def test_a_regular_expression_finds_topics_that_are_created_later(servers: str, join: Join) -> None:
    prefix = f"pattern-{next(_numbers)}"
    member = join(subscribe=f"^{prefix}.*")
    new_topic(servers, f"{prefix}-a")
    await_read(member)
    member.close()


def test_a_group_changes_to_the_new_protocol_and_back_without_a_stop(
    join: Join, admin: AdminClient, group: str
) -> None:
    old = join(protocol="classic")
    await_shared(old)
    await_read(old)
    await_committed(admin, group)
    new = join()
    await_shared(old, new)
    assert describe(admin, group).type is ConsumerGroupType.CONSUMER
    old.close()
    await_shared(new)
    back = join(protocol="classic")
    await_shared(new, back)
    new.close()
    await_shared(back)
    eventually(lambda: describe(admin, group).type is ConsumerGroupType.CLASSIC)
    assert new.read == back.read == []  # what was committed stays committed
    back.close()
