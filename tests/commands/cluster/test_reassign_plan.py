"""`klog reassign plan`, `dirs` and `generate` on clusters of three brokers, beside Kafka's tool."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from klog.admin import connect
from klog.admin.reassign.generate import generate
from klog.admin.reassign.json_files import parse_assignments
from klog.admin.reassign.reading import read_brokers, read_partitions
from klog.admin.settings import settings_of
from klog.client.log_dirs import describe_log_dirs
from tests.commands.moving_clusters import KINDS, STARTERS, await_replicas
from tests.commands.running import Run
from tests.waiting import eventually

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
BATCH_BYTES = 100_000
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The addresses of three brokers; takes the place of the one of a single broker."""
    with STARTERS[request.param](request, tmp_path_factory.mktemp(request.param)) as bootstrap:
        yield bootstrap


@pytest.fixture
def made(klog: Run, cluster: str) -> Iterator:
    """Makes a topic whose partitions have the given replicas and as many batches of records."""
    names = []

    def make(*partitions: tuple[list[int], int]) -> str:
        name = f"planned-{next(_numbers)}"
        names.append(name)
        assignment = ",".join(":".join(map(str, replicas)) for replicas, _ in partitions)
        done = klog("topics", "create", name, "--replica-assignment", assignment)
        assert done.code == 0, done.err
        producer = Producer({"bootstrap.servers": cluster, "acks": "all", "linger.ms": 20})
        for number, (_, batches) in enumerate(partitions):
            for _ in range(batches):
                producer.produce(name, os.urandom(BATCH_BYTES), partition=number)
        assert not producer.flush(120)
        await_replicas(cluster, name, *[replicas for replicas, _ in partitions])
        return name

    yield make
    for name in names:
        klog("topics", "delete", name, "--yes")
    # Brokers delete their replicas later, and plans count what is there.
    eventually(lambda: topics_of_dirs(cluster).isdisjoint(names))


def replicas_of(klog: Run, topic: str) -> list[list[int]]:
    described = json.loads(klog("topics", "describe", topic, "--json").out)
    return [part["replicas"] for part in described["partitions"]]


def bytes_of(cluster: str, topic: str) -> Counter[tuple[int, str]]:
    """What each directory of each broker holds of a topic."""
    held: Counter[tuple[int, str]] = Counter()
    with connect.cluster(settings_of({}, bootstrap=cluster, timeout_ms=60_000)) as client:
        for each in describe_log_dirs(client).dirs:
            held[each.broker_id, each.path] += sum(
                replica.size_bytes for replica in each.replicas if replica.partition.topic == topic
            )
    return held


def topics_of_dirs(cluster: str) -> set[str]:
    """The topics of which a broker has a replica."""
    with connect.cluster(settings_of({}, bootstrap=cluster, timeout_ms=60_000)) as client:
        dirs = describe_log_dirs(client).dirs
    return {replica.partition.topic for each in dirs for replica in each.replicas}


