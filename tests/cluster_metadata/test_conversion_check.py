"""What a conversion wrote is read back: nothing differs from the source but what the plan says."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import conversion, kraft_output, sources
from klog.cluster_metadata.conversion import Form
from klog.cluster_metadata.conversion_check import check
from klog.cluster_metadata.conversion_plan import Plan, Target
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.model import Cluster, Partition, Topic
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from tests.cluster_strategies import clusters
from tests.commands.running import Run, runner

TOPIC_ID = "ey5g-FnqTD-kdOop3hS1Qw"
STATIC = "controller.quorum.voters=1@h:9093"
DYNAMIC = (
    "controller.quorum.bootstrap.servers=h:9093\ncontroller.listener.names=CONTROLLER\n"
    "listeners=CONTROLLER://h:9093,PLAINTEXT://h:9092"
)


def read(place: str) -> Cluster:
    return sources.read_source(place).cluster


def small() -> Cluster:
    partition = Partition(ReplicaAssignment((1,)), LeaderAndIsr(1, 5, (1,)))
    configs = {Resource(ResourceType.TOPIC, "t"): {"retention.ms": "1", "message.format.version": "2.8"}}
    return Cluster(TOPIC_ID, {"t": Topic(None, {0: partition})}, configs)


def planned(cluster: Cluster, form: Form, path: Path, quorum: str = STATIC) -> Plan:
    configs: tuple[str, ...] = ()
    if form is Form.KRAFT:
        file = path / "server.properties"
        file.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={path / 'new'}\n{quorum}\n")
        configs = (str(file),)
    place = None if configs else str(path / "new")
    target = Target(0, Random(1).randbytes, place=place, configs=configs)
    return conversion.plan(Reading(cluster, "JSON file"), form, target)


@settings(max_examples=25, deadline=None)
@given(clusters, st.sampled_from([Form.KRAFT, Form.TREE, Form.JSON]), st.sampled_from([STATIC, DYNAMIC]))
def test_what_the_plan_does_not_say_is_neither_lost_nor_changed(
    cluster: Cluster, form: Form, quorum: str
) -> None:
    found = replace(cluster, cluster_id=cluster.cluster_id or TOPIC_ID)
    names = {each.topic_id or name: name for name, each in found.topics.items()}
    found = replace(found, topics={name: found.topics[name] for name in names.values()}, features={})
    with TemporaryDirectory() as place:
        plan = planned(found, form, Path(place), quorum)
        plan.write()
        assert list(check(found, plan, read)) == []


def test_a_loss_that_the_plan_does_not_say_is_found(tmp_path: Path) -> None:
    plan = planned(small(), Form.KRAFT, tmp_path)
    plan.write()
    silent = replace(plan, changes=tuple(each for each in plan.changes if "message.format" not in each))
    (problem,) = check(small(), silent, read)
    assert problem.where == str(tmp_path / "new")
    assert problem.what == "config topic t message.format.version was not to change: 2.8 is now (none)"


def test_what_was_written_otherwise_is_found_in_each_place(tmp_path: Path) -> None:
    plan = planned(small(), Form.JSON, tmp_path)
    plan.write()
    text = (tmp_path / "new").read_text()
    (tmp_path / "new").write_text(text.replace('"leaderEpoch": 5', '"leaderEpoch": 6'))
    (problem,) = check(small(), plan, read)
    assert problem == (
        str(tmp_path / "new"),
        "partition t-0 leaderEpoch is not as it was written: 5 is now 6",
    )


def test_directories_are_compared_with_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "new" / "t-0").mkdir(parents=True)
    plan = planned(small(), Form.KRAFT, tmp_path)
    assert plan.problems == ()
    plan.write()
    assert list(check(small(), plan, read)) == []
    (tmp_path / "new" / "t-0" / "partition.metadata").unlink()
    assert [each.what for each in plan.look_again()] == [
        "has no partition.metadata: a broker takes it for stray"
    ]
    shutil.rmtree(tmp_path / "new" / "t-0")
    (tmp_path / "new" / "meta.properties").unlink()
    assert [each.what for each in plan.look_again()] == [
        "meta.properties is not that of node 1",
        "has no directory on broker 1: it would come back empty",
    ]


def test_the_command_fails_if_something_is_not_as_planned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    klog: Run = runner(capfd, monkeypatch)
    source = tmp_path / "cluster.json"
    plan = planned(small(), Form.JSON, tmp_path)
    plan.write()
    (tmp_path / "new").rename(source)
    planned(small(), Form.KRAFT, tmp_path)
    monkeypatch.setattr(kraft_output, "snapshot_of", snapshot_without_configs)
    command = ["metadata", "convert", source, "-c", tmp_path / "server.properties", "--yes"]
    done = klog(*command, "--ignore-problems")
    assert done.code == 1
    new = tmp_path / "new"
    differs = f"differs: {new}: config topic t retention.ms is not as it was written: 1 is now (none)"
    assert differs in done.err


real_snapshot_of = kraft_output.snapshot_of


def snapshot_without_configs(cluster: Cluster, layout: object, now_ms: int) -> tuple[bytes, ...]:
    return real_snapshot_of(replace(cluster, configs={}), layout, now_ms)  # type: ignore[arg-type]
