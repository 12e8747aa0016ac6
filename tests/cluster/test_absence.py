"""What happens to partitions while brokers are away, in a cluster of both kinds and under either controller.

Topics are deleted, replicas moved away, leaders elected that were not in sync; and a controller that slept
for longer than its session changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from klog.client.fetcher import fetch, partitions_of, topics_of
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError
from klog.protocol.fetch_request import FetchPartition, FetchRequest
from klog.protocol.messages import build, request_class
from tests.cluster.agreeing import agreeing, tools_of
from tests.cluster.faults import EXPIRY_S
from tests.cluster.members import Kind
from tests.cluster.reading import check
from tests.cluster.tools import ClusterTools
from tests.cluster.tree import Partition
from tests.cluster.world import Cluster
from tests.entity_structs import request_struct
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Writer, Written

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Broker 0 is the one of the other kind.
KLOG, FIRST, SECOND = 0, 1, 2
CONFIG = {"controlled.shutdown.retry.backoff.ms": 100, "auto.leader.rebalance.enable": "false"}
CONTROLLERS = pytest.mark.parametrize(
    "controller", [pytest.param(KLOG, id="klog-controls"), pytest.param(FIRST, id="kafka-controls")]
)
# The controller, and the broker that is away.
AWAY = pytest.mark.parametrize(
    ("controller", "away"),
    [
        pytest.param(KLOG, SECOND, id="klog-controls-kafka"),
        pytest.param(FIRST, KLOG, id="kafka-controls-klog"),
    ],
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Cluster]:
    work: Path = tmp_path_factory.mktemp("absence")
    with agreeing(work, kafka3, "klog,kafka,kafka", CONFIG, internal_topics=True) as found:
        yield found


@pytest.fixture(scope="module")
def tools(
    world: Cluster, kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterTools]:
    with tools_of(world, kafka3, tmp_path_factory.mktemp("plans")) as found:
        yield found


def write(world: Cluster, topic: str, count: int, marker: str, into: Written) -> None:
    # A request that is sent again gets an answer without an offset.
    writer = Writer(world.bootstrap, into, message_timeout_ms=120_000, request_timeout_ms=110_000)
    for number in range(count):
        writer.write(topic, f"{marker}/{number}/".encode() * 10, b"%d" % number)
    writer.finish(120)


def directories(world: Cluster, broker_id: int, topic: str) -> list[str]:
    """The directories of a topic's partitions that are not deleted."""
    return [
        path.name
        for each in world.members[broker_id].log_directories
        for path in each.glob(f"{topic}-*")
        if not path.name.endswith("-delete")
    ]


@AWAY
def test_a_topic_that_is_deleted_meanwhile_is_gone_when_the_broker_is_back(
    world: Cluster, controller: int, away: int
) -> None:
    world.move_controller(controller)
    topic = f"deleted-{controller}-{away}"
    (other,) = world.others(controller, away)
    world.create({topic: 2}, assignment=[[away, other], [other, away]], min_insync_replicas=1)
    write(world, topic, 20, "gone", {})
    world.members[away].stop()
    with suppress(KafkaException):  # it may answer that the deletion has not ended in time
        world.admin.delete([topic])
    world.until(lambda: directories(world, other, topic) == [], "a live broker keeps it")
    assert topic in world.tree.topics()
    assert len(directories(world, away, topic)) == 2
    world.start(away)
    world.until(lambda: topic not in world.tree.topics(), "the topic is not deleted")
    world.until(lambda: directories(world, away, topic) == [], "its directories stay")
    # The name is free again, as soon as the order to delete it is gone, too.
    world.until(
        lambda: not world.tree.exists(f"/admin/delete_topics/{topic}"), "it stays marked for deletion"
    )
    written: Written = {}
    world.create({topic: 1}, assignment=[[away, other]], min_insync_replicas=1)
    write(world, topic, 20, "new", written)
    check(world, written)


@AWAY
def test_a_replica_that_is_moved_away_meanwhile_stays_on_disk_and_serves_nobody(
    world: Cluster, tools: ClusterTools, controller: int, away: int
) -> None:
    """Kafka's controller does not wait for a dead broker, and does not tell it later: the log is a stray."""
    world.move_controller(controller)
    topic = f"stray-{controller}-{away}"
    partition = topic, 0
    (other,) = world.others(controller, away)
    world.create({topic: 1}, assignment=[[away, other]], min_insync_replicas=1)
    written: Written = {}
    write(world, topic, 50, "before", written)
    world.wait_for_full_isr()
    world.members[away].kill()
    world.wait_for_leader(partition, other)
    plan = {partition: [other, controller]}
    tools.reassign("execute", plan)
    tools.wait_until_complete(plan)
    write(world, topic, 50, "meanwhile", written)
    world.start(away)
    world.wait_for_full_isr()
    assert directories(world, away, topic) == [f"{topic}-0"]
    (lag,) = [
        found["offsetLag"]
        for each in tools.log_dirs()[away]
        for found in each["partitions"]
        if found["partition"] == f"{topic}-0"
    ]
    assert lag == -1
    assert world.isr(partition) == {other, controller}
    check(world, written)
    # If it becomes a replica again, its old log is continued or cut like any follower's.
    back = {partition: [away, other]}
    tools.reassign("execute", back)
    tools.wait_until_complete(back)
    write(world, topic, 50, "after", written)
    world.wait_for_full_isr()
    check(world, written)


