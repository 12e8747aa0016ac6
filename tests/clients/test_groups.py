"""Consumers in groups: unmodified clients share partitions, commit, leave, come back, and are inspected."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.group_clients import MEMBERS, SESSION_MS, Member
from tests.clients.member_programs import ASSIGNORS as PROGRAM_ASSIGNORS
from tests.clients.member_programs import COMMANDS, ProgramMember
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.waiting import eventually

PARTITIONS = 4
COUNT = 50

_groups = itertools.count()

Join = Callable[..., Member]


@pytest.fixture
def topic(broker, new_topic) -> str:
    """A topic with records in every partition."""
    name: str = new_topic(PARTITIONS)
    write(broker, name)
    return name


def write(broker, topic: str, start: int = 0) -> None:
    writer = ConfluentKafka(broker.bootstrap_servers)
    for partition in range(PARTITIONS):
        values = (b"%d:%d" % (partition, start + number) for number in range(COUNT))
        writer.write(topic, [Sent(value) for value in values], partition=partition)


def written(start: int = 0) -> list[bytes]:
    numbers = itertools.product(range(PARTITIONS), range(start, start + COUNT))
    return sorted(b"%d:%d" % each for each in numbers)


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


@pytest.fixture
def join(broker, topic, group, member_program) -> Iterator[Join]:
    """Lets members join; they are closed in the end."""
    with ExitStack() as closing:

        def make(kind: str, **options: str) -> Member:
            where = broker.bootstrap_servers, topic, group
            if kind in MEMBERS:
                member = MEMBERS[kind](*where, **options)
            else:
                member = ProgramMember(member_program(kind), *where, **options)
            closing.callback(member._stop.set)
            return member

        yield make


@pytest.fixture
def admin(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def all_read(*members: Member) -> list[bytes]:
    return sorted(value for member in members for value in member.read)


def _states(members: Sequence[Member]) -> str:
    states = (f"{sorted(each.assigned)}, {len(each.read)} read" for each in members)
    return f"waited in vain; the members have {'; '.join(states)}"


def await_all(expected: list[bytes], *members: Member) -> None:
    eventually(
        lambda: any(each.failure for each in members) or all_read(*members) == expected,
        problem=lambda: _states(members),
    )
    assert [each.failure for each in members] == [None] * len(members)


def await_shares(members: Sequence[Member], *sizes: int) -> None:
    """Wait until each partition has one member, and the members have so many partitions."""

    def shared() -> bool:
        held = sorted(number for each in members for number in each.assigned)
        return held == list(range(PARTITIONS)) and sorted(len(each.assigned) for each in members) == list(
            sizes
        )

    eventually(lambda: any(each.failure for each in members) or shared(), problem=lambda: _states(members))
    assert [each.failure for each in members] == [None] * len(members)


# Programs in Java and Go need what Kafka needs.
KINDS = [*MEMBERS, *(pytest.param(kind, marks=pytest.mark.kafka) for kind in COMMANDS)]
ASSIGNORS = {
    **{kind: make.assignors for kind, make in MEMBERS.items()},
    **dict.fromkeys(COMMANDS, PROGRAM_ASSIGNORS),
}
OTHER_ASSIGNORS = [
    pytest.param(kind, assignor, marks=pytest.mark.kafka if kind in COMMANDS else ())
    for kind, assignors in ASSIGNORS.items()
    for assignor in assignors[1:]
]


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_partitions_and_hand_them_over(join: Join, kind: str) -> None:
    share_and_hand_over(join, kind, ASSIGNORS[kind][0])


# Members assign, not brokers: Kafka with one assignor shows that the test is right.
@pytest.mark.parametrize("broker", ["klog"], indirect=True, scope="session")
@pytest.mark.parametrize(("kind", "assignor"), OTHER_ASSIGNORS)
def test_members_share_partitions_with_every_assignor(join: Join, kind: str, assignor: str) -> None:
    share_and_hand_over(join, kind, assignor)


def share_and_hand_over(join: Join, kind: str, assignor: str) -> None:
    first = join(kind, assignor=assignor)
    first.await_partitions(*range(PARTITIONS))
    await_all(written(), first)
    second = join(kind, assignor=assignor)
    eventually(lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2)
    assert first.assigned | second.assigned == set(range(PARTITIONS))
    first.close()
    second.await_partitions(*range(PARTITIONS))
    second.close()


@pytest.mark.parametrize("kind", KINDS)
def test_three_members_share_and_the_others_take_over_when_one_leaves(join: Join, kind: str) -> None:
    assignor = "sticky" if kind in ("kafka-python", "aiokafka") else "cooperative-sticky"
    members = [join(kind, assignor=assignor) for _ in range(3)]
    await_shares(members, 1, 1, 2)
    members.pop(0).close()
    await_shares(members, 2, 2)
    members.append(join(kind, assignor=assignor))
    await_shares(members, 1, 1, 2)
    for member in members:
        member.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_goes_on_where_it_committed(broker, join: Join, topic, kind: str) -> None:
    first = join(kind)
    await_all(written(), first)
    first.close()
    write(broker, topic, start=COUNT)
    second = join(kind)
    await_all(written(start=COUNT), second)
    second.close()


@pytest.mark.parametrize(
    "kinds", [tuple(MEMBERS), pytest.param(("confluent-kafka", *COMMANDS)[:4], marks=pytest.mark.kafka)]
)
def test_different_clients_share_one_group(join: Join, kinds: Sequence[str]) -> None:
    members = [join(kind) for kind in kinds]
    eventually(
        lambda: (
            sum(len(each.assigned) for each in members) == PARTITIONS
            and all(each.assigned for each in members)
        )
    )
    assert set().union(*(each.assigned for each in members)) == set(range(PARTITIONS))
    for member in members:
        member.close()


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "aiokafka"])
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    join: Join, admin, group, kind: str
) -> None:
    first = join(kind, instance="a")
    first.await_partitions(*range(PARTITIONS))
    second = join(kind, instance="b")
    eventually(lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2)
    held = set(second.assigned)
    second.close()  # a static member does not leave
    again = join(kind, instance="b")
    again.await_partitions(*held)
    assert first.assigned == set(range(PARTITIONS)) - held
    members = admin.describe_consumer_groups([group])[group].result().members
    assert sorted(each.group_instance_id for each in members) == ["a", "b"]
    first.close()
    again.close()


def test_groups_are_described_listed_and_deleted(join: Join, admin, topic, group) -> None:
    member = join("confluent-kafka")
    await_all(written(), member)
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (seen,) = described.members
    assert {each.partition for each in seen.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result()
    member.close()
    listed = {each.group_id: each.state for each in admin.list_consumer_groups().result().valid}
    assert listed[group] is ConsumerGroupState.EMPTY
    admin.delete_consumer_groups([group])[group].result()
    assert group not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_offsets_are_shown_and_changed_by_administrators(join: Join, admin, topic, group) -> None:
    member = join("confluent-kafka")
    await_all(written(), member)
    member.close()
    assert committed(admin, group) == dict.fromkeys(((topic, n) for n in range(PARTITIONS)), COUNT)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, COUNT - 1)])
    admin.alter_consumer_group_offsets([wanted])[group].result()
    assert committed(admin, group)[topic, 0] == COUNT - 1
    again = join("confluent-kafka")
    await_all([b"0:%d" % (COUNT - 1)], again)
    again.close()


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    wanted = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([wanted])[group].result()
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions}


def test_a_consumer_of_assigned_partitions_commits_with_metadata(broker, topic, group) -> None:
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
    }
    consumer = Consumer(config)
    partition = TopicPartition(topic, 1, 7, "höhe")
    (done,) = consumer.commit(offsets=[partition], asynchronous=False)
    assert done.error is None
    known, unknown = consumer.committed([TopicPartition(topic, 1), TopicPartition(topic, 2)], 30)
    consumer.close()
    assert (known.offset, known.metadata) == (7, "höhe")
    assert unknown.offset < 0
