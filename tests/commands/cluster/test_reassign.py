"""`klog reassign` on clusters of three brokers of each kind, beside Kafka's own tool."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klog.admin import connect
from klog.admin.settings import settings_of
from klog.client.log_dirs import describe_log_dirs
from klog.formats.names import TopicPartition
from tests.commands.asking import keeps_to_the_rule
from tests.commands.moving_clusters import KINDS, STARTERS, await_replicas
from tests.commands.running import Run
from tests.commands.screens import RUN, on_screen
from tests.waiting import eventually

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SLOW, FAST = 1_000, 100_000_000
FORMER = {"leader.replication.throttled.rate": "777000", "follower.replication.throttled.rate": "888000"}
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The addresses of three brokers; takes the place of the one of a single broker."""
    with STARTERS[request.param](request, tmp_path_factory.mktemp(request.param)) as bootstrap:
        yield bootstrap


@pytest.fixture
def made(klog: Run, cluster: str):
    """Makes a topic with the given replicas of each partition, and with records."""

    def make(*replicas: Sequence[int], size_bytes: int = 3_000_000) -> str:
        name = f"moved-{next(_numbers)}"
        assignment = ",".join(":".join(map(str, each)) for each in replicas)
        done = klog("topics", "create", name, "--replica-assignment", assignment)
        assert done.code == 0, done.err
        producer = Producer({"bootstrap.servers": cluster, "acks": "all", "linger.ms": 20})
        for number in range(len(replicas)):
            for _ in range(size_bytes // 100_000):
                producer.produce(name, os.urandom(100_000), partition=number)
        assert not producer.flush(120)
        return name

    return make


def plan_file(folder: Path, topic: str, *replicas: Sequence[int], **fields: object) -> Path:
    """A file that moves the partitions of a topic, in their order."""
    parts = [
        {"topic": topic, "partition": number, "replicas": list(each), **fields}
        for number, each in enumerate(replicas)
    ]
    path = folder / f"{topic}-{next(_numbers)}.json"
    path.write_text(json.dumps({"version": 1, "partitions": parts}))
    return path


def replicas_of(klog: Run, topic: str) -> list[list[int]]:
    described = json.loads(klog("topics", "describe", topic, "--json").out)
    return [part["replicas"] for part in described["partitions"]]


def configs_of(klog: Run, *entity: object) -> dict[str, str | None]:
    shown = klog("configs", "describe", *entity, "--json")
    assert shown.code == 0, shown.err
    found = {each["name"]: each["value"] for each in map(json.loads, shown.out.splitlines())}
    # Kafka 4 sets defaults of its own for all brokers.
    return {name: value for name, value in found.items() if "throttled" in name or "log.dirs.io" in name}


def throttles_of(klog: Run, topic: str) -> dict[str, dict[str, str | None]]:
    """All throttles of the topic and of each broker, with klog's notes about them."""
    brokers = {f"broker {number}": configs_of(klog, "--broker", number) for number in range(3)}
    return {"topic": configs_of(klog, "--topic", topic), **brokers}


def running(klog: Run) -> list[str]:
    return [f"{each['topic']}-{each['partition']}" for each in rows(klog("reassign", "list", "-o", "jsonl"))]


def rows(outcome) -> list[dict]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def end_all(klog: Run, plan: Path, topic: str) -> None:
    """Cancel what moves and remove all throttles, those of the time before, too."""
    klog("reassign", "--cancel", "--reassignment-json-file", plan)
    for number in range(3):
        klog("configs", "alter", "--broker", number, *[a for name in FORMER for a in ("--delete", name)])
    eventually(lambda: topic not in " ".join(running(klog)))
    eventually(lambda: not any(configs_of(klog, "--broker", number) for number in range(3)))


def test_a_throttled_move_in_batches_leaves_the_throttles_as_they_were(klog, made, tmp_path) -> None:
    topic = made([0, 1], [1, 2], [2, 0])
    plan = plan_file(tmp_path, topic, [2, 1], [1, 2], [2, 1])
    klog("configs", "alter", "--topic", topic, "--set", f"{LEADERS}=0:0,2:1")
    klog("configs", "alter", "--broker", 1, *[a for n, v in FORMER.items() for a in ("--set", f"{n}={v}")])
    eventually(lambda: configs_of(klog, "--broker", 1) == FORMER)
    eventually(lambda: configs_of(klog, "--topic", topic) == {LEADERS: "0:0,2:1"})
    before = throttles_of(klog, topic)
    dry = klog("reassign", "execute", plan, "--dry-run", "--throttle", FAST)
    assert (dry.code, dry.out) == (0, "")
    assert f"{topic}-0: 0,1 -> 2,1, 2." in dry.err
    assert "2 partitions, 2 new copies, 5." in dry.err
    assert "1 partition already as wanted" in dry.err
    refused = klog("reassign", "execute", plan)
    assert refused.code == 1
    assert "--yes" in refused.err
    assert throttles_of(klog, topic) == before
    assert replicas_of(klog, topic) == [[0, 1], [1, 2], [2, 0]]
    done = klog("reassign", "execute", plan, "--yes", "--throttle", FAST, "--batch", 1)
    assert done.code == 0, done.err
    assert "broker 1 had leader.replication.throttled.rate=777000; it gets it back" in done.err
    assert "batch 2 of 2: 1 partition moving" in done.err
    back = json.loads(done.out)
    assert [part["replicas"] for part in back["partitions"]] == [[0, 1], [1, 2], [2, 0]]
    assert replicas_of(klog, topic) == [[2, 1], [1, 2], [2, 1]]
    assert throttles_of(klog, topic) == before
    verified = klog("reassign", "verify", plan, "-o", "jsonl")
    assert [row["state"] for row in rows(verified)] == ["completed"] * 3
    assert throttles_of(klog, topic) == before
    again = klog("reassign", "execute", plan, "--yes")
    assert (again.code, again.out) == (0, "")
    assert "3 partitions already as wanted" in again.err
    end_all(klog, plan, topic)


def test_after_an_interrupt_moves_go_on_and_the_next_run_restores_the_throttles(
    klog, made, tmp_path, cluster
) -> None:
    topic = made([0, 1])
    plan = plan_file(tmp_path, topic, [0, 2])
    klog("configs", "alter", "--broker", 2, *[a for n, v in FORMER.items() for a in ("--set", f"{n}={v}")])
    eventually(lambda: configs_of(klog, "--broker", 2) == FORMER)
    before = throttles_of(klog, topic)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "reassign", "execute", str(plan), "--yes", "--throttle", str(SLOW)],
        env={**os.environ, "KLOG_BOOTSTRAP_SERVER": cluster},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: running(klog) == [f"{topic}-0"])
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "1 partition still moving in the cluster; the same command continues" in said
    limited = throttles_of(klog, topic)
    assert limited["topic"][LEADERS] == "00:0,00:1"
    assert limited["topic"][FOLLOWERS] == "00:2"
    assert limited["broker 2"]["follower.replication.throttled.rate"] == str(SLOW)
    watched = klog("reassign", "verify", plan)
    assert (watched.code, "inProgress" in watched.out) == (0, True)
    assert "throttles stay as long as reassignments are running" in watched.err
    assert throttles_of(klog, topic) == limited
    continued = klog("reassign", "execute", plan, "--yes", "--throttle", FAST)
    assert continued.code == 0, continued.err
    assert "(is moving there)" in continued.err
    assert replicas_of(klog, topic) == [[0, 2]]
    assert throttles_of(klog, topic) == before
    end_all(klog, plan, topic)


