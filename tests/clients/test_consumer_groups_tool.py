"""`kafka-consumer-groups` of Kafka 3.9 and 4.1, with all its actions, on klog and on Kafka 3.9."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.group_clients import ConfluentMember
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.peers.tool_server import ToolServer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS = 3
COUNT = 10
START_MS = 1_600_000_000_000  # 2020-09-13T12:26:40Z

_numbers = itertools.count()


class Groups:
    """The tool on one broker."""

    def __init__(self, tools: ToolServer, broker) -> None:
        self._tools = tools
        self._at = ("--bootstrap-server", broker.bootstrap_servers)

    def run(self, *words: object) -> str:
        """What it prints. Both versions report most failures on stdout, with exit status 0."""
        done = self._tools.run(TOOL, *self._at, *words)
        lines = (done.out + done.err).splitlines(keepends=True)
        # Clients that tools before it left open in the same JVM complain of brokers that have stopped.
        return "".join(line for line in lines if "[AdminClient clientId=" not in line)

    def rows(self, *words: object) -> list[list[str]]:
        """The words of the rows of its tables. There may be a table for each group."""
        lines = [line.split() for line in self.run(*words).splitlines() if line.strip()]
        heads = [number for number, line in enumerate(lines) if line[0] == "GROUP"]
        return sorted(line for number, line in enumerate(lines) if number > heads[0] and number not in heads)

    def reset(self, group: str, topics: str, *how: object) -> dict[int, int]:
        """The new offset of each partition. Version 3.9 prints all rows on one line."""
        said = self.run("--reset-offsets", "--group", group, "--topic", topics, *how)
        topic = topics.partition(":")[0]
        return {int(each): int(offset) for each, offset in re.findall(rf"\b{topic}\s+(\d+)\s+(\d+)", said)}

    def offsets(self, group: str) -> dict[int, tuple[str, str, str]]:
        """Committed offset, log end offset and lag of each partition."""
        rows = (row for row in self.rows("--describe", "--group", group) if row[0] == group)
        return {int(row[2]): (row[3], row[4], row[5]) for row in rows}


@pytest.fixture
def groups(tools, broker) -> Groups:
    return Groups(tools, broker)


@pytest.fixture
def group() -> str:
    return f"tool-{next(_numbers)}"


@pytest.fixture
def topic(broker, new_topic) -> str:
    """A topic with a record a second in each partition."""
    name: str = new_topic(PARTITIONS)
    records = [Sent(b"%d" % number, timestamp_ms=START_MS + 1000 * number) for number in range(COUNT)]
    for partition in range(PARTITIONS):
        ConfluentKafka(broker.bootstrap_servers).write(name, records, partition=partition)
    return name


def commit(broker, group: str, topic: str, offset: int) -> None:
    """Commits this offset for every partition, without a member."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    partitions = [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


@pytest.fixture
def member(broker, topic, group) -> Iterator[ConfluentMember]:
    """A member that holds all partitions, and a commit before it."""
    commit(broker, group, topic, 4)
    joined = ConfluentMember(broker.bootstrap_servers, topic, group, instance="shop")
    joined.await_partitions(*range(PARTITIONS))
    yield joined
    joined._stop.set()


def test_active_groups_are_described(groups: Groups, broker, topic, group, member) -> None:
    (offsets,) = {tuple(row[3:6]) for row in groups.rows("--describe", "--group", group)}
    assert offsets == ("4", "10", "6")
    partitions = [row[2] for row in groups.rows("--describe", "--group", group, "--offsets", "--verbose")]
    assert len(partitions) == PARTITIONS
    (seen,) = groups.rows("--describe", "--group", group, "--members", "--verbose")
    assert seen[0] == group
    assert seen[1].startswith("shop-")
    assert {"shop", "/127.0.0.1", "rdkafka", str(PARTITIONS)} <= set(seen)
    assert any("0,1,2" in word for word in seen)
    (state,) = groups.rows("--describe", "--group", group, "--state")
    assert {group, broker.bootstrap_servers, "(0)", "range", "Stable", "1"} <= set(state)
    everything = groups.rows("--describe", "--all-groups", "--state")
    assert state in everything