def by_broker(held: Counter[tuple[int, str]]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for (broker, _), size in held.items():
        found[broker] += size
    return {broker: found[broker] for broker in sorted(found)}


def test_a_plan_that_is_carried_out_evens_out_bytes_and_leaders(klog, made, cluster, tmp_path):
    topic = made(([0, 1], 6), ([0, 1], 6), ([0, 1], 6))
    before = replicas_of(klog, topic)
    total = sum(by_broker(bytes_of(cluster, topic)).values())
    back = tmp_path / "back.json"
    planned = klog("reassign", "plan", topic, "--brokers", "0,1,2", "--rollback", back)
    assert planned.code == 0, planned.err
    assert "bytes: the fullest broker is 50.0% above the mean now, 0." in planned.err
    file = tmp_path / "plan.json"
    file.write_text(planned.out)
    done = klog("reassign", "execute", file, "--yes")
    assert done.code == 0, done.err
    wanted = {each.partition.partition: each.replicas for each in parse_assignments(planned.out, "plan")}
    now = replicas_of(klog, topic)
    assert all(tuple(now[number]) == replicas for number, replicas in wanted.items())
    eventually(lambda: sum(by_broker(bytes_of(cluster, topic)).values()) == total)
    assert all(abs(size - total / 3) < 0.02 * total for size in by_broker(bytes_of(cluster, topic)).values())
    leaders = Counter(replicas[0] for replicas in now)
    assert sorted(leaders) == [0, 1, 2]
    again = klog("reassign", "plan", topic, "--brokers", "0,1,2")
    assert json.loads(again.out) == {"version": 1, "partitions": []}
    assert "all is as wanted" in again.err
    returned = klog("reassign", "execute", back, "--yes")
    assert returned.code == 0, returned.err
    assert replicas_of(klog, topic) == before


@pytest.mark.kafka
def test_kafkas_tool_carries_out_a_plan_that_drains_a_broker(klog, made, cluster, tmp_path, tools):
    topic = made(([0], 4), ([1], 4), ([2], 4), ([2], 2))
    planned = klog("reassign", "plan", topic, "--drain", 2)
    assert planned.code == 0, planned.err
    assert "2 of 4 partitions change, 2 new replicas" in planned.err
    assert "(ratio 1.00)" in planned.err
    file = tmp_path / "plan.json"
    file.write_text(planned.out)
    began = tools.run(REASSIGN, "--bootstrap-server", cluster, "--execute", "--reassignment-json-file", file)
    assert "Successfully started partition reassignments" in began.out, began
    eventually(lambda: all(2 not in replicas for replicas in replicas_of(klog, topic)))
    assert replicas_of(klog, topic)[:2] == [[0], [1]]


def test_raising_and_lowering_the_replication_factor(klog, made, tmp_path):
    topic = made(([0], 2), ([1], 2))
    for factor in (3, 1):
        planned = klog("reassign", "plan", topic, "--replication-factor", factor)
        file = tmp_path / f"plan-{factor}.json"
        file.write_text(planned.out)
        assert klog("reassign", "execute", file, "--yes").code == 0
        assert [len(replicas) for replicas in replicas_of(klog, topic)] == [factor] * 2
    assert sorted(replicas_of(klog, topic)) == [[0], [1]]


def test_directories_are_evened_out(klog, made, cluster, tmp_path):
    topic = made(*(([0, 1], 5) for _ in range(6)))
    first = min(path for broker, path in bytes_of(cluster, topic) if broker == 0)
    parts = [
        {"topic": topic, "partition": number, "replicas": [0, 1], "log_dirs": [first, "any"]}
        for number in range(6)
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": parts}))
    assert klog("reassign", "execute", file, "--yes").code == 0
    crowded = {path: size for (broker, path), size in bytes_of(cluster, topic).items() if broker == 0}
    assert sorted(crowded.values())[0] == 0
    planned = klog("reassign", "dirs", "--brokers", 0)
    assert planned.code == 0, planned.err
    (second,) = set(crowded) - {first}
    mine = [each for each in parse_assignments(planned.out, "plan") if each.partition.topic == topic]
    assert {(each.replicas, each.log_dirs) for each in mine} == {((0, 1), (second, "any"))}
    file.write_text(planned.out)
    done = klog("reassign", "execute", file, "--yes")
    assert done.code == 0, done.err
    assert replicas_of(klog, topic) == [[0, 1]] * 6
    evened = {path: size for (broker, path), size in bytes_of(cluster, topic).items() if broker == 0}
    assert min(evened.values()) > 0
    again = klog("reassign", "dirs", "--brokers", 0)
    assert json.loads(again.out) == {"version": 1, "partitions": []}, again.err


@pytest.mark.kafka
def test_generate_proposes_what_kafkas_tool_proposes_from_some_start(klog, made, cluster, tmp_path, tools):
    topic = made(([0, 1], 0), ([1, 2], 0), ([2, 0], 0), ([0, 1], 0))
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    words = ("--generate", "--topics-to-move-json-file", file, "--broker-list", "0,1,2")
    kafkas = tools.run(REASSIGN, "--bootstrap-server", cluster, *words).out.strip().splitlines()
    ours = klog("reassign", *words).out.strip().splitlines()
    assert ours[:4] == kafkas[:4]
    assert len(ours) == len(kafkas) == 5
    with connect.cluster(settings_of({}, bootstrap=cluster, timeout_ms=60_000)) as client:
        racks = {each.broker_id: each.rack for each in read_brokers(client)}
        parts = [each for each in read_partitions(client) if each.partition.topic == topic]
    possible = []
    for start, shift in itertools.product(range(3), repeat=2):
        choice = iter([start, shift])
        possible.append(generate(parts, racks, lambda below, choice=choice: next(choice)))
    assert parse_assignments(kafkas[4], "kafka") in possible
    assert parse_assignments(ours[4], "klog") in possible


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["plan"], 2, "nothing is asked for"),
        (["plan", "--drain", "9"], 2, "broker 9 is not alive"),
        (["plan", "--drain", "x"], 2, "--drain 'x' is not valid"),
        (["plan", "nope", "--drain", "1"], 1, "topic nope does not exist"),
        (["plan", "nope.*", "--drain", "1"], 1, "(--topic 'nope.*' takes a pattern)"),
        (["generate", "nope", "--broker-list", "0"], 2, "Topic nope not found"),
        (["generate", "nope"], 2, "--broker-list"),
        (["generate", "--broker-list", "0"], 2, "TOPIC"),
        (["dirs", "--brokers", "9"], 1, "broker 9"),
    ],
)
def test_what_cannot_be_planned_is_one_error(klog, words, code, what):
    ended = klog("reassign", *words)
    assert (ended.code, ended.out) == (code, "")
    assert what in ended.err
    assert "Traceback" not in ended.err
