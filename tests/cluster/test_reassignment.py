"""Partitions move between brokers of both kinds by Kafka's own tool, whichever kind is controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.admin import ClusterAdmin
from tests.cluster.agreeing import agreeing, tools_of
from tests.cluster.reading import check
from tests.cluster.tools import NOTHING_LISTED, ClusterTools
from tests.cluster.tree import Partition
from tests.cluster.world import Cluster
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Writer, Written

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Broker 0 is the one of the other kind.
KLOG, FIRST, SECOND = 0, 1, 2
BOTH = pytest.mark.parametrize(
    ("controller", "next_controller"),
    [pytest.param(KLOG, FIRST, id="klog-controls"), pytest.param(FIRST, KLOG, id="kafka-controls")],
)
# With this rate one fetch goes through, and no other one for as long as the windows last.
ONE_FETCH, FAST = 1_000, 100_000_000
# The last broker that stops finds no controller, and Kafka's then waits between its attempts.
CONFIG = {"replication.quota.window.num": 120, "controlled.shutdown.retry.backoff.ms": 100}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Cluster]:
    work: Path = tmp_path_factory.mktemp("reassignment")
    with agreeing(work, kafka3, "klog,kafka,kafka", CONFIG) as found:
        yield found


@pytest.fixture(scope="module")
def tools(
    world: Cluster, kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterTools]:
    with tools_of(world, kafka3, tmp_path_factory.mktemp("plans")) as found:
        yield found


def write(world: Cluster, topic: str, count: int, into: Written, size_bytes: int = 100) -> None:
    # A request that is sent again gets an answer without an offset.
    writer = Writer(world.bootstrap, into, message_timeout_ms=120_000, request_timeout_ms=110_000)
    for number in range(count):
        writer.write(topic, b"%d/" % number + b"x" * size_bytes, b"%d" % number)
    writer.finish(120)


def hosts(world: Cluster, broker_id: int, partition: Partition) -> bool:
    name = f"{partition[0]}-{partition[1]}"
    return any((each / name).exists() for each in world.members[broker_id].log_directories)


@BOTH
def test_partitions_move_between_brokers_of_both_kinds(
    world: Cluster, tools: ClusterTools, controller: int, next_controller: int
) -> None:
    world.move_controller(controller)
    topic = f"moves-{controller}"
    alone = f"{topic}-alone"
    world.create({topic: 2}, assignment=[[KLOG, FIRST], [FIRST, SECOND]], min_insync_replicas=1)
    world.create({alone: 2}, assignment=[[FIRST], [KLOG]], min_insync_replicas=1)
    plan = {
        (topic, 0): [FIRST, SECOND],
        (topic, 1): [KLOG, FIRST],
        (alone, 0): [KLOG],
        (alone, 1): [SECOND, FIRST, KLOG],
    }
    written: Written = {}
    for each in (topic, alone):
        write(world, each, 200, written, 10_000)
    out = tools.reassign("execute", plan, "--throttle", FAST)
    assert "Successfully started partition reassignments for" in out
    for each in (topic, alone):
        write(world, each, 200, written)
    tools.wait_until_complete(plan)
    assert tools.listed() == NOTHING_LISTED
    assert not world.tree.reassigning()
    assert {each: world.tree.replicas(each[0])[each[1]] for each in plan} == plan
    world.wait_for_full_isr()
    # The tool has removed the throttles.
    assert not [name for each in (topic, alone) for name in world.admin.own_configs(each) if "thr" in name]
    check(world, written)
    for broker_id, gone in ((KLOG, (topic, 0)), (SECOND, (topic, 1)), (FIRST, (alone, 0))):
        # Kafka and klog rename what they delete at once.
        world.until(
            lambda at=broker_id, what=gone: not hosts(world, at, what), f"{broker_id} still hosts {gone}"
        )
    assert world.tree.controller() == controller


@BOTH
def test_a_reassignment_is_cancelled(
    world: Cluster, tools: ClusterTools, controller: int, next_controller: int
) -> None:
    world.move_controller(controller)
    topic = f"cancels-{controller}"
    world.create({topic: 2}, assignment=[[KLOG, FIRST], [SECOND, FIRST]], min_insync_replicas=1)
    written: Written = {}
    write(world, topic, 600, written, 10_000)
    plan = {(topic, 0): [SECOND, FIRST], (topic, 1): [KLOG, FIRST]}
    tools.reassign("execute", plan, "--throttle", ONE_FETCH)
    assert set(world.tree.reassigning()) == set(plan)
    listed = tools.listed()
    assert f"{topic}-0: replicas: 2,1,0. adding: 2. removing: 0." in listed
    assert f"{topic}-1: replicas: 0,1,2. adding: 0. removing: 2." in listed
    assert "is still in progress." in tools.reassign("verify", plan)
    out = tools.reassign("cancel", plan)
    assert f"Successfully cancelled partition reassignments for: {topic}-0,{topic}-1" in out
    world.until(lambda: not world.tree.reassigning(), "the reassignment is not cancelled")
    assert {number: set(ids) for number, ids in world.tree.replicas(topic).items()} == {
        0: {KLOG, FIRST},
        1: {SECOND, FIRST},
    }
    world.until(lambda: not hosts(world, SECOND, (topic, 0)), "the replica that was added stays")
    world.until(lambda: not hosts(world, KLOG, (topic, 1)), "the replica that was added stays")
    write(world, topic, 100, written)
    check(world, written)


@BOTH
def test_a_controller_of_the_other_kind_continues_a_reassignment(
    world: Cluster, tools: ClusterTools, controller: int, next_controller: int
) -> None:
    """The one that began it is killed."""
    world.move_controller(controller)
    source, target = world.others(controller)
    topic = f"continues-{controller}"
    world.create({topic: 2}, assignment=[[source], [target]], min_insync_replicas=1)
    written: Written = {}
    write(world, topic, 600, written, 10_000)
    plan = {(topic, 0): [target], (topic, 1): [target, source]}
    tools.reassign("execute", plan, "--throttle", ONE_FETCH)
    assert set(world.tree.reassigning()) == set(plan)
    world.members[controller].kill()
    world.wait_for_controller(source, target)
    world.move_controller(next_controller)
    world.until(lambda: f"{topic}-0: replicas: {target},{source}." in tools.listed(), "it is not listed")
    write(world, topic, 100, written)
    tools.reassign("execute", plan, "--throttle", FAST, "--additional")
    tools.wait_until_complete(plan)
    assert {each: world.tree.replicas(each[0])[each[1]] for each in plan} == plan
    check(world, written)
    world.start(controller)
    world.wait_for_full_isr()
    assert world.wait_for_known_controller() == next_controller


@BOTH
def test_a_second_reassignment_removes_the_leader_that_the_first_one_added(
    world: Cluster, controller: int, next_controller: int
) -> None:
    """Kafka's controller elects nobody in its place. Then the reassignment ends only after klog controls."""
    world.move_controller(controller)
    source, absent = world.others(controller)
    topic = f"removes-{controller}"
    world.create({topic: 1}, assignment=[[source, absent]], min_insync_replicas=1)
    partition = topic, 0
    written: Written = {}
    write(world, topic, 100, written)
    world.members[absent].stop()
    # The tool takes no broker that is away.
    admin = ClusterAdmin(world.members[controller].address)
    admin.reassign({partition: [controller, absent]})
    world.wait_for_isr(partition, source, controller)
    admin.elect_preferred([partition])
    world.wait_for_leader(partition, controller)
    write(world, topic, 100, written)
    admin.reassign({partition: [absent]})
    state = world.tree.state(partition)
    assert state is not None
    assert (state.leader, state.isr) == (source if controller == KLOG else -1, {source})
    world.start(absent)
    if controller != KLOG:
        world.move_controller(next_controller)
    world.until(lambda: not world.tree.reassigning(), "the reassignment does not end")
    assert world.tree.replicas(topic) == {0: [absent]}
    assert world.leader(partition) == absent
    check(world, written)
