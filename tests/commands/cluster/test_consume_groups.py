"""`klog consume --group` on real clusters: shared partitions, commits, rebalances, interruptions."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.commands.running import Run, runner
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

RUN = "from klog.commands.main import main; main()"
QUICK = (
    "--consumer-property",
    "heartbeat.interval.ms=200",
    "--consumer-property",
    "session.timeout.ms=45000",  # a busy machine must not end a membership
)

_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    return f"consumers-{next(_numbers)}"


@pytest.fixture
def shared(klog: Run) -> str:
    """A topic of four partitions."""
    name = f"shared-{next(_numbers)}"
    assert klog("topics", "create", name, "--partitions", 4).code == 0
    return name


def fill(klog: Run, topic: str, first: int, count: int) -> list[str]:
    """Write numbers, a quarter of them to each of four partitions."""
    for partition in range(4):
        numbers = range(first + partition, first + count, 4)
        assert klog("produce", topic, *map(str, numbers), "--partition", partition, "-q").code == 0
    return [str(number) for number in range(first, first + count)]


def committed(klog: Run, group: str) -> dict[int, int]:
    found = json.loads(klog("groups", "describe", group, "--json").out)["offsets"]
    return {each["partition"]: each["currentOffset"] for each in found}


def assigned(klog: Run, group: str) -> list[int]:
    """How many partitions each member has, once the group is stable."""
    shown = klog("groups", "describe", group, "--json")
    if shown.code != 0:
        return []
    found = json.loads(shown.out)
    if found["state"] != "Stable":
        return []
    return sorted(sum(map(len, each["assignment"].values())) for each in found["members"])


class Process:
    """`klog consume --follow` in a process of its own."""

    def __init__(self, cluster: str, file: Path, *words: object) -> None:
        self._file = file
        with file.open("wb") as out, file.with_suffix(".err").open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN, "consume", "--follow", *QUICK, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "KLOG_BOOTSTRAP_SERVER": cluster},
            )

    @property
    def read(self) -> list[str]:
        return self._file.read_text().split()

    @property
    def err(self) -> str:
        return self._file.with_suffix(".err").read_text()

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal; gives the exit code."""
        self._process.send_signal(number)
        return self._process.wait(90)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def join(cluster: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts members; those that still run are killed at the end."""
    started: list[Process] = []

    def start(topic: str, group: str, *words: object) -> Process:
        file = tmp_path / f"member-{len(started)}"
        started.append(Process(cluster, file, topic, "--group", group, *words))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def numerically(values: list[str]) -> list[str]:
    return sorted(values, key=int)


def test_what_was_printed_is_committed_and_not_printed_again(klog: Run, group, shared):
    first = fill(klog, shared, 0, 20)
    done = klog("consume", shared, "--group", group)
    assert (done.code, numerically(done.out.split()), done.err) == (0, first, "")
    assert committed(klog, group) == dict.fromkeys(range(4), 5)
    second = fill(klog, shared, 20, 8)
    assert numerically(klog("consume", shared, "--group", group, "--no-commit").out.split()) == second
    assert numerically(klog("consume", shared, "--group", group).out.split()) == second
    assert klog("consume", shared, "--group", group).out == ""


def test_a_limit_commits_just_what_was_printed(klog: Run, group, shared):
    expected = fill(klog, shared, 0, 24)
    found: list[str] = []
    for _ in range(4):
        shown = klog("consume", shared, "--group", group, "--limit", 7).out.split()
        assert len(shown) <= 7
        found += shown
    assert numerically(found) == expected


def test_records_that_a_filter_leaves_out_are_read(klog: Run, group, shared):
    fill(klog, shared, 0, 20)
    assert numerically(klog("consume", shared, "--group", group, "--grep", "^1.$").out.split()) == [
        str(number) for number in range(10, 20)
    ]
    assert klog("consume", shared, "--group", group).out == ""


def test_a_group_that_starts_at_the_end_goes_on_there(klog: Run, group, shared):
    fill(klog, shared, 0, 8)
    assert klog("consume", shared, "--group", group, "-o", "end").out == ""
    later = fill(klog, shared, 8, 4)
    assert klog("consume", shared, "--group", group, "-o", "end").out.split() == later


def test_a_group_without_offsets_may_be_refused(klog: Run, group, shared):
    none = ("--consumer-property", "auto.offset.reset=none")
    refused = klog("consume", shared, "--group", group, *none)
    assert (refused.code, refused.out) == (1, "")
    assert f"group {group} has no committed offset for {shared}-0" in refused.err


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_and_hand_them_over(klog: Run, group, shared, join, assignor):
    strategy = ("--consumer-property", f"partition.assignment.strategy={assignor}")
    expected = fill(klog, shared, 0, 40)
    one = join(shared, group, *strategy)
    eventually(lambda: numerically(one.read) == expected)
    two = join(shared, group, *strategy)
    eventually(lambda: assigned(klog, group) == [2, 2])
    expected += fill(klog, shared, 40, 40)
    eventually(lambda: numerically(one.read + two.read) == expected)
    assert len(two.read) == 20
    assert one.end() == 130
    eventually(lambda: assigned(klog, group) == [4])
    expected += fill(klog, shared, 80, 40)
    eventually(lambda: numerically(one.read + two.read) == expected)
    assert two.end() == 130
    assert committed(klog, group) == dict.fromkeys(range(4), 30)
    assert one.err == two.err == ""


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_is_shared_with_other_clients(klog: Run, cluster, group, shared, join, assignor):
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": assignor,
        }
    )
    read: list[str] = []

    def shares(count: int) -> bool:
        message = other.poll(0.1)
        if message is not None and message.error() is None:
            read.append(message.value().decode())
        return len(other.assignment()) == count

    other.subscribe([shared])
    try:
        eventually(lambda: shares(4))
        ours = join(shared, group, "--consumer-property", f"partition.assignment.strategy={assignor}")
        eventually(lambda: shares(2) and assigned(klog, group) == [2, 2])
        expected = fill(klog, shared, 0, 40)
        eventually(lambda: [shares(2), numerically(read + ours.read) == expected][1])
        assert len(ours.read) == 20
        assert ours.end() == 130
        eventually(lambda: shares(4))
    finally:
        other.close()


def test_what_nobody_read_is_not_committed(klog: Run, cluster, group, shared):
    expected = fill(klog, shared, 0, 40_000)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "consume", shared, "--group", group],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KLOG_BOOTSTRAP_SERVER": cluster},
    )
    process.stdout.close()  # as `| head` does
    assert process.wait(90) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    assert numerically(klog("consume", shared, "--group", group).out.split()) == expected


def test_a_terminated_member_commits_and_leaves(klog: Run, group, shared, join):
    expected = fill(klog, shared, 0, 20)
    member = join(shared, group)
    eventually(lambda: numerically(member.read) == expected)
    assert member.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert committed(klog, group) == dict.fromkeys(range(4), 5)
    assert json.loads(klog("groups", "describe", group, "--json").out)["members"] == []


def test_a_static_member_keeps_its_place(klog: Run, group, shared, join):
    one = join(shared, group, "--group-instance-id", "one")
    eventually(lambda: assigned(klog, group) == [4])
    assert one.end() == 130, one.err
    found = json.loads(klog("groups", "describe", group, "--json").out)
    assert [(each["groupInstanceId"], each["clientId"]) for each in found["members"]] == [("one", "klog")]
    fenced = join(shared, group, "--group-instance-id", "one")
    eventually(lambda: re.search("", fenced.err) and assigned(klog, group) == [4])
    expected = fill(klog, shared, 0, 8)
    eventually(lambda: numerically(fenced.read) == expected)
    again = join(shared, group, "--group-instance-id", "one")
    eventually(lambda: "FENCED_INSTANCE_ID" in fenced.err)
    assert again.end() == 130


def test_assignors_that_a_group_does_not_share_are_code_1(klog: Run, group, shared, join):
    one = join(shared, group, "--consumer-property", "partition.assignment.strategy=roundrobin")
    eventually(lambda: assigned(klog, group) == [4])
    java = "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor"
    refused = klog("consume", shared, "--group", group, "--consumer-property", java)
    assert (refused.code, refused.out) == (1, "")
    assert "INCONSISTENT_GROUP_PROTOCOL" in refused.err
    assert one.end() == 130


@pytest.mark.parametrize(
    "words",
    [
        ("--partition", 0),
        ("--last", 5),
        ("--offsets", "1..2"),
        ("--since", "1h"),
        ("-o", "7"),
        ("--consumer-property", "partition.assignment.strategy=sticky"),
        ("--consumer-property", "session.timeout.ms=soon"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_options_that_contradict_a_group_are_code_2(klog: Run, group, shared, words):
    done = klog("consume", shared, "--group", group, *words)
    assert (done.code, done.out) == (2, "")


def test_options_of_members_need_a_group(klog: Run, shared):
    for words in (("--no-commit",), ("--group-instance-id", "one")):
        done = klog("consume", shared, *words)
        assert (done.code, done.out) == (2, "")
        assert "--group GROUP" in done.err


def test_a_member_goes_on_after_its_broker_was_killed(tmp_path, capfd, monkeypatch, group) -> None:
    with KlogBroker(tmp_path / "broker", {"group.initial.rebalance.delay.ms": 0}) as broker:
        broker.start()
        monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", broker.bootstrap)
        klog = runner(capfd, monkeypatch)
        assert klog("topics", "create", "orders", "--partitions", 4).code == 0
        expected = fill(klog, "orders", 0, 20)
        member = Process(broker.bootstrap, tmp_path / "member", "orders", "--group", group)
        try:
            eventually(lambda: numerically(member.read) == expected)
            broker.kill()
            broker.start()
            expected += fill(klog, "orders", 20, 20)
            # What was printed before the kill and not committed may be printed again.
            eventually(lambda: set(member.read) == set(expected))
            assert member.end() == 130
        finally:
            member.kill()
        assert committed(klog, group) == dict.fromkeys(range(4), 10)
