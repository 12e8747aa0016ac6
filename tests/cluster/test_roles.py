"""klog follows a Kafka leader, and Kafka follows a klog leader.

Each test takes both roles in turns: `leader` is the broker that leads first, `follower` is of the other kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.admin import ClusterAdmin
from tests.cluster.agreement import differences
from tests.cluster.links import ZOOKEEPER
from tests.cluster.reading import check
from tests.cluster.world import Cluster, cluster, kinds
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Writer, Written, read
from tests.swap.world import CODECS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Broker 0 is klog. Controllers come as they are elected; another module tests them.
KLOG, KAFKA, THIRD = 0, 1, 2
BOTH_WAYS = pytest.mark.parametrize(
    ("leader", "follower"),
    [pytest.param(KLOG, KAFKA, id="klog-leads"), pytest.param(KAFKA, KLOG, id="kafka-leads")],
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka3: KafkaPeer) -> Iterator[Cluster]:
    work: Path = tmp_path_factory.mktemp("roles")
    # The last broker that stops finds no controller, and Kafka's then waits between its attempts.
    # A controller elects preferred leaders by itself 5 s after its own election.
    config = {"controlled.shutdown.retry.backoff.ms": 1000, "auto.leader.rebalance.enable": "false"}
    with cluster(work, kafka3, kinds("klog,kafka,kafka"), config, with_links=True) as found:
        found.start()
        yield found
        found.stop()
        assert "Traceback" not in "".join(each.klog_log for each in found.members.values())
        topics = [each for each in found.tree.topics() if not each.startswith("__")]
        partitions = [(topic, number) for topic in topics for number in found.tree.replicas(topic)]
        assert partitions
        for partition in partitions:
            replicas = found.tree.replicas(partition[0])[partition[1]]
            holders = [found.members[each] for each in replicas]
            assert list(differences(holders, {partition: 0})) == []


def write(world: Cluster, topic: str, count: int, marker: str, into: Written, **config: str | int) -> None:
    # A request that is sent again gets an answer without an offset.
    writer = Writer(world.bootstrap, into, message_timeout_ms=120_000, request_timeout_ms=110_000, **config)
    for number in range(count):
        writer.write(topic, f"{marker}/{number}/".encode() * (1 + number % 20), b"%d" % number)
    writer.finish(120)


@BOTH_WAYS
def test_records_of_every_kind_are_copied(world: Cluster, leader: int, follower: int) -> None:
    topic = f"copied-from-{leader}"
    world.create({topic: 3}, assignment=[[leader, follower, THIRD]] * 3, segment_bytes=40_000)
    written: Written = {}
    for codec in CODECS:
        write(world, topic, 300, codec, written, compression_type=codec)
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(120)
    for commits in (True, False):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, b"in a transaction %d" % number, partition=0)
        producer.commit_transaction(120) if commits else producer.abort_transaction(120)
    world.wait_for_full_isr()
    assert all(world.leader((topic, number)) == leader for number in range(3))
    stable = read(world.bootstrap, [(topic, 0)], "read_committed")[topic, 0]
    in_transactions = [each.value for each in stable.values() if each.value.startswith(b"in a")]
    assert in_transactions == [b"in a transaction %d" % number for number in range(20)]
    found = read(world.bootstrap, written)
    for partition, records in written.items():
        assert records.items() <= found[partition].items()


@BOTH_WAYS
def test_the_leader_removes_a_follower_that_is_cut_off_and_takes_it_back(
    world: Cluster, leader: int, follower: int
) -> None:
    partition = f"isr-of-{leader}", 0
    world.create({partition[0]: 1}, assignment=[[leader, follower, THIRD]])
    # A leader cannot shrink the ISR if it cannot reach the controller.
    world.move_controller(THIRD)
    written: Written = {}
    write(world, partition[0], 50, "all", written)
    world.links.cut(leader, follower)
    try:
        # The records are acknowledged once the ISR has shrunk. It does not if there is nothing to copy.
        write(world, partition[0], 50, "without it", written)
        assert world.isr(partition) == {leader, THIRD}
    finally:
        world.links.restore()
    world.wait_for_isr(partition, leader, follower, THIRD)
    assert world.leader(partition) == leader
    check(world, written)


@BOTH_WAYS
def test_records_are_deleted_on_all_replicas(world: Cluster, leader: int, follower: int) -> None:
    partition = f"deleted-from-{leader}", 0
    world.create({partition[0]: 1}, assignment=[[leader, follower, THIRD]], segment_bytes=10_000)
    written: Written = {}
    write(world, partition[0], 300, "some", written, batch_num_messages=10)
    ClusterAdmin(world.bootstrap).delete_records({partition: 120})
    left = {partition: {offset: each for offset, each in written[partition].items() if offset >= 120}}
    check(world, left)
    # The answer came after all replicas had their log start offset, so the next leader has it, too.
    world.members[leader].stop()
    world.wait_for_leader(partition, follower)
    check(world, left)
    world.start(leader)
    world.wait_for_full_isr()


@BOTH_WAYS
def test_a_clean_change_of_leaders_loses_nothing(world: Cluster, leader: int, follower: int) -> None:
    partition = f"stopped-{leader}", 0
    world.create({partition[0]: 1}, assignment=[[leader, follower, THIRD]])
    written: Written = {}
    write(world, partition[0], 100, "before", written)
    world.members[leader].stop()
    assert world.leader(partition) == follower
    write(world, partition[0], 100, "between", written)
    world.start(leader)
    world.wait_for_full_isr()
    check(world, written)
    ClusterAdmin(world.bootstrap).elect_preferred([partition])
    assert world.leader(partition) == leader
    write(world, partition[0], 100, "after", written)
    check(world, written)


@BOTH_WAYS
def test_a_leader_that_was_away_truncates_what_it_alone_has(
    world: Cluster, leader: int, follower: int
) -> None:
    """It takes records with acks=1 without its followers and ZooKeeper, and follows the other kind then."""
    partition = f"diverged-{leader}", 0
    world.create({partition[0]: 1}, assignment=[[leader, follower, THIRD]])
    written: Written = {}
    write(world, partition[0], 100, "before", written)
    # If the controller is cut off, other brokers wait for its answers (producer ids) until they time out.
    world.move_controller(THIRD)
    alone: Written = {}
    for other in (follower, THIRD, ZOOKEEPER):
        world.links.cut(leader, other)
    try:
        config: dict[str, str | int] = {"enable.idempotence": "false", "acks": 1}
        to_leader = Writer(world.members[leader].address, alone, **config)
        for number in range(10):
            to_leader.write(partition[0], b"alone %d" % number)
        to_leader.flush(60)
        to_leader.abandon()
        world.wait_for_leader(partition, follower)
        # A client that once learned of the old leader would ask only that one from then on: it has a
        # connection to it, and the old leader names itself.
        world.wait_until_only_these_are_known({partition: follower}, follower, THIRD)
        for_others = ",".join(world.members[each].address for each in (follower, THIRD))
        # Without a producer id, for which Kafka's brokers may ask the broker that is cut off.
        config = {"enable.idempotence": "false", "acks": "all", "message.timeout.ms": 120_000}
        writer = Writer(for_others, written, **config)
        for number in range(40):
            writer.write(partition[0], b"after %d" % number)
        writer.finish(120)
    finally:
        world.links.restore()
    assert alone[partition].keys() & written[partition].keys()
    world.wait_for_full_isr()
    check(world, written)


@BOTH_WAYS
def test_after_an_unclean_election_the_log_of_the_new_leader_counts(
    world: Cluster, leader: int, follower: int
) -> None:
    partition = f"unclean-{leader}", 0
    world.create(
        {partition[0]: 1},
        assignment=[[leader, follower]],
        unclean_leader_election_enable="true",
        min_insync_replicas=1,
    )
    kept: Written = {}
    write(world, partition[0], 50, "kept", kept)
    world.wait_for_full_isr()
    world.members[follower].stop()
    world.wait_for_isr(partition, leader)
    write(world, partition[0], 50, "lost", {})
    world.members[leader].kill()
    world.start(follower)
    world.wait_for_leader(partition, follower)
    write(world, partition[0], 20, "instead", kept)
    world.start(leader)
    world.wait_for_isr(partition, leader, follower)
    check(world, kept)
    assert len(kept[partition]) == 70