def test_throttles_that_an_interrupted_run_has_left_are_restored_without_a_move(
    klog, made, tmp_path, cluster
) -> None:
    topic = made([0, 1])
    plan = plan_file(tmp_path, topic, [0, 2])
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "reassign", "execute", str(plan), "--yes", "--throttle", str(SLOW)],
        env={**os.environ, "KLOG_BOOTSTRAP_SERVER": cluster},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: running(klog) == [f"{topic}-0"])
    process.terminate()
    assert process.wait(120) == 128 + signal.SIGTERM
    assert klog("reassign", "cancel", plan, "--yes", "--preserve-throttles").code == 0
    assert all(throttles_of(klog, topic).values())
    eventually(lambda: replicas_of(klog, topic) == [[0, 1]])
    again = klog("reassign", "execute", plan_file(tmp_path, topic, [0, 1]), "--yes")
    assert again.code == 0, again.err
    assert "throttles are as they were before" in again.err
    assert not any(throttles_of(klog, topic).values())


def test_what_was_moved_is_told_to_programs_with_what_was_before(klog, made, tmp_path) -> None:
    topic = made([0, 1], [1, 2])
    plan = plan_file(tmp_path, topic, [2, 1], [1, 2])
    told = keeps_to_the_rule(klog, "reassign execute", [plan], lambda: replicas_of(klog, topic))
    assert [(each["replicas"], each["formerReplicas"], each["result"]) for each in told] == [
        ([2, 1], [0, 1], "moved"),
        ([1, 2], [1, 2], "already there"),
    ]


