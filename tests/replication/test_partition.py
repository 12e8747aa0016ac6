"""A partition's role, state and log change together, whatever is appended and fetched meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from klog.config.topic import default_topic_config
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState
from klog.replication.follower import FollowerFetch, FollowerState
from klog.replication.isr import IsrState
from klog.replication.partition import Partition, PartitionError
from klog.replication.partition_state import Assignment, PartitionState
from klog.storage.log.loading import LoadSettings, create_log
from klog.storage.log.partition_log import PartitionLog
from tests.control_requests import leader_and_isr_state
from tests.server.handlers.parts import BROKER, OTHER_BROKER, Broker, NoBackground, batch
from tests.threads import join, started

BOTH = (BROKER, OTHER_BROKER)
THIRD_BROKER = 9


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def future_log(broker: Broker, partition: Partition, path: Path) -> PartitionLog:
    path.mkdir(parents=True)
    config = default_topic_config({})
    state = create_log(str(path), config, LoadSettings(broker.clock(), str(path)))
    return PartitionLog(
        partition.topic_partition,
        str(path),
        config,
        state,
        clock_ms=broker.clock,
        background=NoBackground(),
    )


def fetch(broker: Broker, replica_id: int = OTHER_BROKER) -> FollowerFetch:
    return FollowerFetch(replica_id, 3, broker.clock())


def test_a_leader_s_state_is_what_the_controller_said(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    broker.append(2)
    request = LeaderAndIsrPartitionState(
        partition_index=partition.topic_partition.partition,
        controller_epoch=5,
        leader=BROKER,
        leader_epoch=4,
        isr=(BROKER,),
        partition_epoch=9,
        replicas=(*BOTH, 3),
        adding_replicas=(3,),
        removing_replicas=(2,),
    )
    partition.apply(request)
    assert partition.state == PartitionState(
        BROKER, 4, 9, 5, Assignment((*BOTH, 3), (3,), (2,)), IsrState((BROKER,)), True, 2
    )
    assert partition.log.epochs.latest == 4
    assert partition.followers.keys() == {2, 3}


def test_a_follower_knows_no_isr_and_no_followers(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH)
    assert partition.state == PartitionState(OTHER_BROKER, 1, 0, 1, Assignment(BOTH))
    assert partition.followers == {}
    assert not partition.record_fetch(fetch(broker), 1, 0, 1)
    assert partition.followers == {}


def test_a_role_that_cannot_be_written_down_is_not_taken(broker: Broker, monkeypatch) -> None:
    partition = broker.lead(replicas=BOTH)
    before = partition.state

    def fails(epoch: int, start_offset: int) -> None:
        raise OSError("no")

    monkeypatch.setattr(partition.log, "assign_epoch", fails)
    with pytest.raises(OSError, match="no"):
        partition.apply(leader_and_isr_state(0, BROKER, BOTH, leader_epoch=1))
    assert partition.state == before


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (1, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_are_fenced_by_the_leader_epoch(epoch: int, error: ErrorCode) -> None:
    assert PartitionState(leader_epoch=2).epoch_error(epoch) is error


def test_the_high_watermark_follows_the_fetches_of_the_isr(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    broker.append(5)
    assert not partition.record_fetch(fetch(broker), 0, 0, 5)
    assert partition.record_fetch(fetch(broker), 3, 0, 5)
    assert partition.log.high_watermark == 3
    assert not partition.record_fetch(fetch(broker), 2, 0, 5), "a leader's never goes back"
    assert partition.log.high_watermark == 3
    assert partition.followers[OTHER_BROKER].end_offset == 2


def test_a_broker_without_a_replica_is_not_recorded(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    broker.append()
    assert not partition.record_fetch(fetch(broker, 9), 1, 0, 1)
    assert partition.followers.keys() == {OTHER_BROKER}


def test_a_fetch_that_was_read_in_another_epoch_is_not_recorded(broker: Broker) -> None:
    partition = broker.lead(epoch=4, replicas=BOTH)
    broker.append()
    before = dict(partition.followers)
    for epoch in (3, 5):
        assert not partition.record_fetch(fetch(broker), 1, 0, 1, epoch)
    assert (partition.followers, partition.log.high_watermark) == (before, 0)
    assert partition.record_fetch(fetch(broker), 1, 0, 1, 4)


def test_a_leader_elected_again_keeps_what_it_knows_of_its_followers(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    broker.append(5)
    broker.follow(4, start_offset=1)
    broker.clock.now_ms += 10
    broker.lead(epoch=1, replicas=BOTH)
    now_ms = broker.clock()
    assert partition.followers[OTHER_BROKER] == FollowerState(4, 1, now_ms, 5, now_ms, -1)


def test_a_leader_after_another_one_knows_nothing_of_its_followers(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    broker.append(5)
    broker.follow(4)
    broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH)
    broker.lead(epoch=2, replicas=BOTH)
    assert partition.followers[OTHER_BROKER] == FollowerState(last_caught_up_ms=broker.clock())


def test_a_leader_that_missed_an_epoch_waits_for_its_followers_fetches(broker: Broker) -> None:
    """Another broker may have led in that epoch, and the follower's log may have been cut for it."""
    partition = broker.lead(replicas=(BROKER, OTHER_BROKER, THIRD_BROKER))
    broker.append(5)
    broker.follow(4)
    broker.lead(epoch=2, replicas=BOTH)
    assert partition.followers[OTHER_BROKER] == FollowerState(last_caught_up_ms=broker.clock())
    assert partition.log.high_watermark == 0
    broker.follow(3)
    assert partition.log.high_watermark == 3


