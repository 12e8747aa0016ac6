"""klog is controller of Kafka brokers, and Kafka's controller drives a klog broker.

The partitions of these tests whose brokers are of both kinds have one replica, so that they show the
controllers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.admin import ClusterAdmin
from tests.cluster.links import ZOOKEEPER
from tests.cluster.reading import check
from tests.cluster.tree import Partition
from tests.cluster.world import Cluster, cluster, kinds
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Writer, Written
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Broker 0 is the one of the other kind.
KLOG, FIRST, SECOND = 0, 1, 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Cluster]:
    work: Path = tmp_path_factory.mktemp("controllers")
    # A controller elects preferred leaders by itself 5 s after its own election.
    config = {"auto.leader.rebalance.enable": "false"}
    with cluster(work, kafka3, kinds("klog,kafka,kafka"), config, with_links=True) as found:
        found.start()
        yield found


def create(world: Cluster, name: str) -> list[Partition]:
    """Creates a topic with a partition on each broker alone, and one on the two brokers of one kind."""
    world.create({f"{name}-alone": 3}, assignment=[[KLOG], [FIRST], [SECOND]])
    world.create({name: 2}, assignment=[[FIRST, SECOND], [SECOND, FIRST]], min_insync_replicas=1)
    return [*((f"{name}-alone", number) for number in range(3)), (name, 0), (name, 1)]


def write(world: Cluster, partitions: list[Partition], count: int = 50) -> Written:
    written: Written = {}
    # A request that is sent again gets an answer without an offset.
    writer = Writer(world.bootstrap, written, message_timeout_ms=120_000, request_timeout_ms=110_000)
    for topic in sorted({topic for topic, _ in partitions}):
        for number in range(count):
            writer.write(topic, b"%d" % number)
    writer.finish(120)
    return written


def check_administration(world: Cluster, prefix: str) -> None:
    """Creates, grows and deletes topics on the present controller, by way of every broker."""
    for member in world.members.values():
        name = f"{prefix}-{member.broker_id}"
        partitions = create(world, name)
        alone = f"{name}-alone"
        ClusterAdmin(member.address).grow(alone, 4, [[KLOG]])
        world.wait_for_leaders([(alone, 3)])
        written = write(world, [*partitions, (alone, 3)])
        check(world, written)
        ClusterAdmin(member.address).delete([name])
        world.until(lambda name=name: name not in world.tree.topics(), f"{name} is not deleted")
        directories = [each for other in world.members.values() for each in other.log_directories]
        assert not [each for each in directories if list(each.glob(f"{name}-[0-9]"))]
        check(world, written_to(written, alone))


def written_to(written: Written, topic: str) -> Written:
    return {partition: records for partition, records in written.items() if partition[0] == topic}


@pytest.mark.parametrize("controller", [KLOG, FIRST])
def test_topics_are_created_grown_and_deleted(world: Cluster, controller: int) -> None:
    world.move_controller(controller)
    check_administration(world, f"topics-by-{controller}")
    assert world.tree.controller() == controller


@pytest.mark.parametrize("controller", [KLOG, FIRST])
def test_a_killed_leader_is_replaced_and_comes_back(world: Cluster, controller: int) -> None:
    world.move_controller(controller)
    name = f"killed-by-{controller}"
    world.create({name: 1}, assignment=[[SECOND, FIRST]], min_insync_replicas=1)
    partition = name, 0
    written = write(world, [partition])
    assert world.leader(partition) == SECOND
    world.members[SECOND].kill()
    world.wait_for_leader(partition, FIRST)
    world.wait_for_isr(partition, FIRST)
    after = write(world, [partition])
    for each, records in after.items():
        written.setdefault(each, {}).update(records)
    world.start(SECOND)
    world.wait_for_isr(partition, FIRST, SECOND)
    check(world, written)
    # The preferred leader leads again if an operator asks for it.
    eventually(lambda: world.tree.controller() == controller)
    world.wait_for_known_controller()
    ClusterAdmin(world.bootstrap).elect_preferred([partition])
    world.wait_for_leader(partition, SECOND)
    check(world, written)


@pytest.mark.parametrize("controller", [KLOG, FIRST])
def test_a_stopped_leader_gives_its_partitions_away_first(world: Cluster, controller: int) -> None:
    world.move_controller(controller)
    name = f"stopped-by-{controller}"
    world.create({name: 1}, assignment=[[SECOND, FIRST]], min_insync_replicas=1)
    partition = name, 0
    written = write(world, [partition])
    state = world.tree.state(partition)
    world.members[SECOND].stop()
    moved = world.tree.state(partition)
    assert state is not None
    assert moved is not None
    assert (moved.leader, moved.isr) == (FIRST, {FIRST})
    world.start(SECOND)
    world.wait_for_isr(partition, FIRST, SECOND)
    check(world, written)


def test_the_controller_moves_back_and_forth(world: Cluster) -> None:
    partitions = create(world, "moving")
    written: Written = {}
    epoch = world.tree.controller_epoch()
    for number, controller in enumerate((KLOG, SECOND, KLOG, FIRST)):
        world.move_controller(controller)
        partitions += create(world, f"moving-{number}")
        for each, records in write(world, partitions).items():
            written.setdefault(each, {}).update(records)
        check(world, written)
    assert world.tree.controller_epoch() >= epoch + 4


@pytest.mark.parametrize("controller", [KLOG, FIRST])
def test_a_controller_without_zookeeper_is_replaced_and_resigns(world: Cluster, controller: int) -> None:
    world.move_controller(controller)
    name = f"cut-{controller}"
    partitions = create(world, name)
    world.links.cut(controller, ZOOKEEPER)
    try:
        world.wait_for_controller(*world.others(controller))
        world.until(lambda: controller not in world.tree.brokers(), "the session does not expire")
    finally:
        world.links.restore()
    world.until(lambda: world.tree.brokers() == set(world.members), "the broker does not come back")
    world.wait_for_known_controller()
    for topic, number in partitions:
        world.wait_for_isr((topic, number), *world.tree.replicas(topic)[number])
    written = write(world, [*partitions, *create(world, f"{name}-after")])
    check(world, written)