def test_groups_are_listed_by_state_and_type(groups: Groups, broker, topic, group, member) -> None:
    idle = f"{group}-idle"
    commit(broker, idle, topic, 1)
    assert {group, idle} <= set(groups.run("--list").split())
    states = {row[0]: row[-1] for row in groups.rows("--list", "--state")}
    assert (states[group], states[idle]) == ("Stable", "Empty")
    assert {row[0]: row[-1] for row in groups.rows("--list", "--type")}[group] == "Classic"
    empty = {row[0] for row in groups.rows("--list", "--state", "Empty", "--type", "classic")}
    assert idle in empty
    assert group not in empty


def test_nothing_is_reset_or_deleted_under_members(groups: Groups, topic, group, member) -> None:
    said = groups.run("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert "can only be reset if the group" in said
    assert "GroupNotEmptyException" in groups.run("--delete", "--group", group)
    said = groups.run("--delete-offsets", "--group", group, "--topic", topic)
    assert said.count("GroupSubscribedToTopicException") == PARTITIONS
    assert groups.offsets(group) == dict.fromkeys(range(PARTITIONS), ("4", "10", "6"))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), COUNT),
        (("--to-current",), 4),
        (("--to-offset", 7), 7),
        (("--shift-by", -3), 1),
        (("--shift-by", 1000), COUNT),
        (("--to-datetime", "2020-09-13T12:26:45.000"), 5),
        (("--by-duration", "P1D"), COUNT),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_offsets_are_reset(groups: Groups, broker, topic, group, how, expected) -> None:
    commit(broker, group, topic, 4)
    wanted = {0: expected, 2: expected}
    assert groups.reset(group, f"{topic}:0,2", *how, "--dry-run") == wanted
    assert groups.offsets(group)[0] == ("4", "10", "6")
    assert groups.reset(group, f"{topic}:0,2", *how, "--execute") == wanted
    told = (str(expected), str(COUNT), str(COUNT - expected))
    assert groups.offsets(group) == {0: told, 1: ("4", "10", "6"), 2: told}


def test_offsets_are_exported_and_reset_from_a_file(groups: Groups, broker, topic, group, tmp_path) -> None:
    commit(broker, group, topic, 4)
    how = ("--reset-offsets", "--group", group, "--all-topics", "--to-current", "--export", "--dry-run")
    exported = sorted(groups.run(*how).split())
    assert exported == [f"{topic},{number},4" for number in range(PARTITIONS)]
    file: Path = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,2\n{topic},1,3\n")
    groups.run("--reset-offsets", "--group", group, "--from-file", file, "--execute")
    assert {number: told[0] for number, told in groups.offsets(group).items()} == {0: "2", 1: "3", 2: "4"}


def test_offsets_and_groups_are_deleted(groups: Groups, broker, topic, group) -> None:
    commit(broker, group, topic, 4)
    assert "Successful" in groups.run("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert set(groups.offsets(group)) == {0, 2}
    said = groups.run("--delete-offsets", "--group", group, "--topic", "no-such-topic")
    assert "UnknownTopicOrPartitionException" in said
    said = groups.run("--delete", "--group", group, "--group", "no-such-group")
    assert "'no-such-group' could not be deleted due to" in said
    assert "GroupIdNotFoundException" in said
    assert group not in groups.run("--list").split()
    said = groups.run("--describe", "--group", group)
    assert re.search(rf"[Gg]roup '?{group}'? (does not exist|not found)", said)


def test_lag_grows_and_shrinks(groups: Groups, broker, topic, group) -> None:
    commit(broker, group, topic, COUNT)
    ConfluentKafka(broker.bootstrap_servers).write(topic, [Sent(b"more")] * 5, partition=1)
    assert groups.offsets(group)[1] == ("10", "15", "5")
    reader = ConfluentMember(broker.bootstrap_servers, topic, group)
    eventually(lambda: reader.failure or len(reader.read) == 5)
    reader.close()
    assert groups.offsets(group)[1] == ("15", "15", "0")