def test_a_future_log_takes_the_log_s_place_when_it_ends_where_the_log_ends(
    broker: Broker, tmp_path: Path
) -> None:
    partition = broker.lead()
    broker.append(3)
    log, future = partition.log, future_log(broker, partition, tmp_path / "future")
    assert not partition.replace_log(future)
    assert partition.log is log
    future.restart_at(3, 0)
    assert partition.replace_log(future)
    assert (partition.log, future.high_watermark) == (future, 3)
    broker.append()
    assert (log.log_end_offset, future.log_end_offset, future.high_watermark) == (3, 4, 4)


def test_an_append_that_waited_for_the_old_log_goes_to_the_new_one(broker: Broker, tmp_path: Path) -> None:
    partition = broker.lead()
    old, future = partition.log, future_log(broker, partition, tmp_path / "future")
    with old.lock:
        appending = started(broker.append)
        assert partition.replace_log(future)
    join([appending])
    assert (old.log_end_offset, future.log_end_offset) == (0, 1)


def test_appends_that_race_with_a_swap_go_to_exactly_one_log(broker: Broker, tmp_path: Path) -> None:
    partition = broker.lead()
    logs = [partition.log]
    found: list[int] = []
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            info, _ = partition.append(memoryview(batch()), 1, broker.clock())
            found.append(info.first_offset)

    threads = [started(append) for _ in range(3)]
    while len(logs) < 20:
        future = future_log(broker, partition, tmp_path / "moves" / str(len(logs)))
        future.restart_at(partition.log.log_end_offset)
        if not partition.replace_log(future):
            # Appends wait for the old log while it is replaced.
            with logs[-1].lock:
                future.restart_at(partition.log.log_end_offset)
                assert partition.replace_log(future)
        logs.append(future)
    stop.set()
    join(threads)
    assert sorted(found) == list(range(logs[-1].log_end_offset)), "every offset was given once"
    starts = [log.log_start_offset for log in logs]
    assert starts[1:] == [log.log_end_offset for log in logs[:-1]], "no log got a record after its swap"


def test_appends_and_fetches_that_race_leave_the_high_watermark_at_the_end(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    seen = [0]
    count = 200

    def append() -> None:
        for _ in range(count):
            partition.append(memoryview(batch()), 1, broker.clock())

    def follow() -> None:
        while seen[-1] < 2 * count:
            partition.record_fetch(fetch(broker), partition.log.log_end_offset, 0, 0)
            seen.append(partition.log.high_watermark)

    join([started(append), started(append), started(follow)])
    assert seen == sorted(seen)
    assert partition.log.high_watermark == 2 * count


def test_only_a_leader_appends(broker: Broker) -> None:
    partition = broker.lead(leader=OTHER_BROKER, replicas=BOTH)
    with pytest.raises(PartitionError) as refused:
        partition.append(memoryview(batch()), 1, broker.clock())
    assert refused.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 0