def test_cancelling_keeps_to_the_rule(klog, made, tmp_path) -> None:
    topic = made([0, 1])
    plan = plan_file(tmp_path, topic, [2, 1])
    started = klog("reassign", "--execute", "--reassignment-json-file", plan, "--throttle", SLOW)
    assert started.code == 0, started.err
    keeps_to_the_rule(klog, "reassign cancel", [plan], lambda: running(klog))
    eventually(lambda: list(map(sorted, replicas_of(klog, topic))) == [[0, 1]])
    end_all(klog, plan, topic)


def test_cancelling_ends_also_moves_that_only_add_replicas(klog, made, tmp_path) -> None:
    topic = made([0, 1], [1, 0])
    plan = plan_file(tmp_path, topic, [0, 1, 2], [1, 2])
    slowly = ("--throttle", SLOW)
    started = klog("reassign", "--execute", "--reassignment-json-file", plan, *slowly)
    assert started.code == 0, started.err
    assert running(klog) == [f"{topic}-0", f"{topic}-1"]
    other = klog("reassign", "execute", plan_file(tmp_path, topic, [1, 0]), "--yes")
    assert other.code == 1
    assert "other reassignments are running" in other.err
    assert "--additional" in other.err
    unsure = klog("reassign", "cancel", plan)
    assert unsure.code == 1
    before = throttles_of(klog, topic)
    dry = klog("reassign", "cancel", plan, "--dry-run")
    assert dry.code == 0, dry.err
    assert f"{topic}-0: would be cancelled\n{topic}-1: would be cancelled\n" in dry.err
    assert (running(klog), throttles_of(klog, topic)) == ([f"{topic}-0", f"{topic}-1"], before)
    done = klog("reassign", "cancel", plan, "--yes")
    assert done.code == 0, done.err
    assert f"{topic}-0: cancelled\n{topic}-1: cancelled\n" in done.err
    assert running(klog) == []
    eventually(lambda: list(map(sorted, replicas_of(klog, topic))) == [[0, 1], [0, 1]])
    again = klog("reassign", "cancel", plan, "--yes")
    assert again.code == 0
    assert "none of the file's partitions is moving" in again.err
    failed = klog("reassign", "verify", plan, "-o", "jsonl")
    assert failed.code == 1
    assert [json.loads(line)["state"] for line in failed.out.splitlines()] == ["notMoving"] * 2
    end_all(klog, plan, topic)


def test_replicas_move_to_named_directories(klog, made, tmp_path) -> None:
    topic = made([0, 1])
    partition = TopicPartition(topic, 0)
    with connect.cluster(
        settings_of({}, bootstrap=os.environ["KLOG_BOOTSTRAP_SERVER"], timeout_ms=60_000)
    ) as c:

        def places() -> dict[int, set[str]]:
            dirs = describe_log_dirs(c).dirs
            return {
                each.broker_id: {
                    one.path
                    for one in dirs
                    if one.broker_id == each.broker_id and any(r.partition == partition for r in one.replicas)
                }
                for each in dirs
            }

        paths = {each.broker_id: [] for each in describe_log_dirs(c).dirs}
        for each in describe_log_dirs(c).dirs:
            paths[each.broker_id].append(each.path)
        (here,) = places()[0]
        there = next(path for path in paths[0] if path != here)
        plan = plan_file(tmp_path, topic, [0, 2], log_dirs=[there, paths[2][1]])
        done = klog("reassign", "execute", plan, "--yes", "--replica-alter-log-dirs-throttle", FAST)
        assert done.code == 0, done.err
        eventually(lambda: places() == {0: {there}, 1: set(), 2: {paths[2][1]}})
    states = [row["state"] for row in rows(klog("reassign", "verify", plan, "-o", "jsonl"))]
    assert states == ["completed"] * 3
    assert all("throttled" not in name for each in throttles_of(klog, topic).values() for name in each)
    bad = plan_file(tmp_path, topic, [0, 2], log_dirs=["/nowhere", "any"])
    refused = klog("reassign", "execute", bad, "--yes")
    assert refused.code == 1
    assert f"{topic}-0: broker 0 has no log directory /nowhere (it has " in refused.err


