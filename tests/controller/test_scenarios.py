"""What a controller does, one scenario a test, on a simulated cluster that settles after each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from klog.controller.events import (
    AllocateProducerIds,
    AlterPartition,
    AlterReassignments,
    ControlledShutdown,
    ElectLeaders,
    ListReassignments,
    RebalanceDue,
    ResponseReceived,
    SessionExpired,
    SessionRenewed,
    TreeChanged,
    UncleanElectionEnabled,
    WatchedNode,
)
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import configs, paths, topics, znodes
from klog.metadata.control_requests import ControlResponse, partition_states
from klog.metadata.errors import InvalidZnodeError, SessionExpiredError
from klog.metadata.store import Check, SetData
from klog.metadata.values import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    TopicIdPartition,
)
from klog.protocol.election_type import ElectionType
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import LEADER_DURING_DELETE, UpdateMetadataRequest
from tests.controller.obedient_cluster import SimulatedCluster
from tests.metadata.samples import encode_partitions

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def world() -> SimulatedCluster:
    """Three settled brokers; the first is the controller."""
    return started(0, 1, 2)


def started(*broker_ids: int, **settings: Any) -> SimulatedCluster:
    world = SimulatedCluster(broker_ids, ControllerSettings(broker_id=-1, **settings))
    world.settle()
    return world


def with_topic(world: SimulatedCluster, *replicas: list[int], config: dict[str, str] | None = None) -> None:
    world.create_topic("t", {0: replicas[0]}, config)
    if len(replicas) > 1:
        topics.add_partitions(world.admin, "t", dict(enumerate(replicas[1:], start=1)))
    world.settle()
    world.requests.clear()


def ask(world: SimulatedCluster, make: Any, *args: Any) -> Any:
    """Sends a request to the active controller and returns its answer."""
    answers: list[Any] = []
    active = world.active()
    assert active is not None
    active.events.append(make(*args, answers.append))
    world.settle()
    assert len(answers) == 1
    return answers[0]


def kinds(world: SimulatedCluster, broker_id: int) -> list[str]:
    return [
        type(request).__name__.removesuffix("Request") for to, request in world.requests if to == broker_id
    ]


# --- election and failover ---


def test_the_first_broker_becomes_controller_and_the_others_know_it(world: SimulatedCluster) -> None:
    assert [each.core.is_active for each in world.brokers.values()] == [True, False, False]
    assert {each.core.active_controller_id for each in world.brokers.values()} == {0}
    assert world.admin.get(paths.FEATURE).data == b'{"features":{},"version":2,"status":1}'
    for broker in world.brokers.values():
        assert sorted(broker.cache.snapshot.brokers) == [0, 1, 2]
        assert broker.cache.snapshot.controller_id == 0


def test_a_dead_controller_is_replaced_in_a_new_epoch(world: SimulatedCluster) -> None:
    world.kill(0)
    world.settle()
    assert world.active() is world.brokers[1]
    assert {each.controller_epoch for each in world.brokers.values()} == {2}


def test_a_controller_is_elected_in_a_new_epoch_after_its_node_is_deleted(world: SimulatedCluster) -> None:
    world.admin.delete(paths.CONTROLLER)
    world.settle()
    active = world.active()
    assert active is not None
    assert sum(each.core.is_active for each in world.brokers.values()) == 1
    assert znodes.decode_epoch(world.admin.get(paths.CONTROLLER_EPOCH).data) == 2


def test_an_expired_session_deactivates_the_controller_and_ends_the_registration(
    world: SimulatedCluster,
) -> None:
    with_topic(world, [0, 1])
    first_epoch = world.brokers[0].epoch
    world.brokers[0].session.expire()
    world.settle()
    assert znodes.decode_epoch(world.admin.get(paths.CONTROLLER_EPOCH).data) == 2
    assert world.brokers[0].epoch > first_epoch
    assert sum(each.core.is_active for each in world.brokers.values()) == 1
    assert world.brokers[0].hosted[T0].leader == world.state("t").leader


def test_an_unregistered_broker_is_not_elected_if_the_session_expires_during_an_event() -> None:
    world = started(0)
    with_topic(world, [0])
    broker = world.brokers[0]
    broker.session.expire()
    # The event had begun before: it finds the new session before SessionExpired has been handled.
    broker.core.handle(TreeChanged(WatchedNode.CONTROLLER))
    assert not broker.core.is_active
    world.settle()
    assert broker.core.is_active
    assert znodes.decode_epoch(world.admin.get(paths.CONTROLLER_EPOCH).data) == 2
    assert world.state("t").leader == 0


def test_a_controller_node_of_this_session_without_an_active_controller_is_replaced(
    world: SimulatedCluster,
) -> None:
    broker = world.brokers[0]
    # The election succeeded in the new session before SessionExpired of the old one was handled.
    broker.core.handle(SessionExpired())
    assert not broker.core.is_active
    broker.core.handle(SessionRenewed())
    world.settle()
    assert sum(each.core.is_active for each in world.brokers.values()) == 1
    assert znodes.decode_epoch(world.admin.get(paths.CONTROLLER_EPOCH).data) == 2


def test_a_controller_that_was_replaced_without_noticing_writes_nothing(world: SimulatedCluster) -> None:
    old = world.brokers[0]
    world.admin.delete(paths.CONTROLLER)
    world.admin.multi([Check(paths.CONTROLLER_EPOCH, 1), SetData(paths.CONTROLLER_EPOCH, b"7")])
    world.create_topic("t", {0: [1]})
    old.session.pending.clear()
    old.core.handle(ElectLeaders(None, ElectionType.PREFERRED, lambda _answer: None))
    before = world.admin.children(paths.topic("t"))
    old.core.handle(TreeChanged(WatchedNode.TOPICS))
    assert not old.core.is_active
    assert world.admin.children(paths.topic("t")) == before == []


def test_a_controller_is_elected_again_after_only_the_epoch_was_written(
    world: SimulatedCluster,
) -> None:
    # `/controller` still belongs to this broker, so that no watch on it fires.
    world.admin.set(paths.CONTROLLER_EPOCH, b"7")
    with_topic(world, [0])
    assert world.active() is not None
    assert world.state("t").leader == 0
    assert znodes.decode_epoch(world.admin.get(paths.CONTROLLER_EPOCH).data) == 8


def test_requests_to_a_broker_that_is_not_controller_are_refused(world: SimulatedCluster) -> None:
    answers: list[object] = []
    world.brokers[1].events.append(ControlledShutdown(1, world.brokers[1].epoch, answers.append))
    world.settle()
    assert answers == [ErrorCode.NOT_CONTROLLER]


def test_a_reassignment_is_refused_by_a_controller_whose_session_is_over(
    world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_topic(world, [0, 1])
    old = world.brokers[0]

    def expired(*_: object) -> NoReturn:
        raise SessionExpiredError("the session expired")

    monkeypatch.setattr(type(old.session), "multi_many", expired)
    answers: list[object] = []
    old.core.handle(AlterReassignments({T0: [1, 2]}, answers.append))
    assert answers == [ErrorCode.NOT_CONTROLLER]
    assert not old.core.is_active


def test_a_failing_tree_deactivates_the_controller(world: SimulatedCluster) -> None:
    # The node below which deletions are requested was deleted.
    world.admin.delete(paths.DELETE_TOPICS)
    for _ in range(200):
        for step in world.steps()[:1]:
            step()
    assert world.active() is None
    world.admin.create(paths.DELETE_TOPICS)
    world.admin.create(paths.CONTROLLER)
    world.admin.delete(paths.CONTROLLER)
    world.settle()
    assert world.active() is not None


# --- topics ---


def test_a_new_topic_gets_leaders_and_requests_go_to_replicas_and_all_brokers(
    world: SimulatedCluster,
) -> None:
    world.requests.clear()
    world.create_topic("t", {0: [1, 2], 1: [2, 0]})
    world.settle()
    assert world.state("t", 0) == LeaderAndIsr(1, 0, (1, 2))
    assert world.state("t", 1) == LeaderAndIsr(2, 0, (2, 0))
    assert world.brokers[1].hosted[T0].is_new
    assert world.brokers[2].hosted.keys() == {T0, T1}
    for broker in world.brokers.values():
        assert sorted(broker.cache.snapshot.topics["t"]) == [0, 1]
        assert broker.cache.snapshot.topic_ids["t"] == world.topic("t").topic_id
    assert kinds(world, 1)[:2] == ["LeaderAndIsr", "UpdateMetadata"]


def test_a_topic_without_an_id_gets_one(world: SimulatedCluster) -> None:
    data = znodes.encode_topic(TopicAssignment("t", None, {0: ReplicaAssignment((1,))}))
    world.admin.create(paths.topic("t"), data)
    world.settle()
    topic_id = world.topic("t").topic_id
    assert topic_id is not None
    assert len(topic_id) == 22
    assert world.brokers[0].cache.snapshot.topic_ids == {"t": topic_id}


def test_an_invalid_topic_does_not_affect_the_others(world: SimulatedCluster) -> None:
    world.admin.create(paths.topic("broken"), b"{")
    world.create_topic("t", {0: [1]})
    world.settle()
    assert world.state("t").leader == 1
    world.admin.delete(paths.CONTROLLER)
    world.settle()
    assert world.active() is not None


def test_a_topic_waits_for_a_live_replica(world: SimulatedCluster) -> None:
    world.kill(2)
    world.settle()
    with_topic(world, [2], [2, 1])
    assert world.states("t").keys() == {1}
    assert world.state("t", 1) == LeaderAndIsr(1, 0, (1,))
    world.start(2)
    world.settle()
    assert world.state("t", 0) == LeaderAndIsr(2, 0, (2,))


def test_partitions_are_added_to_a_topic(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    topics.add_partitions(world.admin, "t", {1: [2, 0]})
    world.settle()
    assert world.state("t", 1) == LeaderAndIsr(2, 0, (2, 0))
    assert world.state("t", 0) == LeaderAndIsr(1, 0, (1, 2))


def test_a_deletion_writes_what_kafka_writes(world: SimulatedCluster) -> None:
    """The same states as a live Kafka 3.9.1 wrote for this topic on these brokers, in its order."""
    world.create_topic("gone", {0: [2, 1], 1: [0, 1]})
    world.settle()
    written: list[tuple[str, bytes | None]] = []
    active = world.active()
    assert active is not None
    original = active.session.multi_many

    def record(multis: Any) -> Any:
        for operations in multis:
            written.extend((each.path, each.data) for each in operations if isinstance(each, SetData))
        return original(multis)

    active.session.multi_many = record  # type: ignore[method-assign]
    topics.request_deletion(world.admin, "gone")
    world.settle()
    state = "/brokers/topics/gone/partitions/{}/state".format
    assert written == [
        (state(1), b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":1,"isr":[1]}'),
        (state(0), b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":1,"isr":[2]}'),
        (state(1), b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":2,"isr":[1]}'),
        (state(0), b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":2,"isr":[2]}'),
    ]
    assert topics.topic_names(world.admin) == []
    assert world.admin.exists(paths.topic_config("gone")) is None
    assert topics.topics_to_delete(world.admin) == []
    assert all(not disk for disk in world.disks.values())
    assert all(not broker.cache.snapshot.topics for broker in world.brokers.values())


def test_brokers_get_metadata_of_a_deletion_before_they_delete(world: SimulatedCluster) -> None:
    with_topic(world, [1])
    topics.request_deletion(world.admin, "t")
    world.settle()
    heard = [request for to, request in world.requests if to == 1]
    first = heard[0]
    assert isinstance(first, UpdateMetadataRequest)
    ((_, deleted),) = partition_states(first.topic_states)
    assert deleted.leader == LEADER_DURING_DELETE
    stops = [
        state
        for request in heard
        if isinstance(request, StopReplicaRequest)
        for _, state in partition_states(request.topic_states)
    ]
    assert [each.delete_partition for each in stops] == [False, True]
    assert {each.leader_epoch for each in stops} == {-2}


def test_a_deletion_waits_for_a_dead_broker(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    world.settle()
    topics.request_deletion(world.admin, "t")
    world.settle()
    assert topics.topic_names(world.admin) == ["t"]
    assert T0 in world.disks[2]
    assert T0 not in world.disks[1]
    world.start(2)
    world.settle()
    assert topics.topic_names(world.admin) == []
    assert T0 not in world.disks[2]


def test_a_deletion_continues_when_a_failed_broker_is_back(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    topics.request_deletion(world.admin, "t")
    world.cut_off = 2
    world.settle()
    assert T0 not in world.disks[1]
    world.kill(2)
    world.cut_off = None
    world.settle()
    assert topics.topic_names(world.admin) == ["t"]
    world.start(2)
    world.settle()
    assert topics.topic_names(world.admin) == []


def test_a_deletion_is_finished_by_the_next_controller(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    topics.request_deletion(world.admin, "t")
    world.kill(0)
    world.settle()
    world.start(2)
    world.settle()
    assert topics.topic_names(world.admin) == []


def test_a_topic_can_be_created_again_after_its_deletion(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    first_id = world.topic("t").topic_id
    topics.request_deletion(world.admin, "t")
    world.settle()
    with_topic(world, [2, 0])
    assert world.topic("t").topic_id != first_id
    assert world.state("t") == LeaderAndIsr(2, 0, (2, 0))
    assert world.brokers[0].cache.snapshot.topic_ids == {"t": world.topic("t").topic_id}


def test_the_mark_is_removed_if_deletion_is_disabled() -> None:
    world = started(0, 1, delete_topic_enable=False)
    with_topic(world, [1])
    topics.request_deletion(world.admin, "t")
    world.settle()
    assert topics.topics_to_delete(world.admin) == []
    assert world.state("t").leader == 1


def test_a_mark_for_an_unknown_topic_is_removed(world: SimulatedCluster) -> None:
    world.admin.create(paths.delete_topic("nobody"))
    world.settle()
    assert topics.topics_to_delete(world.admin) == []


def test_a_topic_being_deleted_gets_no_partitions(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    topics.request_deletion(world.admin, "t")
    world.settle()
    topic = world.topic("t")
    grown = TopicAssignment("t", topic.topic_id, {**topic.partitions, 1: ReplicaAssignment((1,))})
    world.admin.set(paths.topic("t"), znodes.encode_topic(grown))
    world.settle()
    assert world.topic("t") == topic


# --- brokers ---


def test_a_dead_leader_is_replaced_by_the_next_in_sync(world: SimulatedCluster) -> None:
    with_topic(world, [1, 0, 2])
    world.kill(1)
    world.settle()
    assert world.state("t") == LeaderAndIsr(0, 1, (0, 2), partition_epoch=1)
    assert world.brokers[2].hosted[T0].leader == 0
    assert world.brokers[2].cache.snapshot.topics["t"][0].offline_replicas == (1,)
    assert sorted(world.brokers[2].cache.snapshot.brokers) == [0, 2]


def test_a_dead_follower_leaves_the_isr(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    world.settle()
    assert world.state("t") == LeaderAndIsr(1, 1, (1,), partition_epoch=1)


def test_the_last_in_sync_replica_stays_in_the_isr(world: SimulatedCluster) -> None:
    """Observed after kill -9 of Kafka: {"leader":-1,"leader_epoch":1,"isr":[1]}."""
    with_topic(world, [1])
    world.kill(1)
    world.settle()
    assert world.state("t") == LeaderAndIsr(-1, 1, (1,), partition_epoch=1)
    world.start(1)
    world.settle()
    assert world.state("t") == LeaderAndIsr(1, 2, (1,), partition_epoch=2)


def test_an_unclean_leader_is_elected_only_if_the_topic_allows_it(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    world.settle()
    world.kill(1)
    world.start(2)
    world.settle()
    assert world.state("t").leader == -1
    configs.write_config(world.admin, "topics/t", {"unclean.leader.election.enable": "true"})
    active = world.active()
    assert active is not None
    active.events.append(UncleanElectionEnabled("t"))
    assert world.times.unclean_elections == 0
    world.settle()
    assert world.times.unclean_elections == 1
    assert world.state("t").leader == 2
    assert world.state("t").isr == (2,)
    assert world.state("t").recovery_state is LeaderRecoveryState.RECOVERING


def test_a_broker_whose_restart_was_not_seen_gets_all_metadata(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    broker = world.start(2)
    world.settle()
    assert broker.hosted[T0].leader == 1
    assert broker.cache.snapshot.topics["t"][0].leader == 1


def test_a_new_broker_learns_of_topics_that_it_does_not_hold(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    newcomer = world.start(3)
    world.settle()
    assert newcomer.cache.snapshot.topics["t"][0].leader == 1
    assert sorted(newcomer.cache.snapshot.brokers) == [0, 1, 2, 3]
    assert all(3 in each.cache.snapshot.brokers for each in world.brokers.values())


def test_new_endpoints_are_sent_to_all_brokers(world: SimulatedCluster) -> None:
    moved = BrokerRegistration(2, (Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 1),))
    world.admin.set(paths.broker(2), znodes.encode_broker(moved))
    world.settle()
    for broker in world.brokers.values():
        assert broker.cache.snapshot.brokers[2].endpoints == moved.endpoints


def test_a_controlled_shutdown_moves_leaders_first(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2], [2, 1], [1])
    still_led = ask(world, ControlledShutdown, 1, world.brokers[1].epoch)
    assert still_led == set()
    assert world.state("t", 0) == LeaderAndIsr(2, 1, (2,), partition_epoch=1)
    assert world.state("t", 1) == LeaderAndIsr(2, 1, (2,), partition_epoch=1)
    assert world.state("t", 2).leader == 1
    assert [each for each in kinds(world, 1) if each == "StopReplica"] == ["StopReplica"]


def test_a_controlled_shutdown_returns_the_partitions_that_it_could_not_move(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    assert ask(world, ControlledShutdown, 2, world.brokers[2].epoch) == set()
    assert ask(world, ControlledShutdown, 1, world.brokers[1].epoch) == {T0}
    assert ask(world, ControlledShutdown, 1, 0) is ErrorCode.STALE_BROKER_EPOCH
    assert ask(world, ControlledShutdown, 9, 0) is ErrorCode.BROKER_NOT_AVAILABLE


def test_brokers_that_all_stop_do_not_wait_for_each_other(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2], [2, 0])
    assert ask(world, ControlledShutdown, 2, world.brokers[2].epoch) == set()
    assert ask(world, ControlledShutdown, 1, world.brokers[1].epoch) == {T0}
    assert ask(world, ControlledShutdown, 0, world.brokers[0].epoch) == set()
    assert ask(world, ControlledShutdown, 1, world.brokers[1].epoch) == set()
    assert (world.state("t", 0).leader, world.state("t", 1).leader) == (1, 0)


def test_a_failed_directory_takes_its_replicas_offline(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2], [1, 2])
    world.brokers[1].fail_dir([T0])
    world.settle()
    assert world.state("t", 0) == LeaderAndIsr(2, 1, (2,), partition_epoch=1)
    assert world.state("t", 1) == LeaderAndIsr(1, 0, (1, 2))
    assert world.admin.children(paths.LOG_DIR_EVENTS) == []
    assert world.brokers[0].cache.snapshot.topics["t"][0].offline_replicas == (1,)


def test_a_late_answer_says_nothing_of_a_topic_that_is_deleted(world: SimulatedCluster) -> None:
    world.create_topic("t", {0: [1, 2]})
    world.settle()
    active = world.active()
    assert active is not None
    assert active.core.active is not None
    context = active.core.active.context
    (request,) = [each for to, each in world.requests if to == 1 and isinstance(each, LeaderAndIsrRequest)]
    late = ResponseReceived(1, request, ControlResponse(partitions={T0: ErrorCode.KAFKA_STORAGE_ERROR}))
    topics.request_deletion(world.admin, "t")
    world.settle()
    active.events.append(late)
    world.settle()
    assert context.offline_dirs == {}
    with_topic(world, [1, 2])
    active.events.append(late)
    world.settle()
    assert context.offline_dirs == {}
    assert world.state("t") == LeaderAndIsr(1, 0, (1, 2))


def test_a_late_answer_says_nothing_of_a_replica_that_has_moved(world: SimulatedCluster) -> None:
    world.create_topic("t", {0: [1, 2]})
    world.settle()
    active = world.active()
    assert active is not None
    assert active.core.active is not None
    (request,) = [each for to, each in world.requests if to == 1 and isinstance(each, LeaderAndIsrRequest)]
    ask(world, AlterReassignments, {T0: [0, 2]})
    world.brokers[2].alter_isr(T0, (2, 0))
    world.settle()
    replicas = world.topic("t").partitions[0].replicas
    active.events.append(
        ResponseReceived(1, request, ControlResponse(partitions={T0: ErrorCode.KAFKA_STORAGE_ERROR}))
    )
    world.settle()
    assert (1 in replicas, active.core.active.context.offline_dirs) == (False, {})


# --- elections and balance ---


def test_preferred_leaders_on_request(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2], [2, 1])
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    assert world.state("t", 0).leader == 2
    preferred = ElectionType.PREFERRED
    answer = ask(world, ElectLeaders, [T0, T1, TopicPartition("no", 0)], preferred)
    assert answer == {
        T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        T1: ErrorCode.ELECTION_NOT_NEEDED,
        TopicPartition("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    world.brokers[2].alter_isr(T0, (2, 1))
    world.settle()
    assert ask(world, ElectLeaders, None, preferred) == {T0: ErrorCode.NONE}
    assert world.state("t", 0).leader == 1


def test_an_election_that_a_client_asks_for_in_vain_is_no_error_of_the_broker(
    world: SimulatedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "klog.controller")
    with_topic(world, [1, 2])
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    caplog.clear()
    answer = ask(world, ElectLeaders, [T0], ElectionType.PREFERRED)
    assert answer == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    said = [record for record in caplog.records if record.getMessage().startswith("no leader for t-0")]
    assert [record.levelname for record in said] == ["INFO"]


def test_unclean_leaders_on_request(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(2)
    world.settle()
    world.kill(1)
    world.start(2)
    world.settle()
    assert ask(world, ElectLeaders, [T0], ElectionType.UNCLEAN) == {T0: ErrorCode.NONE}
    assert world.state("t").leader == 2
    assert ask(world, ElectLeaders, [T0], ElectionType.UNCLEAN) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    assert world.times.unclean_elections == 1


@pytest.mark.parametrize(("percentage", "leader"), [(49, 1), (50, 2)])
def test_preferred_leaders_are_elected_if_the_imbalance_is_too_large(percentage: int, leader: int) -> None:
    world = started(0, 1, 2, leader_imbalance_per_broker_percentage=percentage)
    with_topic(world, [1, 2], [1])
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    world.brokers[2].alter_isr(T0, (2, 1))
    world.settle()
    active = world.active()
    assert active is not None
    active.events.append(RebalanceDue())
    world.settle()
    assert world.state("t", 0).leader == leader


def test_the_legacy_node_for_preferred_leaders(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    world.kill(1)
    world.settle()
    world.start(1)
    world.settle()
    world.brokers[2].alter_isr(T0, (2, 1))
    world.settle()
    for _ in range(2):
        world.admin.create(paths.PREFERRED_REPLICA_ELECTION, encode_partitions([T0]))
        world.settle()
        assert world.admin.exists(paths.PREFERRED_REPLICA_ELECTION) is None
    assert world.state("t").leader == 1


# --- ISR changes ---


def alter(
    world: SimulatedCluster,
    broker_id: int,
    wanted: Mapping[TopicPartition, LeaderAndIsr],
    epoch: int | None = None,
) -> Any:
    own = world.brokers[broker_id].epoch if epoch is None else epoch
    ids = {each.topic: world.topic(each.topic).topic_id or "" for each in wanted}
    by_id = {TopicIdPartition(ids[each.topic], each.partition): state for each, state in wanted.items()}
    answer = ask(world, AlterPartition, broker_id, own, by_id, 3)
    if not isinstance(answer, dict):
        return answer
    names = {topic_id: topic for topic, topic_id in ids.items()}
    return {TopicPartition(names[each.topic_id], each.partition): found for each, found in answer.items()}


def test_a_leader_changes_its_isr_without_a_new_leader_epoch(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    shrunk = alter(world, 1, {T0: LeaderAndIsr(1, 0, (1,))})
    assert shrunk == {T0: LeaderAndIsr(1, 0, (1,), partition_epoch=1)}
    assert world.state("t") == shrunk[T0]
    assert world.brokers[0].cache.snapshot.topics["t"][0].isr == (1,)
    again = alter(world, 1, {T0: LeaderAndIsr(1, 0, (1,))})
    assert again == shrunk
    assert alter(world, 1, {T0: LeaderAndIsr(1, 0, (1, 2))}) == {T0: ErrorCode.INVALID_UPDATE_VERSION}
    assert alter(world, 1, {T1: LeaderAndIsr(1, 0, (1,))}) == {T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert alter(world, 1, {T0: LeaderAndIsr(1, 0, (1,))}, epoch=1) is ErrorCode.STALE_BROKER_EPOCH


def test_only_assigned_replicas_enter_the_isr(world: SimulatedCluster) -> None:
    """A leader that shuts down is not told that a reassignment has removed the other replica."""
    with_topic(world, [1, 2])
    alter(world, 1, {T0: LeaderAndIsr(1, 0, (1,))})
    ask(world, ControlledShutdown, 1, world.brokers[1].epoch)
    assert reassign(world, {T0: [1]}) == {T0: ErrorCode.NONE}
    wider = replace(world.state("t"), isr=(1, 2))
    world.kill(0)
    world.settle()
    assert alter(world, 1, {T0: wider}) == {T0: ErrorCode.INELIGIBLE_REPLICA}
    world.kill(1)
    world.start(1)
    world.settle()
    assert (world.state("t").leader, world.state("t").isr) == (1, (1,))


@pytest.mark.parametrize("victim", [1, 2])
def test_an_isr_that_its_leader_has_changed_meanwhile_is_read_again(
    world: SimulatedCluster, victim: int
) -> None:
    """Leaders before 2.7 write states themselves, and the controller may not have heard of it yet."""
    with_topic(world, [1, 2, 0])
    shrunk = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
    world.admin.set(paths.partition_state(T0), shrunk)
    world.kill(victim)
    world.settle()
    survivor = 3 - victim
    # Broker 0 had left the ISR: it must neither return to it nor lead.
    assert (world.state("t").leader, world.state("t").isr) == (survivor, (survivor,))


def test_a_partition_without_a_candidate_is_read_again(world: SimulatedCluster) -> None:
    """An operator may have put a live replica into the ISR."""
    with_topic(world, [1, 2])
    world.kill(2)
    world.settle()
    world.start(2)
    world.settle()
    known = world.state("t")
    assert (known.leader, known.isr) == (1, (1,))
    edited = LeaderIsrAndControllerEpoch(replace(known, isr=(1, 2)), 1)
    world.admin.set(paths.partition_state(T0), znodes.encode_partition_state(edited))
    world.kill(1)
    world.settle()
    assert (world.state("t").leader, world.state("t").isr) == (2, (2,))


# --- reassignment ---


def reassign(
    world: SimulatedCluster, targets: Mapping[TopicPartition, list[int] | None]
) -> dict[TopicPartition, ErrorCode]:
    return {where: result.error for where, result in ask(world, AlterReassignments, targets).items()}


def test_a_reassignment_writes_what_kafka_writes(world: SimulatedCluster) -> None:
    """Kafka: t1-0 from [0,1,2] to [1,2] went from epoch 0 to 1 (leader 1, isr [0,1,2]) to 2 (isr [1,2])."""
    with_topic(world, [0, 1, 2])
    states: list[LeaderAndIsr] = []
    active = world.active()
    assert active is not None
    original = active.session.multi_many

    def record(multis: Any) -> Any:
        outcomes = original(multis)
        state = world.state("t")
        if not states or states[-1] != state:
            states.append(state)
        return outcomes

    active.session.multi_many = record  # type: ignore[method-assign]
    assert reassign(world, {T0: [1, 2]}) == {T0: ErrorCode.NONE}
    assert [(each.leader, each.leader_epoch, each.isr) for each in states] == [
        (0, 0, (0, 1, 2)),
        (1, 1, (0, 1, 2)),
        (1, 2, (1, 2)),
    ]
    assert world.topic("t").partitions[0] == ReplicaAssignment((1, 2))
    assert T0 not in world.disks[0]


def test_a_leader_that_stays_gets_the_smaller_assignment(world: SimulatedCluster) -> None:
    with_topic(world, [0, 1])
    world.brokers[0].alter_isr(T0, (0,))
    world.settle()
    assert reassign(world, {T0: [0]}) == {T0: ErrorCode.NONE}
    assert world.brokers[0].hosted[T0].replicas == (0,)
    assert (world.state("t").leader, world.state("t").leader_epoch) == (0, 1)
    assert T0 not in world.disks[1]


def test_a_reassignment_waits_until_the_new_replicas_are_in_sync() -> None:
    world = started(0, 1, 2, 3)
    with_topic(world, [0, 1])
    assert reassign(world, {T0: [2, 3]}) == {T0: ErrorCode.NONE}
    moving = ReplicaAssignment((2, 3, 0, 1), adding=(2, 3), removing=(0, 1))
    assert world.topic("t").partitions[0] == moving
    assert ask(world, ListReassignments) == {T0: moving}
    assert world.brokers[2].hosted[T0].is_new
    assert world.brokers[0].hosted[T0].adding_replicas == (2, 3)
    world.brokers[0].alter_isr(T0, (0, 1, 2))
    world.settle()
    assert world.topic("t").partitions[0] == moving
    world.brokers[0].alter_isr(T0, (0, 1, 2, 3))
    world.settle()
    assert world.topic("t").partitions[0] == ReplicaAssignment((2, 3))
    assert (world.state("t").leader, world.state("t").isr) == (2, (2, 3))
    assert [T0 in world.disks[each] for each in range(4)] == [False, False, True, True]
    assert ask(world, ListReassignments) == {}


def test_a_leader_hears_of_its_isr_before_the_reassignment_that_this_finishes(
    world: SimulatedCluster,
) -> None:
    with_topic(world, [0])
    reassign(world, {T0: [1]})
    world.requests.clear()
    order: list[str] = []
    active = world.active()
    assert active is not None
    original = active.send

    def record(broker_id: int, request: Any) -> None:
        order.append(type(request).__name__)
        original(broker_id, request)

    active.send = record  # type: ignore[method-assign]
    where = TopicIdPartition(world.topic("t").topic_id or "", 0)
    wanted = replace(world.state("t"), isr=(0, 1))
    epoch = world.brokers[0].epoch
    event = AlterPartition(0, epoch, {where: wanted}, 3, lambda _answer: order.append("reply"))
    active.events.append(event)
    world.settle()
    assert order.index("reply") < order.index("LeaderAndIsrRequest")
    assert world.topic("t").partitions[0] == ReplicaAssignment((1,))


def test_a_request_that_fails_after_its_answer_is_not_answered_again(
    world: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_topic(world, [0, 1])

    def broken(*_args: object) -> None:
        raise InvalidZnodeError("made up")

    monkeypatch.setattr("klog.controller.reassignments.Reassignments.isr_changed", broken)
    assert alter(world, 0, {T0: LeaderAndIsr(0, 0, (0,))})[T0].isr == (0,)


def test_a_reassignment_keeps_partitions_that_were_added_just_before(world: SimulatedCluster) -> None:
    with_topic(world, [0, 1, 2])
    active = world.active()
    assert active is not None
    answers: list[Any] = []
    # The request is handled before the controller hears of the new partition.
    active.core.enqueue(AlterReassignments({T0: [1, 2]}, answers.append))
    topics.add_partitions(world.admin, "t", {1: [2, 0]})
    world.settle()
    assert [each.error for each in answers[0].values()] == [ErrorCode.NONE]
    assert world.topic("t").partitions == {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 0))}
    assert world.state("t", 1).leader == 2


def test_a_reassignment_is_cancelled(world: SimulatedCluster) -> None:
    with_topic(world, [0, 1])
    reassign(world, {T0: [2]})
    assert reassign(world, {T0: None}) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((0, 1))
    assert T0 not in world.disks[2]
    assert reassign(world, {T0: None}) == {T0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


@pytest.mark.parametrize("target", [[], [1, 1], [-1], [1, 9]])
def test_invalid_reassignments_are_refused(world: SimulatedCluster, target: list[int]) -> None:
    with_topic(world, [0, 1])
    answer = reassign(world, {T0: target, T1: [1]})
    assert answer == {
        T0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_refused_reassignments_say_why_as_kafka_does(world: SimulatedCluster) -> None:
    with_topic(world, [0, 1])
    wrong = {
        "Empty replica list specified in partition reassignment.": [],
        "Duplicate replica ids in partition reassignment replica list: ArrayBuffer(1, 1)": [1, 1],
        "Invalid broker id in replica list: ArrayBuffer(1, -1)": [1, -1],
        "Replica assignment has brokers that are not alive. "
        "Replica list: ArrayBuffer(9), live broker list: Set(0, 1, 2)": [1, 9],
        "No partition reassignment is in progress.": None,
    }
    for message, target in wrong.items():
        answer = ask(world, AlterReassignments, {T0: target})
        assert answer[T0].message == message
        # Kafka checks the replicas before the topic.
        unknown = ask(world, AlterReassignments, {TopicPartition("no", 0): target})
        assert unknown[TopicPartition("no", 0)].error is answer[T0].error
    answer = ask(world, AlterReassignments, {T1: [1], T0: [0, 1]})
    assert answer[T1].message == "The partition does not exist."
    assert answer[T0] == (ErrorCode.NONE, None)


def test_a_broker_that_is_shutting_down_gets_no_new_replica(world: SimulatedCluster) -> None:
    with_topic(world, [0, 1])
    ask(world, ControlledShutdown, 2, world.brokers[2].epoch)
    assert reassign(world, {T0: [0, 2]}) == {T0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def test_only_the_reassignments_that_are_asked_for_are_listed(world: SimulatedCluster) -> None:
    with_topic(world, [1], [1])
    reassign(world, {T0: [2], T1: [0]})
    assert set(ask(world, ListReassignments)) == {T0, T1}
    active = world.active()
    assert active is not None
    answers: list[Any] = []
    active.events.append(ListReassignments(answers.append, [T1, TopicPartition("no", 0)]))
    world.settle()
    assert answers == [{T1: ReplicaAssignment((0, 1), adding=(0,), removing=(1,))}]


def test_a_reassignment_is_replaced_while_it_runs() -> None:
    world = started(0, 1, 2, 3)
    with_topic(world, [0, 1])
    reassign(world, {T0: [2, 1]})
    assert T0 in world.disks[2]
    assert reassign(world, {T0: [3, 1]}) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((3, 1, 0), adding=(3,), removing=(0,))
    assert T0 not in world.disks[2]
    world.brokers[0].alter_isr(T0, (0, 1, 3))
    world.settle()
    assert world.topic("t").partitions[0] == ReplicaAssignment((3, 1))
    assert (world.state("t").leader, world.state("t").isr) == (3, (1, 3))


def led_by_an_added_replica() -> SimulatedCluster:
    """The partition moves from brokers 2 and 1 to 3 and 2. Broker 3 leads, and 2 is in sync, too."""
    world = started(0, 1, 2, 3)
    with_topic(world, [2, 1])
    world.kill(1)
    world.settle()
    reassign(world, {T0: [3, 1]})
    world.brokers[2].alter_isr(T0, (2, 3))
    world.settle()
    assert ask(world, ElectLeaders, [T0], ElectionType.PREFERRED) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,))
    assert (world.state("t").leader, world.state("t").isr) == (3, (2, 3))
    return world


def test_another_replica_in_sync_leads_if_a_second_reassignment_removes_the_leader() -> None:
    world = led_by_an_added_replica()
    assert reassign(world, {T0: [1]}) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((1, 2), removing=(2,))
    assert (world.state("t").leader, world.state("t").isr) == (2, (2,))
    assert world.brokers[2].hosted[T0].leader == 2
    assert T0 not in world.disks[3]
    world.start(1)
    world.settle()
    world.brokers[2].alter_isr(T0, (2, 1))
    world.settle()
    assert world.topic("t").partitions[0] == ReplicaAssignment((1,))
    assert (world.state("t").leader, world.state("t").isr) == (1, (1,))


def test_a_replica_that_stays_leads_if_the_reassignment_that_added_the_leader_is_cancelled() -> None:
    world = led_by_an_added_replica()
    assert reassign(world, {T0: None}) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((1, 2))
    assert (world.state("t").leader, world.state("t").isr) == (2, (2,))
    assert T0 not in world.disks[3]


@pytest.mark.parametrize("target", [None, [1], [1, 0]])
def test_the_only_replica_in_sync_is_not_given_up(target: list[int] | None) -> None:
    world = led_by_an_added_replica()
    world.brokers[3].alter_isr(T0, (3,))
    world.settle()
    before = world.topic("t"), world.states("t")
    answer = ask(world, AlterReassignments, {T0: target})[T0]
    assert answer.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert answer.message == (
        "Only replicas that this would remove are in sync, so that records would be lost."
    )
    assert (world.topic("t"), world.states("t")) == before
    assert T0 in world.disks[3]
    # One that keeps it is allowed.
    assert reassign(world, {T0: [3]}) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((3,))
    assert (world.state("t").leader, world.state("t").isr) == (3, (3,))


@pytest.mark.parametrize("assignment", [ReplicaAssignment((1, 2), removing=(2,)), ReplicaAssignment((2, 1))])
def test_the_next_controller_gives_up_a_leader_that_is_not_assigned(assignment: ReplicaAssignment) -> None:
    """The controller ended after it had written the assignment of a second reassignment."""
    world = led_by_an_added_replica()
    written = replace(world.topic("t"), partitions={0: assignment})
    world.admin.set(paths.topic("t"), znodes.encode_topic(written))
    world.kill(0)
    world.settle()
    assert world.topic("t").partitions[0] == assignment
    assert (world.state("t").leader, world.state("t").isr) == (2, (2,))
    assert world.brokers[2].hosted[T0].leader == 2
    assert T0 not in world.disks[3]


def test_the_next_controller_keeps_a_leader_that_is_not_assigned_if_no_other_is_in_sync() -> None:
    world = led_by_an_added_replica()
    world.brokers[3].alter_isr(T0, (3,))
    world.settle()
    written = replace(world.topic("t"), partitions={0: ReplicaAssignment((2, 1))})
    world.admin.set(paths.topic("t"), znodes.encode_topic(written))
    world.kill(0)
    world.settle()
    assert (world.state("t").leader, world.state("t").isr) == (3, (3,))
    assert T0 in world.disks[3]


def test_the_replication_factor_is_raised_and_lowered(world: SimulatedCluster) -> None:
    with_topic(world, [0])
    reassign(world, {T0: [0, 1, 2]})
    assert world.topic("t").partitions[0] == ReplicaAssignment((0, 1, 2), adding=(1, 2))
    world.brokers[0].alter_isr(T0, (0, 1, 2))
    world.settle()
    assert world.topic("t").partitions[0] == ReplicaAssignment((0, 1, 2))
    # All of the target are in sync, so that this is done at once.
    assert reassign(world, {T0: [2]}) == {T0: ErrorCode.NONE}
    assert world.topic("t").partitions[0] == ReplicaAssignment((2,))
    assert (world.state("t").leader, world.state("t").isr) == (2, (2,))
    assert [T0 in world.disks[each] for each in range(3)] == [False, False, True]


def test_a_request_takes_a_partition_out_of_the_legacy_node() -> None:
    """Otherwise the next controller would start again what the request has replaced."""
    world = started(0, 1, 2, 3)
    with_topic(world, [1], [1])
    world.admin.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignments({T0: (2,), T1: (2,)}))
    world.settle()
    reassign(world, {T0: [3]})
    left = znodes.decode_reassignments(world.admin.get(paths.REASSIGN_PARTITIONS).data)
    assert left == {T1: (2,)}
    reassign(world, {T1: None})
    assert world.admin.exists(paths.REASSIGN_PARTITIONS) is None
    world.kill(0)
    world.settle()
    assert world.topic("t").partitions[0].target == (3,)
    assert world.topic("t").partitions[1] == ReplicaAssignment((1,))


def test_the_next_controller_continues_a_reassignment(world: SimulatedCluster) -> None:
    with_topic(world, [1])
    reassign(world, {T0: [2]})
    world.kill(0)
    world.settle()
    world.brokers[1].alter_isr(T0, (1, 2))
    world.settle()
    assert world.topic("t").partitions[0] == ReplicaAssignment((2,))
    assert world.state("t").leader == 2


def test_the_legacy_node_for_reassignments(world: SimulatedCluster) -> None:
    with_topic(world, [1])
    for target in (2, 1):
        orders = {T0: (target,), TopicPartition("no", 0): (1,)}
        world.admin.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignments(orders))
        world.settle()
        left = znodes.decode_reassignments(world.admin.get(paths.REASSIGN_PARTITIONS).data)
        assert left == {T0: (target,)}
        leader = world.state("t").leader
        world.brokers[leader].alter_isr(T0, (1, 2))
        world.settle()
        assert world.topic("t").partitions[0] == ReplicaAssignment((target,))
        assert world.admin.exists(paths.REASSIGN_PARTITIONS) is None


def test_a_deletion_does_not_wait_for_a_reassignment(world: SimulatedCluster) -> None:
    with_topic(world, [1])
    reassign(world, {T0: [2]})
    topics.request_deletion(world.admin, "t")
    world.settle()
    assert topics.topic_names(world.admin) == []
    assert all(not disk for disk in world.disks.values())


# --- the rest ---


def test_isr_change_notifications_of_old_leaders_are_handled(world: SimulatedCluster) -> None:
    with_topic(world, [1, 2])
    shrunk = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    world.admin.set(paths.partition_state(T0), shrunk)
    note = encode_partitions([T0])
    world.admin.create(f"{paths.ISR_CHANGES}/isr_change_", note, sequential=True)
    world.settle()
    assert world.brokers[0].cache.snapshot.topics["t"][0].isr == (1,)
    assert world.admin.children(paths.ISR_CHANGES) == []


def test_producer_ids_for_a_broker_of_this_epoch(world: SimulatedCluster) -> None:
    epoch = world.brokers[1].epoch
    assert ask(world, AllocateProducerIds, 1, epoch) == ProducerIdBlock(1, 0, 999)
    assert ask(world, AllocateProducerIds, 1, epoch - 1) is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    "data", [b"garbled", znodes.encode_producer_id_block(ProducerIdBlock(1, 0, 2**63 - 2))]
)
def test_a_controller_without_producer_ids_goes_on_with_its_other_work(
    world: SimulatedCluster, data: bytes
) -> None:
    world.admin.set(paths.PRODUCER_ID_BLOCK, data)
    before = world.active()
    answer = ask(world, AllocateProducerIds, 1, world.brokers[1].epoch)
    assert answer is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.active() is before


def test_leader_and_isr_names_the_live_leaders(world: SimulatedCluster) -> None:
    world.create_topic("t", {0: [1, 2]})
    world.settle()
    requests = [each for to, each in world.requests if to == 2 and isinstance(each, LeaderAndIsrRequest)]
    assert [each.broker_id for each in requests[-1].live_leaders] == [1]
    assert requests[-1].broker_epoch == world.brokers[2].epoch
