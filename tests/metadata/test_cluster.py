"""Registration, broker ids, cluster id, election, fencing, topics, configs and producer ids in the tree."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import pytest

from klog.formats.names import TopicPartition, decode_uuid
from klog.metadata import cluster, configs, paths, topics, znodes
from klog.metadata.election import FencedStore, elect, read_controller
from klog.metadata.errors import (
    BadVersionError,
    BrokerIdInUseError,
    ConnectionLossError,
    ControllerMovedError,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
    StoreError,
    TopicDeletionInProgressError,
    TopicExistsError,
    UnknownTopicError,
)
from klog.metadata.fenced_writes import (
    create_partition_states,
    delete_topic,
    update_partition_states,
    write_features,
    write_topic,
)
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.producer_ids import (
    ProducerIds,
    ProducerIdsExhaustedError,
    allocate_producer_ids,
    allocating,
)
from klog.metadata.retried_writes import write
from klog.metadata.store import Create, Delete, MultiResult, Operation, SetData
from klog.metadata.values import (
    BrokerRegistration,
    Endpoint,
    FinalizedFeatures,
    LeaderAndIsr,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from tests.metadata.conftest import call_at_once
from tests.metadata.memory_tree import NoJournal
from tests.threads import join, started


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class Lossy(TreeSession):
    """A session that loses the connection at chosen writes, before or after they happened."""

    def __init__(self, shared: SharedTree) -> None:
        super().__init__(shared, call_at_once)
        self.plan: list[str] = []
        self.between: Callable[[], None] = lambda: None

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        fate = self.plan.pop(0) if self.plan else "fine"
        if fate == "lost before":
            return [ConnectionLossError("lost") for _ in multis]
        outcomes = super().multi_many(multis)
        if fate == "lost after":
            self.between()
            return [ConnectionLossError("lost") for _ in multis]
        return outcomes


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared(clock: Clock) -> SharedTree:
    return SharedTree(NoJournal(), clock)


@pytest.fixture
def store(shared: SharedTree) -> Lossy:
    store = Lossy(shared)
    cluster.create_persistent_nodes(store)
    return store


@pytest.fixture
def other(shared: SharedTree) -> Lossy:
    return Lossy(shared)


LOSSES = pytest.mark.parametrize(
    "losses", [[], ["lost before"], ["lost after"], ["lost before", "lost after"]], ids=" ".join
)


def broker(broker_id: int, rack: str | None = None) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), rack)


# --- the outcome of writes ---


@pytest.mark.parametrize("loss", ["lost before", "lost after"])
def test_a_write_with_a_lost_reply_gets_its_outcome(store: Lossy, loss: str) -> None:
    store.plan = [loss]
    assert write(store, Create("/a", b"0")) == "/a"
    store.plan = [loss]
    assert write(store, SetData("/a", b"1", 0)) == store.get("/a").stat
    assert store.get("/a").stat.version == 1
    store.plan = [loss]
    assert write(store, Delete("/a", 1)) is None
    assert store.exists("/a") is None


def test_a_write_of_another_session_is_not_mistaken_for_a_lost_reply(store: Lossy, other: Lossy) -> None:
    other.create("/a", b"theirs")
    store.plan = ["lost before"]
    with pytest.raises(NodeExistsError):
        write(store, Create("/a", b"ours"))
    store.plan = ["lost after"]
    store.between = lambda: other.set("/a", b"theirs again", 1) and None
    with pytest.raises(BadVersionError):
        write(store, SetData("/a", b"ours", 0))


# --- brokers ---


def test_the_first_brokers_cluster_id_stays(store: Lossy, other: Lossy) -> None:
    assert cluster.get_or_create_cluster_id(store, "first") == "first"
    assert cluster.get_or_create_cluster_id(other, "second") == "first"


def test_generated_broker_ids_are_above_the_reserved_and_unique(store: Lossy, other: Lossy) -> None:
    assert [cluster.generate_broker_id(each) for each in (store, other, store)] == [1001, 1002, 1003]
    store.plan = ["lost after"]
    assert cluster.generate_broker_id(store) == 1005


@LOSSES
def test_a_broker_is_registered_with_its_czxid_as_epoch(
    store: Lossy, other: Lossy, losses: list[str]
) -> None:
    store.plan = losses
    epoch = cluster.register_broker(store, broker(1, "r"))
    node = other.get(paths.broker(1))
    assert node.stat.version == 1
    assert node.stat.ephemeral_owner == store.session_id
    assert epoch == node.stat.created_zxid
    assert cluster.live_brokers(other)[1].epoch == epoch


def test_an_id_in_use_is_refused(store: Lossy, other: Lossy) -> None:
    cluster.register_broker(store, broker(1))
    with pytest.raises(BrokerIdInUseError, match="broker id 1"):
        cluster.register_broker(other, broker(1))
    store.close()
    cluster.register_broker(other, broker(1))


def test_a_registration_of_the_own_expired_session_is_replaced(store: Lossy, other: Lossy) -> None:
    first = cluster.register_broker(store, broker(1))
    with pytest.raises(BrokerIdInUseError):
        cluster.register_broker(other, broker(1), previous_session=None)
    second = cluster.register_broker(other, broker(1), previous_session=store.session_id)
    assert second > first
    assert other.get(paths.broker(1)).stat.ephemeral_owner == other.session_id


def test_live_brokers_are_watched(store: Lossy, other: Lossy) -> None:
    seen: list[object] = []
    assert cluster.live_brokers(store, seen.append) == {}
    cluster.register_broker(other, broker(7))
    cluster.register_broker(store, broker(10))
    assert list(cluster.live_brokers(store)) == [7, 10]
    assert len(seen) == 1
    assert cluster.read_broker(store, 7, seen.append) == cluster.live_brokers(store)[7]
    cluster.update_broker(other, broker(7, "moved"))
    assert len(seen) == 2
    moved = cluster.read_broker(store, 7)
    assert moved is not None
    assert moved.rack == "moved"
    assert cluster.read_broker(store, 8) is None


# --- the controller ---


@LOSSES
def test_each_election_has_the_next_epoch(store: Lossy, other: Lossy, losses: list[str]) -> None:
    first = elect(other, 2, 5)
    other.close()
    store.plan = losses
    second = elect(store, 1, 6)
    assert (first.epoch, second.epoch) == (1, 2)
    assert znodes.decode_epoch(store.get(paths.CONTROLLER_EPOCH).data) == 2
    assert store.get(paths.CONTROLLER_EPOCH).stat.version == second.version
    elected = read_controller(store)
    assert elected is not None
    assert elected.broker_id == 1


def test_the_slower_candidate_is_not_elected(store: Lossy, other: Lossy) -> None:
    elect(other, 2, 5)
    with pytest.raises(ControllerMovedError):
        elect(store, 1, 6)
    store.plan = ["lost before"]
    with pytest.raises(ControllerMovedError):
        elect(store, 1, 6)


def test_a_replaced_controller_writes_nothing(store: Lossy, other: Lossy) -> None:
    old = FencedStore(store, elect(store, 1, 5))
    old.write(Create("/a", b"ours"))
    old.resign()
    new = FencedStore(other, elect(other, 2, 6))
    with pytest.raises(ControllerMovedError, match="epoch 1 is over"):
        old.write(SetData("/a", b"late"))
    with pytest.raises(ControllerMovedError):
        old.write_all([Create("/b"), Create("/c")])
    old.resign()
    assert read_controller(store) is not None
    new.write(SetData("/a", b"new"))
    assert store.get("/a").data == b"new"


@LOSSES
def test_many_writes_have_an_outcome_each(store: Lossy, losses: list[str]) -> None:
    """They go into common multis, and one that fails does not affect the others."""
    fenced = FencedStore(store, elect(store, 1, 5))
    for number in range(120):
        store.create(f"/n{number}", b"old")
    store.set("/n70", b"theirs")
    store.delete("/n119")
    store.plan = list(losses)
    outcomes = fenced.write_all([SetData(f"/n{number}", b"new", 0) for number in range(120)])
    assert isinstance(outcomes[70], BadVersionError)
    assert isinstance(outcomes[119], NoNodeError)
    for number in (each for each in range(119) if each != 70):
        assert outcomes[number] == store.get(f"/n{number}").stat
        assert store.get(f"/n{number}").data == b"new"
    assert store.get("/n70").data == b"theirs"


def test_a_multi_is_no_larger_than_zookeeper_takes(store: Lossy) -> None:
    sizes: list[int] = []
    original = store.multi_many

    def measured(multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        sizes.extend(
            sum(len(each.data or b"") for each in multi if isinstance(each, Create)) for multi in multis
        )
        return original(multis)

    fenced = FencedStore(store, elect(store, 1, 5))
    store.multi_many = measured  # type: ignore[method-assign]
    fenced.write_all([Create(f"/n{number}", bytes(100_000 * number)) for number in range(8)])
    assert sum(sizes) == 2_800_000
    assert max(sizes) == 700_000  # alone: it has to be written somehow
    assert len(sizes) == 7


def test_fencing_holds_over_a_lost_reply(store: Lossy, other: Lossy) -> None:
    old = FencedStore(store, elect(store, 1, 5))

    def coup() -> None:
        other.delete(paths.CONTROLLER)
        elect(other, 2, 6)

    store.plan = ["lost after"]
    store.between = coup
    with pytest.raises(ControllerMovedError):
        old.write(Create("/a", b""))


def test_the_controller_is_watched_while_there_is_none(store: Lossy, other: Lossy) -> None:
    seen: list[object] = []
    assert read_controller(store, seen.append) is None
    elect(other, 2, 5)
    assert len(seen) == 1


# --- topics ---


PARTITION = TopicPartition("t", 0)


@pytest.fixture
def fenced(store: Lossy) -> FencedStore:
    return FencedStore(store, elect(store, 1, 5))


def test_a_topic_with_its_config(store: Lossy) -> None:
    topics.create_topic(store, "t", "A" * 22, {0: [1, 2]}, {"retention.ms": "5"}, [1, 2])
    assert store.get("/brokers/topics/t").data == (
        b'{"partitions":{"0":[1,2]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","adding_replicas":{},'
        b'"removing_replicas":{},"version":3}'
    )
    assert store.get("/config/topics/t").data == b'{"version":1,"config":{"retention.ms":"5"}}'
    with pytest.raises(TopicExistsError):
        topics.create_topic(store, "t", "A" * 22, {0: [1]}, {}, [1])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250])
def test_names_that_kafka_does_not_allow_are_refused(store: Lossy, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        topics.create_topic(store, name, "A" * 22, {0: [1]}, {}, [1])


def test_names_that_collide_in_metrics_are_refused(store: Lossy) -> None:
    topics.create_topic(store, "a.b_c", "A" * 22, {0: [1]}, {}, [1])
    with pytest.raises(InvalidTopicError, match=r"'a_b.c' collides with 'a.b_c'"):
        topics.create_topic(store, "a_b.c", "A" * 22, {0: [1]}, {}, [1])
    topics.create_topic(store, "abc", "A" * 22, {0: [1]}, {}, [1])


def test_assignments_are_validated(store: Lossy) -> None:
    with pytest.raises(InvalidReplicaAssignmentError):
        topics.create_topic(store, "t", "A" * 22, {0: [3]}, {}, [1])
    assert store.exists("/config/topics/t") is None


def test_partitions_are_added_to_a_topic(store: Lossy) -> None:
    with pytest.raises(UnknownTopicError):
        topics.add_partitions(store, "t", {1: [1]})
    topics.create_topic(store, "t", "A" * 22, {0: [1]}, {}, [1])
    topics.add_partitions(store, "t", {1: [1], 2: [1]})
    assert sorted(topics.read_topics(store, ["t"])["t"].partitions) == [0, 1, 2]
    with pytest.raises(BadVersionError):
        topics.add_partitions(store, "t", {1: [1]})
    topics.request_deletion(store, "t")
    with pytest.raises(TopicDeletionInProgressError):
        topics.add_partitions(store, "t", {3: [1]})


def test_deletion_is_requested_once(store: Lossy) -> None:
    with pytest.raises(UnknownTopicError):
        topics.request_deletion(store, "t")
    topics.create_topic(store, "t", "A" * 22, {0: [1]}, {}, [1])
    topics.request_deletion(store, "t")
    assert topics.topics_to_delete(store) == ["t"]
    with pytest.raises(TopicDeletionInProgressError):
        topics.request_deletion(store, "t")
    with pytest.raises(TopicExistsError, match="marked for deletion"):
        topics.create_topic(store, "t", "A" * 22, {0: [1]}, {}, [1])


def test_partition_states_are_created_and_written_conditionally(store: Lossy, fenced: FencedStore) -> None:
    topics.create_topic(store, "t", "A" * 22, {0: [1]}, {}, [1])
    first = LeaderAndIsr(1, 0, (1,))
    assert create_partition_states(fenced, {PARTITION: first}) == {PARTITION: None}
    again = create_partition_states(fenced, {PARTITION: first, TopicPartition("missing", 0): first})
    assert isinstance(again[PARTITION], NodeExistsError)
    assert isinstance(again[TopicPartition("missing", 0)], NoNodeError)
    updates = update_partition_states(fenced, {PARTITION: first.next_epoch(2, (1, 2))})
    assert updates.updated == {PARTITION: LeaderAndIsr(2, 1, (1, 2), partition_epoch=1)}
    stored = topics.read_partition_states(store, [PARTITION, TopicPartition("t", 1)])
    assert stored[PARTITION].leader_and_isr == updates.updated[PARTITION]
    assert stored[PARTITION].controller_epoch == fenced.epoch
    missing = TopicPartition("t", 9)
    late = update_partition_states(fenced, {PARTITION: first, missing: first})
    assert late.updated == {}
    assert late.outdated == (PARTITION,)
    assert isinstance(late.failed[missing], NoNodeError)


def test_a_topic_is_removed_with_everything_about_it(store: Lossy, fenced: FencedStore) -> None:
    before = store.children("/brokers/topics")
    topics.create_topic(store, "t", "A" * 22, {0: [1], 1: [1]}, {"a": "b"}, [1])
    create_partition_states(fenced, {TopicPartition("t", each): LeaderAndIsr(1, 0, (1,)) for each in (0, 1)})
    topics.request_deletion(store, "t")
    write_topic(fenced, TopicAssignment("t", "A" * 22, {0: ReplicaAssignment((1,))}))
    delete_topic(fenced, "t")
    assert store.children("/brokers/topics") == before
    assert store.exists("/config/topics/t") is None
    assert topics.topics_to_delete(store) == []
    delete_topic(fenced, "t")


def test_features_are_created_or_replaced(store: Lossy, fenced: FencedStore) -> None:
    write_features(fenced, FinalizedFeatures({}))
    assert store.get("/feature").data == b'{"features":{},"version":2,"status":1}'
    write_features(fenced, FinalizedFeatures({"f": 3}))
    assert znodes.decode_features(store.get("/feature").data) == FinalizedFeatures({"f": 3})


def test_topic_ids_are_random_uuids_that_do_not_start_with_a_dash() -> None:
    raws = [b"\xf8" * 16, b"\x00" * 16]
    text = topics.new_topic_id(lambda _count: raws.pop(0))
    assert decode_uuid(text).hex() == "00000000000040008000000000000000"
    assert len({topics.new_topic_id(os.urandom) for _ in range(100)}) == 100


# --- configs ---


def test_configs_are_written_and_notified(store: Lossy, clock: Clock) -> None:
    configs.change_config(store, "users/alice/clients/c%2F1", {"producer_byte_rate": "1"})
    notified: list[str] = []
    notifications = configs.config_change_notifications(store, notified.append, clock)
    notifications.follow()
    assert notified == ["users/alice/clients/c%2F1"]
    assert configs.read_config(store, "users/alice/clients/c%2F1") == {"producer_byte_rate": "1"}
    configs.change_config(store, "topics/t", {"a": "1"})
    configs.change_config(store, "topics/t", {"a": "2"})
    assert notified[1:] == ["topics/t", "topics/t"]
    assert configs.valid_configs(store, "topics") == ({"t": {"a": "2"}}, {})
    assert configs.read_config(store, "topics/none") == {}
    assert configs.valid_configs(store, "none") == ({}, {})


def test_an_invalid_notification_does_not_stop_the_next(store: Lossy, clock: Clock) -> None:
    notified: list[str] = []
    configs.config_change_notifications(store, notified.append, clock).follow()
    store.create(paths.CONFIG_CHANGE_PREFIX, b"broken", sequential=True)
    configs.change_config(store, "topics/t", {})
    assert notified == ["topics/t"]


def test_notifications_are_deleted_after_a_quarter_of_an_hour(store: Lossy, clock: Clock) -> None:
    configs.change_config(store, "topics/old", {})
    clock.ms += 10 * 60 * 1000
    configs.change_config(store, "topics/young", {})
    clock.ms += 5 * 60 * 1000 + 1
    configs.config_change_notifications(store, lambda _path: None, clock).follow()
    assert store.children(paths.CONFIG_CHANGES) == ["config_change_0000000001"]


# --- producer ids ---


@LOSSES
def test_blocks_of_producer_ids_follow_each_other(store: Lossy, other: Lossy, losses: list[str]) -> None:
    store.plan = losses
    assert allocate_producer_ids(store, 1) == ProducerIdBlock(1, 0, 999)
    assert allocate_producer_ids(other, 2) == ProducerIdBlock(2, 1000, 1999)


def test_ids_are_new_and_go_on_in_the_next_block() -> None:
    blocks = iter([ProducerIdBlock(1, 1000, 1001), ProducerIdBlock(1, 5000, 5999)])
    ids = ProducerIds(allocating(lambda: next(blocks)))
    assert [ids.next_id() for _ in range(4)] == [1000, 1001, 5000, 5001]


def test_a_block_is_allocated_before_the_last_one_is_used_up() -> None:
    allocated: list[ProducerIdBlock] = []

    def allocate() -> ProducerIdBlock:
        allocated.append(ProducerIdBlock(1, 1000 * len(allocated), 1000 * len(allocated) + 999))
        return allocated[-1]

    ids = ProducerIds(allocating(allocate))
    assert [ids.next_id() for _ in range(900)] == list(range(900))
    assert len(allocated) == 1
    assert [ids.next_id() for _ in range(1_600)] == list(range(900, 2_500))
    assert len(allocated) == 3


def test_while_a_block_is_allocated_ids_come_from_the_last_one_and_then_from_none() -> None:
    blocks = iter([ProducerIdBlock(1, 0, 99), ProducerIdBlock(1, 500, 599)])
    tasks: list[Callable[[], None]] = []
    ids = ProducerIds(allocating(lambda: next(blocks), tasks.append), wait_s=0)
    with pytest.raises(MetadataError, match="no producer id is ready"):
        ids.next_id()
    tasks.pop()()
    assert [ids.next_id() for _ in range(100)] == list(range(100))
    for _ in range(3):
        with pytest.raises(MetadataError):
            ids.next_id()
    (allocation,) = tasks
    allocation()
    assert ids.next_id() == 500


def test_a_block_that_could_not_be_allocated_is_asked_for_again() -> None:
    outcomes: list[ProducerIdBlock | MetadataError] = [
        ConnectionLossError("gone"),
        ConnectionLossError("gone"),
        ProducerIdBlock(1, 0, 9),
    ]

    def allocate() -> ProducerIdBlock:
        outcome = outcomes.pop(0)
        if isinstance(outcome, MetadataError):
            raise outcome
        return outcome

    ids = ProducerIds(allocating(allocate))
    for _ in range(2):
        with pytest.raises(ConnectionLossError):
            ids.next_id()
    assert ids.next_id() == 0


def test_whoever_waits_gets_an_id_when_the_block_is_there() -> None:
    may_allocate = threading.Event()

    def allocate() -> ProducerIdBlock:
        assert may_allocate.wait(60)
        return ProducerIdBlock(1, 0, 999)

    ids = ProducerIds(allocating(allocate, started), wait_s=60)
    taken: list[int] = []
    waiting = [started(lambda: taken.append(ids.next_id())) for _ in range(5)]
    may_allocate.set()
    join(waiting)
    assert sorted(taken) == list(range(5))


def test_no_block_is_allocated_after_the_last_producer_id(store: Lossy) -> None:
    last = ProducerIdBlock(1, 0, 2**63 - 500)
    store.set(paths.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last))
    with pytest.raises(ProducerIdsExhaustedError):
        allocate_producer_ids(store, 1)
