"""InitProducerId: each row of Kafka's order of cases."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.transaction import LAST_EPOCH, Transaction
from klog.coordinator.transactions.values import NO_PRODUCER, NO_TIMESTAMP, Producer, TransactionState
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.transaction.play import (
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    A,
    Answer,
    Play,
)

PID = FIRST_PRODUCER_ID
OTHER_PID = 77
NEXT_PID = FIRST_PRODUCER_ID + 1

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def play() -> Play:
    return Play()


def at_epoch(play: Play, epoch: int, state: TransactionState = TransactionState.EMPTY) -> None:
    """Let the id have an epoch, as after a load."""
    record = TransactionRecord(Producer(PID, epoch), TIMEOUT_MS, state, frozenset(), play.now_ms)
    play.partition.install({ID: record})
    play.next_producer_id = NEXT_PID


def producer_of(answer: Answer) -> Producer:
    assert answer.error is NONE
    producer: Producer = answer.value.producer
    return producer


# -- before the id is looked at ------------------------------------------------------------------------------


def test_without_an_id_each_producer_is_new_in_epoch_0(play: Play) -> None:
    assert producer_of(play.init(transactional_id=None, timeout_ms=-1)) == Producer(PID, 0)
    assert producer_of(play.init(Producer(5, 5), transactional_id=None)) == Producer(NEXT_PID, 0)
    assert play.appends == []


def test_an_empty_id_is_invalid(play: Play) -> None:
    assert play.init(transactional_id="", timeout_ms=0).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_outside_the_limits_is_refused(play: Play, timeout_ms: int) -> None:
    play.why_not = ErrorCode.NOT_COORDINATOR
    assert play.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_a_timeout_at_the_limits_is_accepted(play: Play, timeout_ms: int) -> None:
    assert play.init(timeout_ms=timeout_ms).error is NONE
    assert play.described().timeout_ms == timeout_ms


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_the_id_must_be_coordinated_here(play: Play, error: ErrorCode) -> None:
    play.why_not = error
    answer = play.init()
    assert (answer.error, answer.value.producer) == (error, NO_PRODUCER)


def test_an_id_longer_than_a_record_can_hold_is_refused(play: Play) -> None:
    assert play.init(transactional_id="x" * 32_768).error is ErrorCode.INVALID_REQUEST
    assert play.init(transactional_id="\u00e4" * 16_384).error is ErrorCode.INVALID_REQUEST
    assert play.init(transactional_id="x" * 32_767).error is NONE


@pytest.mark.parametrize("transactional_id", [None, ID])
def test_without_a_producer_id_at_hand_the_client_tries_again(
    play: Play, transactional_id: str | None
) -> None:
    play.has_producer_ids = False
    answer = play.init(transactional_id=transactional_id)
    assert answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert play.partition.transactions == {}
    play.has_producer_ids = True
    assert producer_of(play.init(transactional_id=transactional_id)) == Producer(PID, 0)


# -- the epochs ----------------------------------------------------------------------------------------------


def test_the_first_epoch_of_an_id_is_0(play: Play) -> None:
    assert producer_of(play.init()) == Producer(PID, 0)
    record = play.written()[ID]
    assert record == TransactionRecord(
        Producer(PID, 0), TIMEOUT_MS, TransactionState.EMPTY, frozenset(), play.now_ms, NO_TIMESTAMP
    )


def test_the_first_epoch_is_0_whatever_the_client_expects(play: Play) -> None:
    assert producer_of(play.init(Producer(OTHER_PID, 9))) == Producer(PID, 0)


def test_the_epoch_rises_with_each_request(play: Play) -> None:
    assert [producer_of(play.init()).epoch for _ in range(4)] == [0, 1, 2, 3]
    assert {producer_of(play.init()).producer_id for _ in range(3)} == {PID}


@pytest.mark.parametrize(
    "state",
    [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT],
)
def test_a_client_that_knows_its_epoch_keeps_its_id(play: Play, state: TransactionState) -> None:
    at_epoch(play, 3, state)
    assert producer_of(play.init(Producer(PID, 3))) == Producer(PID, 4)
    assert play.state() == "Empty"


def test_a_client_that_has_not_got_the_answer_gets_it_again(play: Play) -> None:
    at_epoch(play, 3)
    assert producer_of(play.init(Producer(PID, 3))) == Producer(PID, 4)
    assert producer_of(play.init(Producer(PID, 3))) == Producer(PID, 4)
    assert producer_of(play.init(Producer(PID, 4))) == Producer(PID, 5)


def test_the_last_epoch_is_not_known_after_a_load(play: Play) -> None:
    at_epoch(play, 3)
    assert producer_of(play.init(Producer(PID, 3))) == Producer(PID, 4)
    play.reload()
    assert play.init(Producer(PID, 3)).error is FENCED


def test_a_new_client_fences_those_before_it(play: Play) -> None:
    at_epoch(play, 3)
    assert producer_of(play.init()) == Producer(PID, 4)
    assert play.init(Producer(PID, 3)).error is FENCED
    assert play.init(Producer(PID, 2)).error is FENCED
    assert play.init(Producer(PID, 9)).error is FENCED


def test_a_client_with_another_producer_id_is_fenced(play: Play) -> None:
    at_epoch(play, 3)
    assert play.init(Producer(OTHER_PID, 3)).error is FENCED


# -- a change is under way -----------------------------------------------------------------------------------


def test_while_a_change_is_written_clients_try_again(play: Play) -> None:
    at_epoch(play, 3)
    play.holds_appends = True
    first = play.init()
    assert not first.came
    assert play.init().error is CONCURRENT
    assert play.init(Producer(OTHER_PID, 0)).error is CONCURRENT
    play.acknowledge()
    assert producer_of(first) == Producer(PID, 4)


@pytest.mark.parametrize("commit", [True, False])
def test_until_the_markers_are_written_clients_try_again(play: Play, commit: bool) -> None:
    producer = play.open()
    play.end(producer, commit=commit)
    assert play.init().error is CONCURRENT
    assert play.init(producer).error is CONCURRENT
    play.markers.write_all()
    assert producer_of(play.init(producer)) == Producer(PID, 1)


def test_another_producer_id_is_fenced_before_the_markers_are_waited_for() -> None:
    record = TransactionRecord(
        Producer(PID, 3), TIMEOUT_MS, TransactionState.PREPARE_COMMIT, frozenset([A]), 1, 1
    )
    answer = Answer()
    transaction = Transaction(ID, record)
    for expected in (Producer(OTHER_PID, 3), Producer(PID, 3)):
        transaction.init(TIMEOUT_MS, expected, answer.results.append, 1)
    for effect in transaction.take_effects():
        effect.send()
    assert [result.error for result in answer.results] == [FENCED, CONCURRENT]


# -- an open transaction is aborted --------------------------------------------------------------------------


def test_an_open_transaction_is_aborted_in_a_higher_epoch(play: Play) -> None:
    at_epoch(play, 3)
    assert play.add(Producer(PID, 3), A).error is NONE
    assert play.init().error is CONCURRENT
    record = play.last_record()
    assert (record.state, record.producer.epoch) == (TransactionState.PREPARE_ABORT, 4)
    ((wanted, _),) = play.markers.sent
    assert wanted.marker == (Producer(PID, 4), 0, False)
    assert play.init().error is CONCURRENT
    play.markers.write_all()
    assert producer_of(play.init()) == Producer(PID, 5)
    assert play.add(Producer(PID, 3), A).error is FENCED
    assert play.end(Producer(PID, 3)).error is FENCED


def test_a_stale_epoch_aborts_too(play: Play) -> None:
    at_epoch(play, 3)
    assert play.add(Producer(PID, 3), A).error is NONE
    assert play.init(Producer(PID, 0)).error is CONCURRENT
    assert play.state() == "PrepareAbort"


def test_a_client_with_another_producer_id_aborts_nothing(play: Play) -> None:
    play.open()
    assert play.init(Producer(OTHER_PID, 0)).error is FENCED
    assert play.state() == "Ongoing"


def test_the_client_waits_until_the_abort_is_written(play: Play) -> None:
    play.open()
    play.holds_appends = True
    answer = play.init()
    assert not answer.came
    play.acknowledge()
    assert answer.error is CONCURRENT


def test_failed_attempts_to_fence_raise_the_epoch_once(play: Play) -> None:
    producer = play.open()
    play.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert play.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert play.state() == "Ongoing"
        assert play.described().producer == Producer(PID, 1)
    assert play.end(producer).error is FENCED
    play.append_error = NONE
    assert play.init().error is CONCURRENT
    assert play.last_record().producer == Producer(PID, 1)
    play.markers.write_all()
    # The next fence raises the epoch again.
    again = producer_of(play.init())
    assert again == Producer(PID, 2)
    assert play.add(again, A).error is NONE
    assert play.init().error is CONCURRENT
    assert play.last_record().producer == Producer(PID, 3)


# -- exhaustion ----------------------------------------------------------------------------------------------


def test_the_last_epoch_is_handed_out(play: Play) -> None:
    at_epoch(play, LAST_EPOCH - 1)
    assert producer_of(play.init()) == Producer(PID, LAST_EPOCH)
    assert LAST_EPOCH == 32_766


def test_after_the_last_epoch_comes_a_new_producer_id(play: Play) -> None:
    at_epoch(play, LAST_EPOCH)
    assert producer_of(play.init()) == Producer(NEXT_PID, 0)
    # Nobody may have expected an epoch: a retry of an older client is fenced.
    assert play.init(Producer(PID, LAST_EPOCH)).error is FENCED


def test_after_the_last_epoch_a_client_that_knows_it_gets_a_new_id_and_can_ask_again(play: Play) -> None:
    at_epoch(play, LAST_EPOCH)
    assert producer_of(play.init(Producer(PID, LAST_EPOCH))) == Producer(NEXT_PID, 0)
    assert producer_of(play.init(Producer(PID, LAST_EPOCH))) == Producer(NEXT_PID, 0)
    assert play.init(Producer(PID, LAST_EPOCH - 1)).error is FENCED
    assert producer_of(play.init(Producer(NEXT_PID, 0))) == Producer(NEXT_PID, 1)


def test_after_the_last_epoch_an_older_one_is_fenced(play: Play) -> None:
    at_epoch(play, LAST_EPOCH)
    assert play.init(Producer(PID, 4)).error is FENCED
    assert play.next_producer_id == NEXT_PID


def test_the_epoch_of_a_fence_is_never_handed_out(play: Play) -> None:
    at_epoch(play, LAST_EPOCH)
    assert play.add(Producer(PID, LAST_EPOCH), A).error is NONE
    assert play.init().error is CONCURRENT
    assert play.last_record().producer == Producer(PID, LAST_EPOCH + 1)
    play.markers.write_all()
    assert producer_of(play.init()) == Producer(NEXT_PID, 0)


def test_if_no_producer_id_is_ready_for_the_change_the_old_one_stays(play: Play) -> None:
    at_epoch(play, LAST_EPOCH)
    play.has_producer_ids = False
    assert play.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert play.described().producer == Producer(PID, LAST_EPOCH)
