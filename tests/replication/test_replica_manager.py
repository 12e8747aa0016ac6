"""Every change of a partition's role reaches the listeners, whatever its cause."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import ControlResponse
from klog.metadata.errors import SessionExpiredError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, StopReplicaPartitionState
from klog.replication.partition import PartitionError
from klog.replication.purgatory import DelayedOperation
from klog.replication.roles import Role, RoleChange
from klog.storage.log.partition_log import PartitionLog
from tests.control_requests import leader_and_isr, leader_and_isr_state, stop_replica
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, TOPIC_ID, TOPIC_UUID, Broker

PARTITION = TopicPartition(TOPIC, 0)
BOTH = (BROKER, OTHER_BROKER)


class Listener:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.changes: list[RoleChange] = []

    def __call__(self, changes: Sequence[RoleChange]) -> None:
        self.changes += changes

    def take(self) -> list[tuple[Role, Role, int]]:
        """The changes of the one partition since the last call."""
        taken, self.changes = self.changes, []
        assert {change.partition for change in taken} <= {PARTITION}
        return [(change.old, change.new, change.leader_epoch) for change in taken]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def listener(broker: Broker) -> Listener:
    listener = Listener()
    broker.replicas.add_listener(listener)
    return listener


def stop(broker: Broker, *, delete: bool, leader_epoch: int = EPOCH_DURING_DELETE) -> ErrorCode:
    state = StopReplicaPartitionState(
        partition_index=PARTITION.partition, leader_epoch=leader_epoch, delete_partition=delete
    )
    return broker.replicas.stop_replicas(stop_replica({PARTITION: state})).partitions[PARTITION]


def lead(broker: Broker, epoch: int = 0, *, controller_epoch: int = 1) -> ErrorCode:
    """LeaderAndIsr for this broker; its answer."""
    state = leader_and_isr_state(0, BROKER, (BROKER,), leader_epoch=epoch, is_new=True)
    request = leader_and_isr({PARTITION: state}, {TOPIC: TOPIC_ID}, controller_epoch=controller_epoch)
    answer = broker.replicas.leader_and_isr(request)
    return answer.error or answer.partitions[PARTITION]


def test_a_leader_is_made_once_and_again_in_each_new_epoch(broker: Broker, listener: Listener) -> None:
    lead(broker, 0)
    assert listener.take() == [(Role.ABSENT, Role.LEADER, 0)]
    lead(broker, 0)
    assert listener.take() == [], "a repeated request changes nothing"
    lead(broker, 3)
    assert listener.take() == [(Role.LEADER, Role.LEADER, 3)]
    assert lead(broker, 2) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert listener.take() == []


def test_a_follower_becomes_leader_and_follower_again(broker: Broker, listener: Listener) -> None:
    broker.lead(leader=OTHER_BROKER, replicas=BOTH)
    broker.lead(epoch=1, replicas=BOTH)
    broker.lead(leader=OTHER_BROKER, epoch=2, replicas=BOTH)
    broker.lead(leader=OTHER_BROKER, epoch=3, replicas=BOTH)
    assert listener.take() == [
        (Role.ABSENT, Role.FOLLOWER, 0),
        (Role.FOLLOWER, Role.LEADER, 1),
        (Role.LEADER, Role.FOLLOWER, 2),
        (Role.FOLLOWER, Role.FOLLOWER, 3),
    ]


def test_a_replica_is_deleted_and_comes_back(broker: Broker, listener: Listener) -> None:
    lead(broker, 4)
    assert stop(broker, delete=True, leader_epoch=4) is ErrorCode.NONE
    assert lead(broker, 0) is ErrorCode.NONE, "nothing is known of it any more"
    assert listener.take() == [
        (Role.ABSENT, Role.LEADER, 4),
        (Role.LEADER, Role.DELETED, 4),
        (Role.ABSENT, Role.LEADER, 0),
    ]


def test_a_replica_that_is_only_stopped_keeps_its_leader_epoch(broker: Broker, listener: Listener) -> None:
    partition = broker.lead(leader=OTHER_BROKER, epoch=4, replicas=BOTH)
    assert stop(broker, delete=False, leader_epoch=4) is ErrorCode.NONE
    assert broker.replicas.partitions[PARTITION] is partition
    assert stop(broker, delete=False, leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert lead(broker, 3) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert lead(broker, 4) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert (partition.state.leader, partition.state.leader_epoch) == (OTHER_BROKER, 4)
    broker.lead(leader=OTHER_BROKER, epoch=5, replicas=BOTH)
    assert listener.take() == [
        (Role.ABSENT, Role.FOLLOWER, 4),
        (Role.FOLLOWER, Role.STOPPED, 4),
        (Role.STOPPED, Role.FOLLOWER, 5),
    ]


def test_a_replica_that_is_stopped_answers_as_before(broker: Broker) -> None:
    led = broker.lead(epoch=4)
    followed = broker.lead(partition=1, leader=OTHER_BROKER, epoch=4, replicas=BOTH)
    for partition in (PARTITION, TopicPartition(TOPIC, 1)):
        state = StopReplicaPartitionState(
            partition_index=partition.partition, leader_epoch=4, delete_partition=False
        )
        broker.replicas.stop_replicas(stop_replica({partition: state}))
    assert led.require_leader(4) is led.log
    for epoch, error in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(PartitionError) as refused:
            broker.lookup.partition(PARTITION).require_leader(epoch)
        assert refused.value.error is error
    with pytest.raises(PartitionError) as refused:
        broker.lookup.partition((TOPIC, 1)).require_leader(4)
    assert refused.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert followed.state.leader_epoch == 4


def test_a_replica_that_was_stopped_is_deleted(broker: Broker, listener: Listener) -> None:
    lead(broker, 4)
    stop(broker, delete=False)
    stop(broker, delete=False)
    stop(broker, delete=True)
    assert broker.replicas.partitions == {}
    assert listener.take()[1:] == [
        (Role.LEADER, Role.STOPPED, 4),
        (Role.STOPPED, Role.STOPPED, 4),
        (Role.STOPPED, Role.DELETED, 4),
    ]


def test_a_stop_of_what_is_not_here_changes_nothing(broker: Broker, listener: Listener) -> None:
    assert stop(broker, delete=False, leader_epoch=0) is ErrorCode.NONE
    assert (listener.take(), broker.replicas.partitions) == ([], {})


@pytest.mark.parametrize("topic", ["..", "a/b", "", "t" * 250])
def test_a_partition_that_cannot_exist_gets_no_log(broker: Broker, listener: Listener, topic: str) -> None:
    named = TopicPartition(topic, 0)
    state = leader_and_isr_state(0, BROKER, (BROKER,), is_new=True)
    answer = broker.replicas.leader_and_isr(leader_and_isr({named: state}, {topic: TOPIC_ID}))
    assert answer.partitions == {named: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert (broker.replicas.partitions, broker.logs.logs, listener.changes) == ({}, {}, [])


def test_a_replica_of_other_brokers_only_gets_no_log(broker: Broker, listener: Listener) -> None:
    state = leader_and_isr_state(0, OTHER_BROKER, (OTHER_BROKER,), is_new=True)
    answer = broker.replicas.leader_and_isr(leader_and_isr({PARTITION: state}, {TOPIC: TOPIC_ID}))
    assert answer.partitions == {PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (broker.replicas.partitions, broker.logs.logs, listener.changes) == ({}, {}, [])


def test_a_repeated_request_is_answered_as_by_kafka(broker: Broker, listener: Listener) -> None:
    partition = broker.lead(topic_id=None)
    listener.take()
    assert lead(broker) is ErrorCode.NONE, "it gives the topic's id to a replica that had none"
    assert partition.topic_id == TOPIC_UUID
    assert lead(broker) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert listener.take() == []


def test_a_log_that_cannot_be_deleted_has_no_replica(broker: Broker, listener: Listener, monkeypatch) -> None:
    lead(broker)
    monkeypatch.setattr(broker.logs, "delete", lambda replicas: dict.fromkeys(replicas, StorageError("no")))
    assert stop(broker, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert listener.take()[-1] == (Role.LEADER, Role.DELETED, 0)
    assert broker.replicas.partitions == {}


def test_a_stop_from_an_older_epoch_changes_nothing(broker: Broker, listener: Listener) -> None:
    lead(broker, 4)
    listener.take()
    assert stop(broker, delete=True, leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert (listener.take(), list(broker.replicas.partitions)) == ([], [PARTITION])


def test_a_directory_fails_once(broker: Broker, listener: Listener) -> None:
    lead(broker, 2)
    broker.replicas.directory_failed([PARTITION])
    broker.replicas.directory_failed([PARTITION])
    assert lead(broker, 3) is ErrorCode.KAFKA_STORAGE_ERROR
    assert stop(broker, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert listener.take() == [(Role.ABSENT, Role.LEADER, 2), (Role.LEADER, Role.FAILED, 2)]


def test_a_directory_fails_with_a_replica_that_had_no_role(broker: Broker, listener: Listener) -> None:
    broker.replicas.directory_failed([PARTITION])
    assert listener.take() == [(Role.ABSENT, Role.FAILED, -1)]


def fail_with(error: Exception):
    def fail(*_arguments: object, **_named: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [StorageError("no"), OSError("no")])
@pytest.mark.parametrize("first_epoch", [None, 0])
def test_a_replica_whose_log_cannot_be_had_has_failed(
    broker: Broker, listener: Listener, monkeypatch, error: Exception, first_epoch: int | None
) -> None:
    old = (Role.ABSENT, -1)
    if first_epoch is not None:
        lead(broker, first_epoch)
        old = (Role.LEADER, first_epoch)
        listener.take()
    monkeypatch.setattr(broker.logs, "get_or_create", fail_with(error))
    assert lead(broker, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert listener.take() == [(old[0], Role.FAILED, old[1])]
    assert (broker.replicas.offline, broker.replicas.partitions) == ({PARTITION}, {})


@pytest.mark.parametrize("first_epoch", [None, 0])
def test_a_replica_that_cannot_take_its_role_has_failed(
    broker: Broker, listener: Listener, monkeypatch, first_epoch: int | None
) -> None:
    if first_epoch is not None:
        lead(broker, first_epoch)
        listener.take()
    log = broker.logs.get_or_create(PARTITION, TOPIC_ID, is_new=True)
    monkeypatch.setattr(log, "assign_epoch", fail_with(OSError("no")))
    assert lead(broker, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    old = (Role.ABSENT, -1) if first_epoch is None else (Role.LEADER, first_epoch)
    assert listener.take() == [(old[0], Role.FAILED, old[1])]
    assert (broker.replicas.offline, broker.replicas.partitions) == ({PARTITION}, {})


def test_a_log_that_cannot_be_had_for_now_has_not_failed(
    broker: Broker, listener: Listener, monkeypatch
) -> None:
    lead(broker, 0)
    listener.take()
    monkeypatch.setattr(broker.logs, "get_or_create", fail_with(KlogError("not this time")))
    assert lead(broker, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (listener.take(), broker.replicas.offline) == ([], frozenset())


def test_a_directory_that_fails_within_a_request_takes_its_replicas_with_it(
    broker: Broker, monkeypatch
) -> None:
    """The log manager writes the checkpoints of a directory when a log has left it."""
    seen: list[tuple[int, Role, Role]] = []
    broker.replicas.add_listener(
        lambda changes: seen.extend((each.partition.partition, each.old, each.new) for each in changes)
    )
    keys = [TopicPartition(TOPIC, number) for number in range(4)]
    broker.lead(partition=0)
    broker.lead(partition=2, topic_id=OTHER_ID)
    broker.logs.get(keys[2]).topic_id = OTHER_ID
    seen.clear()
    set_aside = broker.logs.set_aside_strays

    def set_aside_and_fail(replicas) -> dict:
        set_aside(replicas)
        broker.replicas.directory_failed(keys[:2])
        return {}

    monkeypatch.setattr(broker.logs, "set_aside_strays", set_aside_and_fail)
    states = {
        key: leader_and_isr_state(key.partition, BROKER, (BROKER,), leader_epoch=1, is_new=True)
        for key in keys
    }
    answer = broker.replicas.leader_and_isr(leader_and_isr(states, {TOPIC: TOPIC_ID}))
    assert answer.partitions == {
        keys[0]: ErrorCode.KAFKA_STORAGE_ERROR,
        keys[1]: ErrorCode.KAFKA_STORAGE_ERROR,
        keys[2]: ErrorCode.NONE,
        keys[3]: ErrorCode.NONE,
    }
    assert set(broker.replicas.partitions) == set(keys[2:])
    assert broker.replicas.offline == set(keys[:2])
    assert seen == [
        (0, Role.LEADER, Role.LEADER),
        (1, Role.ABSENT, Role.LEADER),
        (2, Role.LEADER, Role.DELETED),
        (0, Role.LEADER, Role.FAILED),
        (1, Role.LEADER, Role.FAILED),
        (2, Role.ABSENT, Role.LEADER),
        (3, Role.ABSENT, Role.LEADER),
    ]


def test_a_directory_that_fails_within_a_stop_takes_its_replicas_with_it(
    broker: Broker, listener: Listener, monkeypatch
) -> None:
    lead(broker, 4)
    listener.take()
    states = {
        TopicPartition(TOPIC, number): StopReplicaPartitionState(
            partition_index=number, leader_epoch=EPOCH_DURING_DELETE, delete_partition=number == 1
        )
        for number in range(2)
    }

    def delete_and_fail(replicas) -> dict:
        broker.replicas.directory_failed([PARTITION])
        return {}

    monkeypatch.setattr(broker.logs, "delete", delete_and_fail)
    answer = broker.replicas.stop_replicas(stop_replica(states))
    assert answer.partitions == {
        PARTITION: ErrorCode.KAFKA_STORAGE_ERROR,
        TopicPartition(TOPIC, 1): ErrorCode.NONE,
    }
    changes = [(each.old, each.new) for each in listener.changes if each.partition == PARTITION]
    assert changes == [(Role.LEADER, Role.STOPPED), (Role.STOPPED, Role.FAILED)]


def test_a_log_is_not_created_again_for_a_replica_that_has_one(broker: Broker, monkeypatch) -> None:
    """Its log may be gone already because its directory is going offline."""
    lead(broker, 0)
    seen: list[bool] = []
    get_or_create = broker.logs.get_or_create

    def note(key, topic_id, *, is_new: bool):
        seen.append(is_new)
        return get_or_create(key, topic_id, is_new=is_new)

    monkeypatch.setattr(broker.logs, "get_or_create", note)
    lead(broker, 1)
    assert seen == [False]


def test_an_older_controller_changes_nothing(broker: Broker, listener: Listener) -> None:
    lead(broker, controller_epoch=3)
    listener.take()
    assert lead(broker, 1, controller_epoch=2) is ErrorCode.STALE_CONTROLLER_EPOCH
    stale = ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
    assert broker.replicas.stop_replicas(stop_replica({}, controller_epoch=2)) == stale
    assert listener.take() == []


def test_one_request_s_changes_come_together_and_in_order(broker: Broker) -> None:
    batches: list[list[int]] = []
    broker.replicas.add_listener(
        lambda changes: batches.append([each.partition.partition for each in changes])
    )
    states = {
        TopicPartition(TOPIC, number): leader_and_isr_state(number, BROKER, (BROKER,), is_new=True)
        for number in (2, 0, 1)
    }
    broker.replicas.leader_and_isr(leader_and_isr(states, {}))
    broker.replicas.directory_failed([TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 0)])
    assert batches == [[2, 0, 1], [1, 0]]


def test_listeners_find_the_partitions_as_they_are_from_then_on(broker: Broker) -> None:
    seen: list[bool] = []
    broker.replicas.add_listener(lambda changes: seen.append(PARTITION in broker.replicas.partitions))
    lead(broker)
    stop(broker, delete=False)
    lead(broker, 1)
    broker.replicas.directory_failed([PARTITION])
    assert seen == [True, True, True, False]


class Waiting(DelayedOperation):
    """Complete at the first event."""

    def try_complete(self, key) -> bool:
        return key is not None and self.force_complete()

    def on_complete(self) -> None:
        pass


@pytest.mark.parametrize(
    "cause",
    [
        lambda broker: lead(broker, 1),
        lambda broker: broker.lead(epoch=1, leader=OTHER_BROKER, replicas=BOTH),
        lambda broker: stop(broker, delete=False),
        lambda broker: stop(broker, delete=True),
        lambda broker: broker.replicas.directory_failed([PARTITION]),
    ],
    ids=["new epoch", "follow", "stop", "delete", "directory failed"],
)
def test_every_change_tries_what_waits_on_the_partition(broker: Broker, cause) -> None:
    lead(broker)
    operations = []
    for purgatory in (broker.produce_purgatory, broker.fetch_purgatory, broker.delete_purgatory):
        operations.append(Waiting(broker.clock() + 1000))
        purgatory.try_complete_else_watch(operations[-1], [PARTITION])
    cause(broker)
    assert all(operation.completed for operation in operations)


OTHER_ID = "0therTAAAAAAAAAAAAAAAA"


def strays(broker: Broker) -> list[Path]:
    return sorted(Path(str(broker.root)).glob(f"{PARTITION}.*-stray"))


def log_of_an_earlier_topic(broker: Broker, topic_id: str | None) -> PartitionLog:
    """A log with a record that no controller has named since the start."""
    broker.lead(topic_id=None, tell=False)
    broker.append(1)
    log = broker.replicas.partitions[PARTITION].log
    broker.replicas.partitions = {}
    log.topic_id, log.is_confirmed = topic_id, False
    return log


@pytest.mark.parametrize("topic_id", [OTHER_ID, None])
def test_a_log_of_another_topic_becomes_a_stray_and_the_name_is_free(
    broker: Broker, listener: Listener, topic_id: str | None
) -> None:
    log_of_an_earlier_topic(broker, topic_id)
    listener.take()
    assert lead(broker) is ErrorCode.NONE
    assert listener.take() == [(Role.ABSENT, Role.LEADER, 0)]
    (stray,) = strays(broker)
    assert (stray / f"{0:020d}.log").stat().st_size > 0
    assert broker.replicas.partitions[PARTITION].log.log_end_offset == 0


def test_a_log_without_an_id_stays_with_a_topic_that_is_not_new(broker: Broker) -> None:
    log_of_an_earlier_topic(broker, None)
    state = leader_and_isr_state(0, BROKER, (BROKER,))
    broker.replicas.leader_and_isr(leader_and_isr({PARTITION: state}, {TOPIC: TOPIC_ID}))
    assert strays(broker) == []
    assert broker.replicas.partitions[PARTITION].log.log_end_offset == 1


def test_a_replica_in_use_is_kept_as_a_stray_when_its_topic_is_another(
    broker: Broker, listener: Listener
) -> None:
    lead(broker, 5)
    partition = broker.replicas.partitions[PARTITION]
    partition.log.topic_id = OTHER_ID
    broker.append(1)
    listener.take()
    assert lead(broker, 0) is ErrorCode.NONE
    assert listener.take() == [(Role.LEADER, Role.DELETED, 5), (Role.ABSENT, Role.LEADER, 0)]
    assert len(strays(broker)) == 1
    assert broker.replicas.partitions[PARTITION] is not partition


def test_a_stray_that_cannot_be_renamed_is_not_replaced(broker: Broker, monkeypatch) -> None:
    log = log_of_an_earlier_topic(broker, OTHER_ID)
    monkeypatch.setattr(log, "rename_directory", fail_with(OSError("no")))
    assert lead(broker) is ErrorCode.KAFKA_STORAGE_ERROR
    assert Path(log.directory, f"{0:020d}.log").stat().st_size > 0


@pytest.mark.parametrize(
    ("log_id", "tree", "is_deleted"),
    [
        (TOPIC_ID, {TOPIC: TOPIC_ID}, True),
        (OTHER_ID, {TOPIC: TOPIC_ID}, False),
        (OTHER_ID, {}, False),
        (None, {}, False),
        (None, {TOPIC: TOPIC_ID}, False),
        (None, {TOPIC: None}, True),
    ],
)
def test_a_deletion_removes_only_logs_with_the_topic_s_id(
    broker: Broker,
    listener: Listener,
    monkeypatch,
    log_id: str | None,
    tree: dict[str, str | None],
    is_deleted: bool,
) -> None:
    log_of_an_earlier_topic(broker, log_id)
    listener.take()
    monkeypatch.setattr(broker.replicas, "_read_topic_ids", lambda _: tree)
    assert stop(broker, delete=True) is ErrorCode.NONE
    assert len(strays(broker)) == (not is_deleted)
    assert listener.take() == [(Role.ABSENT, Role.DELETED, -1)]
    assert broker.logs.get(PARTITION) is None


def test_nothing_is_deleted_while_the_tree_cannot_be_read(broker: Broker, monkeypatch) -> None:
    log = log_of_an_earlier_topic(broker, TOPIC_ID)
    monkeypatch.setattr(broker.replicas, "_read_topic_ids", fail_with(SessionExpiredError("gone")))
    assert stop(broker, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.logs.get(PARTITION) is log


def test_a_confirmed_log_is_deleted_without_a_look_at_the_tree(broker: Broker, monkeypatch) -> None:
    monkeypatch.setattr(broker.replicas, "_read_topic_ids", fail_with(AssertionError("asked")))
    lead(broker)
    stop(broker, delete=False)
    assert stop(broker, delete=True) is ErrorCode.NONE
    assert broker.logs.get(PARTITION) is None


def test_a_leader_that_is_not_known_as_alive_is_not_followed_until_it_is(
    broker: Broker, listener: Listener
) -> None:
    partition = broker.lead(replicas=BOTH)
    listener.take()
    broker.tell(replicas=BOTH, brokers=(BROKER,))
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH, tell=False)
    assert (partition.state.is_leader, partition.state.leader_epoch) == (True, 0)
    assert listener.take() == []
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH)
    assert listener.take() == [(Role.LEADER, Role.FOLLOWER, 1)]


def test_a_replica_whose_leader_is_not_known_as_alive_has_its_log(broker: Broker) -> None:
    broker.tell(replicas=BOTH, brokers=(BROKER,))
    partition = broker.lead(leader=OTHER_BROKER, replicas=BOTH, tell=False)
    assert partition.state.leader_epoch == -1
    assert broker.replicas.has(PARTITION)


def test_a_partition_without_a_leader_is_not_led_any_more(broker: Broker, listener: Listener) -> None:
    broker.lead(replicas=BOTH)
    broker.lead(leader=-1, epoch=1, replicas=BOTH)
    assert listener.take()[-1] == (Role.LEADER, Role.FOLLOWER, 1)
