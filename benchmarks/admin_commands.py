"""klog's commands for clusters beside Kafka's scripts, each as a whole process, on one Kafka 3.9.1 broker."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import KAFKA, klog
from benchmarks.measure import Contestant, add_wall, in_turns, ratio_note, table
from benchmarks.rows import Rows
from tests.peers import ZooKeeperBroker

_TOPICS = 100
_PARTITIONS = 4
_GROUPS = 1000
_CREATED_AT_ONCE = 50
LISTING_AIM = 4.0
GROUPS_AIM = 2.0


@dataclass(frozen=True)
class _Question:
    """The same question to both: the command line of Kafka's tool, which klog takes as it is."""

    title: str
    main_class: str
    words: Sequence[str]
    klog: Sequence[str]
    aim: float = LISTING_AIM


_DESCRIBE_GROUPS = ("--describe", "--all-groups")

_QUESTIONS = (
    _Question("topics: list", "org.apache.kafka.tools.TopicCommand", ("--list",), ("topics",)),
    _Question("topics: describe", "org.apache.kafka.tools.TopicCommand", ("--describe",), ("topics",)),
    _Question(
        "configs of a broker",
        "kafka.admin.ConfigCommand",
        ("--describe", "--broker", "0", "--all"),
        ("configs",),
    ),
    _Question("offsets", "org.apache.kafka.tools.GetOffsetShell", (), ("offsets",)),
    _Question("log directories", "org.apache.kafka.tools.LogDirsCommand", ("--describe",), ("log-dirs",)),
    _Question("API versions", "kafka.admin.BrokerApiVersionsCommand", (), ("brokers", "api-versions")),
    _Question(
        "transactions: list", "org.apache.kafka.tools.TransactionsCommand", ("list",), ("transactions",)
    ),
    _Question(
        "groups: list", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", ("--list",), ("groups",)
    ),
    _Question(
        "groups: describe 1,000 with lag",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        _DESCRIBE_GROUPS,
        ("groups",),
        GROUPS_AIM,
    ),
)


def admin_commands(scratch: Path, rounds: int, rows: Rows) -> str:
    """The time from the start of each process to its end."""
    work = scratch / "admin-commands"
    try:
        with ZooKeeperBroker(work) as broker:
            _fill(broker.bootstrap)
            return "\n".join(_compared(question, broker.bootstrap, rounds, rows) for question in _QUESTIONS)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(bootstrap: str) -> None:
    """Makes topics, and groups that have committed offsets in one topic each."""
    from klog.admin import connect, topics  # noqa: PLC0415
    from klog.admin.offset_reset import set_offsets  # noqa: PLC0415
    from klog.admin.settings import settings_of  # noqa: PLC0415
    from klog.client.admin import NewTopic  # noqa: PLC0415
    from klog.formats.names import TopicPartition  # noqa: PLC0415

    names = [f"topic-{number}" for number in range(_TOPICS)]
    with connect.cluster(settings_of({}, bootstrap=bootstrap)) as cluster:
        for start in range(0, _TOPICS, _CREATED_AT_ONCE):
            wanted = [
                NewTopic(name, _PARTITIONS, 1, {}, {}) for name in names[start : start + _CREATED_AT_ONCE]
            ]
            topics.create(cluster, wanted, connect.partitions_retry(), validate_only=False)
        for number in range(_GROUPS):
            topic = names[number % _TOPICS]
            offsets = {TopicPartition(topic, partition): 0 for partition in range(_PARTITIONS)}
            set_offsets(cluster, f"group-{number}", offsets)


def _compared(question: _Question, bootstrap: str, rounds: int, rows: Rows) -> str:
    at = ("--bootstrap-server", bootstrap)
    words = (*at, *question.words)
    ours = klog(*question.klog, *words)
    theirs = Contestant(question.main_class.rpartition(".")[2], KAFKA.command(question.main_class, *words))
    in_turns([ours, theirs], 1)  # warms up both
    one, other = in_turns([ours, theirs], rounds)
    add_wall(rows, question.title, one, other)
    return table(question.title, [one, other], {"klog": ratio_note(one, other, question.aim)})
