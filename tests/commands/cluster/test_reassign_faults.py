"""`klog reassign execute` while brokers end: it goes on, says what it waits for, and restores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from confluent_kafka import Producer

from klog.testing import KlogCluster
from tests.commands.running import Outcome, Run, runner
from tests.commands.screens import RUN
from tests.peers.broker import free_port
from tests.waiting import eventually

TIMEOUT_S = 120
RATE = "follower.replication.throttled.rate"


@pytest.fixture(scope="module")
def shared() -> Iterator[KlogCluster]:
    config = {"log.retention.ms": -1, "replication.quota.window.num": 120}
    made = KlogCluster(3, config)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(shared: KlogCluster) -> KlogCluster:
    shared.restore()
    shared.await_members()
    return shared


@pytest.fixture
def klog(cluster: KlogCluster, capfd, monkeypatch) -> Run:
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    return runner(capfd, monkeypatch)


class Executing:
    """`klog reassign execute` in a process of its own; what it says arrives line by line."""

    def __init__(self, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUN, "reassign", "execute", *map(str, words), "--yes"],
            env=dict(os.environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as said:
            for line in said:
                self._lines.put(line)

    def wait_for(self, text: str) -> None:
        while text not in self._lines.get(timeout=TIMEOUT_S):
            pass

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> Outcome:
        code = self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return Outcome(code, "", "".join(self._lines.queue))


def make(klog: Run, cluster: KlogCluster, topic: str, *replicas: int) -> None:
    assert klog("topics", "create", topic, "--replica-assignment", ":".join(map(str, replicas))).code == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for _ in range(30):
        producer.produce(topic, os.urandom(100_000), partition=0)
    assert not producer.flush(TIMEOUT_S)


def plan_of(folder: Path, topic: str, *replicas: int) -> Path:
    path = folder / "plan.json"
    part = {"topic": topic, "partition": 0, "replicas": list(replicas)}
    path.write_text(json.dumps({"version": 1, "partitions": [part]}))
    return path


def configs(klog: Run, broker_id: int) -> dict[str, str]:
    shown = klog("configs", "describe", "--broker", broker_id, "--json")
    return {each["name"]: each["value"] for each in map(json.loads, shown.out.splitlines())}


def replicas_of(klog: Run, topic: str) -> list[int]:
    return json.loads(klog("topics", "describe", topic, "--json").out)["partitions"][0]["replicas"]


def test_an_execution_goes_on_with_the_next_controller(klog, cluster, tmp_path) -> None:
    controller = cluster.controller()
    source, target = (each for each in range(3) if each != controller)
    make(klog, cluster, "over-controllers", source)
    plan = plan_of(tmp_path, "over-controllers", target)
    run = Executing(plan, "--throttle", 1_000)
    run.wait_for("1 partition moving")
    cluster.kill(controller)
    eventually(lambda: cluster.controller() != controller)
    # The copy waits for its throttle, which is the time until the next controller is there.
    for each in (source, target):
        assert klog("configs", "alter", "--broker", each, "--set", f"{RATE}=100000000").code == 0
        leader = "leader.replication.throttled.rate=100000000"
        assert klog("configs", "alter", "--broker", each, "--set", leader).code == 0
    done = run.end()
    assert done.code == 0, done.err
    eventually(lambda: replicas_of(klog, "over-controllers") == [target])
    # Somebody else has set these rates since then.
    assert set(configs(klog, target).values()) == {"100000000"}
    for each in (source, target):
        klog("reassign", "--cancel", "--reassignment-json-file", plan)
        assert configs(klog, each) == {}


def test_a_destination_that_ends_is_told_and_the_next_run_finishes(klog, cluster, tmp_path) -> None:
    target = next(each for each in (1, 2) if each != cluster.controller())
    make(klog, cluster, "to-the-dead", 0)
    plan = plan_of(tmp_path, "to-the-dead", target)
    assert klog("configs", "alter", "--broker", target, "--set", f"{RATE}=555").code == 0
    eventually(lambda: configs(klog, target) == {RATE: "555"})
    run = Executing(plan, "--throttle", 1_000)
    run.wait_for("1 partition moving")
    cluster.kill(target)
    run.wait_for(f"broker {target} does not answer")
    run.interrupt()
    done = run.end()
    assert done.code == 130
    assert "1 partition still moving in the cluster; the same command continues" in done.err

    # Kafka's tool exits with 1 here, too: the throttles of the dead broker stay.
    command = ("reassign", "--cancel", "--reassignment-json-file", plan, "--timeout-ms", 3_000)
    cancelled = klog(*command)
    assert cancelled.code == 1
    assert "Successfully cancelled partition reassignment for: to-the-dead-0" in cancelled.out
    assert "Clearing topic-level throttles on topic to-the-dead" in cancelled.out
    assert f"all is done, but the throttles of broker {target} may still be set" in cancelled.err
    assert replicas_of(klog, "to-the-dead") == [0]
    assert configs(klog, 0) == {}
    cluster.restore()
    cluster.await_members()
    continued = klog("reassign", "execute", plan, "--yes", "--throttle", 100_000_000)
    assert continued.code == 0, continued.err
    eventually(lambda: replicas_of(klog, "to-the-dead") == [target])
    assert configs(klog, target) == {RATE: "555"}
    assert configs(klog, 0) == {}


def test_a_cluster_that_cannot_be_reached_is_one_message(capfd, monkeypatch, tmp_path) -> None:
    klog_alone = runner(capfd, monkeypatch)
    port = free_port()
    plan = plan_of(tmp_path, "t", 0)
    for words in (
        ("execute", plan, "--yes"),
        ("verify", plan),
        ("cancel", plan, "--yes"),
        ("list",),
        ("watch",),
    ):
        done = klog_alone("reassign", *words, "-b", f"127.0.0.1:{port}", "--timeout-ms", 500)
        assert (done.code, done.out) == (1, "")
        assert "is a broker listening there?" in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"version":2,"partitions":[]}',
            "plan.json: Not supported version field value 2 (version 1 is known)",
        ),
        ("{", "plan.json at byte 1: not JSON"),
    ],
)
def test_a_file_that_is_wrong_is_refused_before_any_connection(
    capfd, monkeypatch, tmp_path, text: str, message: str
) -> None:
    klog_alone = runner(capfd, monkeypatch)
    (tmp_path / "plan.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    for words in (("execute",), ("verify",), ("cancel",), ("--execute",), ("--verify",), ("--cancel",)):
        done = klog_alone("reassign", *words, "--reassignment-json-file", "plan.json")
        assert done.code == 1
        assert message in done.err
    assert klog_alone("reassign", "execute").code == 2
    assert klog_alone("reassign", "execute", "none.json").code == 1


def test_the_file_of_a_plan_that_found_nothing_is_nothing_to_do(capfd, monkeypatch, tmp_path) -> None:
    """Kafka's tool refuses it, and so do its command lines here."""
    klog_alone = runner(capfd, monkeypatch)
    (tmp_path / "plan.json").write_text('{"version":1,"partitions":[]}')
    monkeypatch.chdir(tmp_path)
    for action in ("execute", "verify", "cancel", "watch"):
        done = klog_alone("reassign", action, "plan.json")
        assert (done.code, done.out) == (0, "")
        assert "plan.json names no partition: there is nothing to move" in done.err
    for action in ("--execute", "--verify", "--cancel"):
        done = klog_alone("reassign", action, "--reassignment-json-file", "plan.json")
        assert (done.code, done.out) == (1, "")
        assert "Partition reassignment list cannot be empty" in done.err
    (tmp_path / "plan.json").write_text("{}")
    assert klog_alone("reassign", "execute", "plan.json").code == 1
