"""A coordinator's records are appended inside the broker, and it learns the outcome once."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, StopReplicaPartitionState
from klog.replication.follower import FollowerFetch
from klog.replication.internal_append import Appended, InternalAppends
from tests.control_requests import stop_replica
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, batch, set_isr
from tests.threads import join, started

PARTITION = TopicPartition(TOPIC, 0)
BOTH = (BROKER, OTHER_BROKER)
TIMEOUT_MS = 500


class Coordinator:
    """Appends, and keeps the outcomes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.outcomes: list[Appended] = []
        self.appends = InternalAppends(
            broker.replicas,
            broker.produce_purgatory,
            broker.lookup.known,
            clock_ms=broker.clock,
            timer_ms=broker.clock,
        )

    def append(self, records: bytearray | None = None, *, acks: int = -1, **values: int) -> list[Appended]:
        """The outcomes by the time the call returns."""
        data = memoryview(batch(records=2) if records is None else records)
        self.appends.append_records(
            PARTITION, data, self.outcomes.append, acks=acks, timeout_ms=TIMEOUT_MS, **values
        )
        return self.outcomes


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def coordinator(broker: Broker) -> Coordinator:
    return Coordinator(broker)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_leader_alone_has_replicated_what_it_has_written(
    broker: Broker, coordinator: Coordinator, acks: int
) -> None:
    partition = broker.lead()
    assert coordinator.append(acks=acks) == [Appended(ErrorCode.NONE, 0, 1)]
    assert partition.log.high_watermark == 2


def test_an_append_wakes_consumers(broker: Broker, coordinator: Coordinator, monkeypatch) -> None:
    broker.lead()
    woken = []
    monkeypatch.setattr(broker.fetch_purgatory, "check_and_complete", woken.append)
    coordinator.append()
    assert woken == [PARTITION]


@pytest.mark.parametrize("acks", [0, 1])
def test_with_other_acks_than_all_the_outcome_comes_after_the_local_write(
    broker: Broker, coordinator: Coordinator, acks: int
) -> None:
    broker.lead(replicas=BOTH)
    assert coordinator.append(acks=acks) == [Appended(ErrorCode.NONE, 0, 1)]


def test_a_coordinator_may_write_what_clients_may_not(broker: Broker, coordinator: Coordinator) -> None:
    partition = broker.lead()
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)
    fields = BatchFields(producer_id=9, producer_epoch=0, is_transactional=True, is_control=True)
    marker = build_batch([RecordData(0, broker.clock(), key, value)], fields)
    assert coordinator.append(marker) == [Appended(ErrorCode.NONE, 0, 0)]
    assert partition.log.log_end_offset == 1


class TestWaiting:
    """A second replica is in sync: the records wait for it."""

    @pytest.fixture
    def partition(self, broker: Broker, coordinator: Coordinator):
        partition = broker.lead(replicas=BOTH)
        assert coordinator.append() == []
        return partition

    def test_until_the_high_watermark_has_passed_the_records(self, broker, coordinator, partition) -> None:
        broker.follow(1)
        assert coordinator.outcomes == []
        broker.follow(2)
        assert coordinator.outcomes == [Appended(ErrorCode.NONE, 0, 1)]
        assert (broker.produce_purgatory.waiting, len(broker.timer)) == (0, 0)

    def test_until_a_replica_that_is_lost_has_left_the_isr(self, broker, coordinator, partition) -> None:
        # It is not alive any more, and the controller has confirmed that it is out of the ISR.
        partition.context = replace(partition.context, alive=lambda: {BROKER})
        set_isr(partition, BROKER)
        assert coordinator.outcomes == []
        broker.replicas.appended(PARTITION, high_watermark_moved=partition.advance_high_watermark())
        assert coordinator.outcomes == [Appended(ErrorCode.NONE, 0, 1)]

    def test_until_leadership_is_lost(self, broker, coordinator, partition) -> None:
        broker.lead(leader=OTHER_BROKER, epoch=1, replicas=BOTH)
        assert coordinator.outcomes == [Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 1)]

    def test_until_the_topic_is_deleted(self, broker, coordinator, partition) -> None:
        state = StopReplicaPartitionState(
            partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
        )
        broker.replicas.stop_replicas(stop_replica({PARTITION: state}))
        assert coordinator.outcomes == [Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 1)]

    def test_until_the_log_directory_fails(self, broker, coordinator, partition) -> None:
        broker.replicas.directory_failed([PARTITION])
        assert coordinator.outcomes == [Appended(ErrorCode.KAFKA_STORAGE_ERROR, 0, 1)]

    def test_until_the_time_is_up(self, broker, coordinator, partition) -> None:
        broker.pass_time(TIMEOUT_MS - 1)
        assert coordinator.outcomes == []
        broker.pass_time(1)
        assert coordinator.outcomes == [Appended(ErrorCode.REQUEST_TIMED_OUT, 0, 1)]
        broker.follow(2)
        assert len(coordinator.outcomes) == 1
        assert partition.log.high_watermark == 2, "the records stay"

    def test_on_through_a_new_epoch_of_the_same_leader(self, broker, coordinator, partition) -> None:
        broker.lead(epoch=1, replicas=BOTH)
        assert coordinator.outcomes == []
        broker.follow(2)
        assert coordinator.outcomes == [Appended(ErrorCode.NONE, 0, 1)]