@pytest.mark.parametrize(
    ("controller", "first", "last"),
    [(KLOG, FIRST, SECOND), (FIRST, KLOG, SECOND), (FIRST, SECOND, KLOG)],
)
def test_kafka_s_tool_elects_a_leader_that_was_not_in_sync(
    world: Cluster, tools: ClusterTools, controller: int, first: int, last: int
) -> None:
    """The last in-sync replica is dead, and another one is back."""
    world.move_controller(controller)
    topic = f"unclean-{controller}-{last}"
    partition = topic, 0
    world.create({topic: 1}, assignment=[[last, first]], min_insync_replicas=1)
    kept: Written = {}
    write(world, topic, 30, "kept", kept)
    world.wait_for_full_isr()
    world.members[first].stop()
    world.wait_for_isr(partition, last)
    write(world, topic, 30, "lost", {})
    world.members[last].kill()
    world.start(first)

    def leader() -> int | None:
        state = world.tree.state(partition)
        return None if state is None else state.leader

    world.until(lambda: leader() == -1, "the dead leader is not noticed")
    # Then the controller knows that the other one is back.
    world.wait_for_known_controller()
    refused = tools.elect("preferred", [partition])
    assert refused.status == 1
    assert "PreferredLeaderNotAvailableException" in refused.out + refused.err
    elected = tools.elect("unclean", [partition])
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in elected.out
    assert world.leader(partition) == first
    write(world, topic, 10, "instead", kept)
    world.start(last)
    world.wait_for_isr(partition, first, last)
    check(world, kept)
    assert world.tree.controller() == controller


@CONTROLLERS
def test_a_controller_that_slept_changes_nothing(world: Cluster, controller: int) -> None:
    """It wakes up with a request that it must not carry out any more."""
    world.move_controller(controller)
    topic = f"slept-{controller}"
    others = world.others(controller)
    world.create({topic: 1}, assignment=[others], min_insync_replicas=1)
    host, port = world.members[controller].address.split(":")
    answers: list[Any] = []

    def ask(channel: Channel) -> None:
        with suppress(ChannelError):  # a connection may be closed instead
            answers.append(channel.send(reassignment(topic, [controller]), 120_000))

    with Channel(host, int(port)) as channel:
        world.members[controller].pause()
        try:
            asking = threading.Thread(target=ask, args=(channel,))
            asking.start()
            world.until(lambda: world.tree.controller() in others, "no other controller", EXPIRY_S)
            world.until(lambda: controller not in world.tree.brokers(), "the session does not expire")
            world.create({f"{topic}-meanwhile": 1}, assignment=[others], min_insync_replicas=1)
            epoch = world.tree.controller_epoch()
        finally:
            world.members[controller].resume()
        # Kafka's controller drops what it had received, and its client waits in vain.
        if world.members[controller].kind is Kind.KLOG:
            asking.join(120)
            assert answers
    asking.join(120)
    world.until(lambda: controller in world.tree.brokers(), "it does not come back")
    assert world.wait_for_known_controller() in others
    assert world.tree.controller_epoch() == epoch
    assert world.tree.replicas(topic) == {0: others}
    assert not world.tree.reassigning()
    for answer in answers:
        codes = {part.error_code for each in answer.responses for part in each.partitions}
        assert answer.error_code == ErrorCode.NOT_CONTROLLER or codes == {ErrorCode.NOT_CONTROLLER}
    written: Written = {}
    write(world, topic, 20, "after", written)
    check(world, written)


def reassignment(topic: str, replicas: list[int]) -> Any:
    """The request to move partition 0 to other brokers."""
    api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    partition = build(request_struct(api, 0, "ReassignablePartition"), partition_index=0, replicas=replicas)
    wanted = build(request_struct(api, 0, "ReassignableTopic"), name=topic, partitions=(partition,))
    return build(request_class(api, 0), topics=(wanted,), timeout=timedelta(seconds=30))


@pytest.mark.parametrize("leader", [pytest.param(KLOG, id="klog"), pytest.param(FIRST, id="kafka")])
def test_a_broker_without_a_replica_is_refused_as_follower(world: Cluster, leader: int) -> None:
    topic = f"alone-{leader}"
    world.create({topic: 1}, assignment=[[leader]], min_insync_replicas=1)
    write(world, topic, 20, "all", {})
    assert fetched(world, (topic, 0), leader, SECOND, leader_epoch=0) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetched(world, (topic, 0), leader, SECOND, leader_epoch=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.isr((topic, 0)) == {leader}


def fetched(world: Cluster, partition: Partition, at: int, replica_id: int, leader_epoch: int) -> int:
    """The error that a broker answers to a follower's fetch."""
    topics = topics_of([(partition[0], FetchPartition(partition[1], leader_epoch, 0, -1, 0, 1 << 20))])
    host, port = world.members[at].address.split(":")
    request = FetchRequest(0, 1, 1 << 20, 0, topics, replica_id=replica_id)
    with Channel(host, int(port), timeout_ms=60_000) as channel:
        ((_, found),) = partitions_of(fetch(channel, request, 60_000))
    return int(found.error_code)
