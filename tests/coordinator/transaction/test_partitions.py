"""AddPartitionsToTxn, AddOffsetsToTxn, and their verification for leaders: each row of Kafka's checks."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.values import NO_TIMESTAMP, Producer, TransactionState
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.transaction.play import ID, START_MS, TIMEOUT_MS, A, B, C, Play

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
NOT_HERE = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]


@pytest.fixture
def play() -> Play:
    return Play()


def test_the_first_partitions_start_the_transaction(play: Play) -> None:
    producer = play.producer()
    play.now_ms += 500
    assert play.add(producer, A, B).error is NONE
    record = play.written()[ID]
    assert record.state is TransactionState.ONGOING
    assert record.partitions == {A, B}
    assert (record.start_ms, record.last_update_ms) == (START_MS + 500, START_MS + 500)
    assert (record.producer, record.timeout_ms) == (producer, TIMEOUT_MS)


def test_more_partitions_leave_the_start_as_it_is(play: Play) -> None:
    producer = play.open(A)
    play.now_ms += 500
    assert play.add(producer, A, C).error is NONE
    record = play.written()[ID]
    assert record.partitions == {A, C}
    assert (record.start_ms, record.last_update_ms) == (START_MS, START_MS + 500)


def test_partitions_that_are_there_are_not_written_again(play: Play) -> None:
    producer = play.open(A, B)
    count = len(play.appends)
    assert play.add(producer, B).error is NONE
    assert len(play.appends) == count


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_after_another_starts_anew(play: Play, commit: bool) -> None:
    producer = play.open(A)
    play.end(producer, commit=commit)
    play.markers.write_all()
    play.now_ms += 500
    assert play.add(producer, B).error is NONE
    record = play.written()[ID]
    assert (record.partitions, record.start_ms) == ({B}, START_MS + 500)


def test_an_empty_id_is_invalid(play: Play) -> None:
    assert play.add(Producer(1, 1), A, transactional_id="").error is ErrorCode.INVALID_REQUEST
    assert play.requests.verify_partitions("", Producer(1, 1), [A]) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("error", NOT_HERE)
def test_the_id_must_be_coordinated_here(play: Play, error: ErrorCode) -> None:
    producer = play.open()
    play.why_not = error
    assert play.add(producer, A).error is error
    assert play.verify(producer, A) is error


def test_the_id_must_be_known(play: Play) -> None:
    assert play.add(Producer(1, 0), A).error is UNKNOWN
    assert play.verify(Producer(1, 0), A) is UNKNOWN


def test_the_producer_id_must_be_that_of_the_id(play: Play) -> None:
    producer = play.open()
    other = producer._replace(producer_id=4)
    assert play.add(other, A).error is UNKNOWN
    assert play.verify(other, A) is UNKNOWN


@pytest.mark.parametrize("epoch", [0, 2, 9])
def test_the_epoch_must_be_that_of_the_producer(play: Play, epoch: int) -> None:
    play.producer()
    other = play.open()._replace(epoch=epoch)
    assert play.add(other, A).error is FENCED
    assert play.verify(other, A) is FENCED


def test_while_a_change_is_written_clients_try_again(play: Play) -> None:
    producer = play.producer()
    play.holds_appends = True
    first = play.add(producer, A)
    assert not first.came
    assert play.add(producer, B).error is CONCURRENT
    play.acknowledge()
    assert first.error is NONE


def test_until_the_markers_are_written_clients_try_again(play: Play) -> None:
    producer = play.open()
    play.end(producer)
    assert play.add(producer, B).error is CONCURRENT
    assert play.verify(producer, A) is CONCURRENT
    play.markers.write_all()
    assert play.add(producer, B).error is NONE


def test_a_leader_learns_which_partitions_are_in_the_transaction(play: Play) -> None:
    producer = play.open(A, B)
    assert play.verify(producer, A, B, C) == {A: NONE, B: NONE, C: ABORTABLE}


def test_a_change_that_is_not_written_does_not_count_yet(play: Play) -> None:
    producer = play.open(A)
    play.holds_appends = True
    play.add(producer, B)
    assert play.verify(producer, A, B) == {A: NONE, B: ABORTABLE}
    play.acknowledge()
    assert play.verify(producer, A, B) == {A: NONE, B: NONE}


def test_without_a_transaction_no_partition_is_in_it(play: Play) -> None:
    producer = play.producer()
    assert play.verify(producer, A) == {A: ABORTABLE}
    play.add(producer, A)
    play.end(producer)
    play.markers.write_all()
    assert play.state() == "CompleteCommit"
    assert play.verify(producer, A) == {A: ABORTABLE}


def test_partitions_that_could_not_be_written_are_not_added(play: Play) -> None:
    producer = play.producer()
    play.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert play.add(producer, A).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.state() == "Empty"
    assert play.described().start_ms == NO_TIMESTAMP
    play.append_error = NONE
    assert play.add(producer, A).error is NONE