def test_a_watch_shows_each_copy_until_nothing_moves(klog, made, tmp_path, cluster) -> None:
    topic = made([0, 1])
    plan = plan_file(tmp_path, topic, [2, 1])
    klog("reassign", "--execute", "--reassignment-json-file", plan, "--throttle", SLOW)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "reassign", "watch", str(plan), "--interval", "0.2"],
        env={**os.environ, "KLOG_BOOTSTRAP_SERVER": cluster},
        stdout=subprocess.PIPE,
        text=True,
    )
    first = json.loads(process.stdout.readline())
    assert (first["topic"], first["partition"], first["broker"], first["logDir"]) == (topic, 0, 2, None)
    assert first["totalBytes"] > 2_900_000 > first["copiedBytes"]
    faster = ("--additional", "--throttle", FAST)
    assert klog("reassign", "--execute", "--reassignment-json-file", plan, *faster).code == 0
    process.communicate(timeout=120)
    assert process.returncode == 0
    eventually(lambda: replicas_of(klog, topic) == [[2, 1]])
    for columns in (80, 140):
        screen = on_screen("reassign", "watch", columns=columns, KLOG_BOOTSTRAP_SERVER=cluster)
        assert "nothing is moving" in screen.text
    end_all(klog, plan, topic)


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ([[0, 9]], "Unknown broker id 9 (alive are 0, 1, 2; is broker 9 down?)"),
        ([[0, 1], [0, 1]], "Unable to find partition: "),
    ],
)
def test_what_does_not_exist_is_refused_before_anything_is_changed(
    klog, made, tmp_path, replicas, message
) -> None:
    topic = made([0, 1], size_bytes=100_000)
    before = throttles_of(klog, topic)
    for options in (("execute", "--yes"), ("--execute",)):
        plan = plan_file(tmp_path, topic, *replicas)
        done = klog("reassign", *options, "--reassignment-json-file", plan, "--throttle", SLOW)
        assert (done.code, done.out) == (1, "")
        assert message.partition(" (")[0] in done.err
    assert throttles_of(klog, topic) == before
    missing = klog("reassign", "verify", plan_file(tmp_path, "never-made", [0]))
    assert missing.code == 1
    assert "notMoving" in missing.out


@pytest.mark.kafka
def test_command_lines_of_kafkas_tool_do_and_print_what_it_does(klog, made, tmp_path, cluster, tools) -> None:
    def asked(program, action: str, topic: str, plan: Path, *options: object) -> tuple[int, str]:
        words = (action, "--reassignment-json-file", plan, *options)
        if program is klog:
            done = klog("reassign", *words)
            return done.code, done.out.replace(topic, "TOPIC")
        ended = tools.run(REASSIGN, "--bootstrap-server", cluster, *words)
        return ended.status, ended.out.replace(topic, "TOPIC")

    def begun(program) -> tuple[str, Path, list[tuple[int, str]]]:
        """A throttled move. Brokers of Kafka may have copied before they take over the throttle."""
        for _ in range(5):
            topic = made([0, 1], [1, 0])
            plan = plan_file(tmp_path, topic, [2, 1], [1, 0, 2])
            found = [asked(program, "--execute", topic, plan, "--throttle", SLOW)]
            # Brokers answer before they have taken over their configs.
            eventually(lambda name=topic: all(len(each) == 2 for each in throttles_of(klog, name).values()))
            found.append((0, json.dumps(throttles_of(klog, topic)).replace(topic, "TOPIC")))
            if asked(tools, "--verify", topic, plan)[1].count("still in progress") == 2:
                return topic, plan, found
            asked(program, "--cancel", topic, plan)
            eventually(lambda: running(klog) == [])
            eventually(lambda name=topic: not any(throttles_of(klog, name).values()))
        pytest.fail("no move was ever slow")

    seen = []
    for program in (tools, klog):
        topic, plan, found = begun(program)
        # Each program is asked about what the other one has begun.
        found += [asked(tools, "--verify", topic, plan), asked(klog, "--verify", topic, plan)]
        found.append(asked(program, "--execute", topic, plan))
        listed = tools.run(REASSIGN, "--bootstrap-server", cluster, "--list").out
        assert klog("reassign", "--list").out == listed
        found += [asked(program, "--cancel", topic, plan, "--preserve-throttles")]
        found += [asked(program, "--cancel", topic, plan)]
        eventually(lambda name=topic: not any(throttles_of(klog, name).values()))
        # What only adds replicas was not cancelled, and goes on at full speed.
        eventually(lambda: running(klog) == [])
        found += [asked(program, "--execute", topic, plan, "--additional")]
        eventually(lambda: running(klog) == [])
        await_replicas(cluster, topic, [2, 1], [1, 0, 2])
        found += [asked(tools, "--verify", topic, plan), asked(klog, "--verify", topic, plan)]
        seen.append(found)
    theirs, ours = seen
    assert theirs[2] == theirs[3]
    assert theirs[-1] == theirs[-2]
    assert ours[4][0] == theirs[4][0] == 1
    del theirs[4], ours[4]  # Kafka's has a message on stdout
    assert ours == theirs