def test_too_few_in_sync_replicas_before_and_after_the_append(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"min.insync.replicas": "2"}})
    coordinator = Coordinator(broker)
    partition = broker.lead(replicas=BOTH)
    coordinator.append()
    partition.record_fetch(FollowerFetch(OTHER_BROKER, -1, broker.clock()), 2, 0, 2)
    set_isr(partition, BROKER)
    broker.replicas.appended(PARTITION, high_watermark_moved=True)
    assert coordinator.outcomes == [Appended(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0, 1)]
    assert coordinator.append()[1:] == [Appended(ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert partition.log.log_end_offset == 2
    assert coordinator.append(acks=1)[2:] == [Appended(ErrorCode.NONE, 2, 3)]


class TestRefusals:
    """Nothing is written, and the outcome comes at once."""

    def test_a_partition_that_is_unknown_elsewhere_or_followed(self, broker, coordinator) -> None:
        coordinator.append()
        broker.tell(leader=OTHER_BROKER)
        coordinator.append()
        broker.lead(leader=OTHER_BROKER, replicas=BOTH)
        coordinator.append()
        assert [each.error for each in coordinator.outcomes] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]

    @pytest.mark.parametrize(
        ("epoch", "error"),
        [
            (3, ErrorCode.FENCED_LEADER_EPOCH),
            (4, ErrorCode.NONE),
            (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    def test_another_leader_epoch_than_the_coordinator_s(self, broker, coordinator, epoch, error) -> None:
        partition = broker.lead(epoch=4)
        (outcome,) = coordinator.append(leader_epoch=epoch)
        assert outcome.error is error
        assert partition.log.log_end_offset == (0 if error else 2)

    @pytest.mark.parametrize("acks", [-2, 2])
    def test_acks_that_there_are_not(self, broker, coordinator, acks) -> None:
        partition = broker.lead()
        assert coordinator.append(acks=acks) == [Appended(ErrorCode.INVALID_REQUIRED_ACKS)]
        assert partition.log.log_end_offset == 0

    def test_records_that_are_damaged(self, broker, coordinator) -> None:
        broker.lead()
        damaged = batch()
        damaged[-1] ^= 1
        assert coordinator.append(damaged) == [Appended(ErrorCode.CORRUPT_MESSAGE)]

    def test_a_disk_that_fails(self, broker, coordinator, monkeypatch) -> None:
        partition = broker.lead()
        partition.log.release()
        assert coordinator.append() == [Appended(ErrorCode.KAFKA_STORAGE_ERROR)]


def test_the_outcome_comes_once_whatever_happens_at_the_same_time(
    broker: Broker, coordinator: Coordinator
) -> None:
    """The follower's fetch, the timeout, the loss of leadership and the append's own first try race."""
    rounds = 60
    for number in range(rounds):
        broker.lead(epoch=2 * number, replicas=BOTH)
        end = broker.replicas.partitions[PARTITION].log.log_end_offset
        due_ms = broker.clock() + TIMEOUT_MS

        def time_passes(until_ms: int = due_ms) -> None:
            broker.clock.now_ms = until_ms
            broker.timer.advance()

        threads = [
            started(coordinator.append),
            started(lambda end=end: broker.follow(end + 2)),
            started(time_passes),
            started(
                lambda epoch=2 * number + 1: broker.lead(leader=OTHER_BROKER, epoch=epoch, replicas=BOTH)
            ),
        ]
        join(threads)
        broker.pass_time(TIMEOUT_MS)
        assert len(coordinator.outcomes) == number + 1
    assert broker.produce_purgatory.waiting == 0
