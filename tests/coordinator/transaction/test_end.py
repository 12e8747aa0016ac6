"""EndTxn: each row of Kafka's checks; and what becomes of markers."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.transaction_partition import TransactionPartition
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats.constants import INT16_MAX
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.transaction.play import ID, START_MS, A, B, C, Play

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED

both = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture
def play() -> Play:
    return Play()


# -- answers -------------------------------------------------------------------------------------------------


@both
def test_the_decision_is_written_before_the_answer(play: Play, commit: bool) -> None:
    producer = play.open(A, B)
    play.holds_appends = True
    play.now_ms += 50
    answer = play.end(producer, commit=commit)
    record = play.last_record()
    assert not answer.came
    assert play.markers.sent == []
    assert record.state.title == ("PrepareCommit" if commit else "PrepareAbort")
    assert record.partitions == {A, B}
    assert (record.start_ms, record.last_update_ms) == (START_MS, START_MS + 50)
    play.acknowledge()
    assert answer.error is NONE
    assert len(play.markers.sent) == 1


def test_an_empty_id_is_invalid(play: Play) -> None:
    assert play.end(Producer(1, 1), transactional_id="").error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_the_id_must_be_coordinated_here(play: Play, error: ErrorCode) -> None:
    producer = play.open()
    play.why_not = error
    assert play.end(producer).error is error


def test_the_id_and_its_producer_must_be_known(play: Play) -> None:
    assert play.end(Producer(1, 0)).error is UNKNOWN
    producer = play.open()
    assert play.end(producer._replace(producer_id=5)).error is UNKNOWN


@pytest.mark.parametrize("epoch", [0, 2])
def test_the_epoch_must_be_that_of_the_producer(play: Play, epoch: int) -> None:
    play.producer()
    producer = play.open()
    assert play.end(producer._replace(epoch=epoch)).error is FENCED


@both
def test_while_a_change_is_written_clients_try_again(play: Play, commit: bool) -> None:
    producer = play.open()
    play.holds_appends = True
    play.end(producer, commit=True)
    assert play.end(producer, commit=commit).error is CONCURRENT


@both
def test_until_the_markers_are_written_clients_try_again(play: Play, commit: bool) -> None:
    producer = play.open()
    play.end(producer, commit=commit)
    assert play.end(producer, commit=commit).error is CONCURRENT
    assert play.end(producer, commit=not commit).error is CONCURRENT


@both
def test_the_same_end_again_is_no_error(play: Play, commit: bool) -> None:
    producer = play.open()
    play.end(producer, commit=commit)
    play.markers.write_all()
    count = len(play.appends)
    assert play.end(producer, commit=commit).error is NONE
    assert play.end(producer, commit=not commit).error is INVALID
    assert len(play.appends) == count


@both
def test_without_a_transaction_there_is_nothing_to_end(play: Play, commit: bool) -> None:
    producer = play.producer()
    assert play.end(producer, commit=commit).error is INVALID


@pytest.mark.parametrize(
    ("state", "commit", "error"),
    [
        (TransactionState.PREPARE_COMMIT, True, CONCURRENT),
        (TransactionState.PREPARE_COMMIT, False, INVALID),
        (TransactionState.PREPARE_ABORT, False, CONCURRENT),
        (TransactionState.PREPARE_ABORT, True, INVALID),
    ],
)
def test_a_decided_transaction_without_a_change_under_way(play: Play, state, commit, error) -> None:
    producer = play.open()
    play.transaction.record = play.transaction.record._replace(state=state)
    assert play.end(producer, commit=commit).error is error


@both
def test_a_decision_that_could_not_be_written_is_none(play: Play, commit: bool) -> None:
    producer = play.open()
    play.append_error = ErrorCode.REQUEST_TIMED_OUT
    assert play.end(producer, commit=commit).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.state() == "Ongoing"
    assert play.markers.sent == []
    play.append_error = NONE
    assert play.end(producer, commit=not commit).error is NONE


# -- markers -------------------------------------------------------------------------------------------------


def test_the_transaction_is_complete_when_all_markers_are_written(play: Play) -> None:
    producer = play.open(A, B, C)
    play.end(producer)
    ((_, written),) = play.markers.sent
    play.now_ms += 700
    written([A])
    assert play.described().partitions == {B, C}
    written([A, B])
    assert play.state() == "PrepareCommit"
    written([C])
    assert play.state() == "CompleteCommit"
    record = play.written()[ID]
    assert record.partitions == frozenset()
    # The time is that when the markers were sent.
    assert (record.last_update_ms, record.start_ms) == (START_MS, START_MS)


def test_markers_that_are_reported_late_or_again_complete_nothing(play: Play) -> None:
    producer = play.open(A)
    play.end(producer)
    ((_, first),) = play.markers.sent
    first([A])
    count = len(play.appends)
    first([A])
    assert len(play.appends) == count
    play.add(producer, A)
    play.end(producer, commit=False)
    first([A])
    assert play.state() == "PrepareAbort"


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_the_completion_is_written_again_until_it_is_there(play: Play, error: ErrorCode) -> None:
    producer = play.open(A)
    play.end(producer)
    play.append_error = error
    play.markers.write_all()
    for _ in range(3):
        assert play.state() == "PrepareCommit"
        assert play.init().error is CONCURRENT
        play.timer.fire()
    play.append_error = NONE
    play.timer.fire()
    assert play.state() == "CompleteCommit"
    assert play.timer.tasks == []
    assert len(play.markers.all_sent) == 1


def test_a_broker_that_leads_no_longer_leaves_the_completion_to_the_next(play: Play) -> None:
    producer = play.open(A)
    play.end(producer)
    play.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    play.markers.write_all()
    assert play.timer.tasks == []
    assert play.state() == "PrepareCommit"


# -- the epoch of the coordinator ----------------------------------------------------------------------------


@both
def test_markers_are_sent_again_after_a_load(play: Play, commit: bool) -> None:
    producer = play.open(A, B)
    play.end(producer, commit=commit)
    ((_, old),) = play.markers.sent
    old([A])
    play.reload()
    ((wanted, _),) = play.markers.sent
    assert wanted.partitions == {A, B}
    assert wanted.marker == (producer, 1, commit)
    assert play.init().error is CONCURRENT
    old([A, B])
    assert play.state() == ("PrepareCommit" if commit else "PrepareAbort")
    play.markers.write_all()
    assert play.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_an_open_transaction_stays_open_after_a_load(play: Play) -> None:
    producer = play.open(A)
    play.reload()
    assert play.markers.sent == []
    assert play.verify(producer, A) == {A: NONE}
    assert play.end(producer).error is NONE


@pytest.mark.parametrize("error", [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_what_is_acknowledged_after_the_epoch_is_answered_so(play: Play, error: ErrorCode) -> None:
    producer = play.open(A)
    play.holds_appends = True
    answer = play.end(producer)
    play.partition.close()
    play.acknowledge(error)
    assert answer.error is ErrorCode.NOT_COORDINATOR
    assert play.markers.all_sent == []


def test_a_request_that_comes_as_the_epoch_ends_writes_nothing(play: Play) -> None:
    producer = play.open(A)
    play.partition.close()
    count = len(play.appends)
    assert play.end(producer).error is ErrorCode.NOT_COORDINATOR
    assert play.init().error is ErrorCode.NOT_COORDINATOR
    assert len(play.appends) == count


def test_the_completion_is_not_written_again_after_the_epoch(play: Play) -> None:
    producer = play.open(A)
    play.end(producer)
    play.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    play.markers.write_all()
    play.partition.close()
    play.append_error = NONE
    count = len(play.appends)
    play.timer.fire()
    assert len(play.appends) == count
    assert play.timer.tasks == []


def test_a_decision_without_partitions_completes_at_once(play: Play) -> None:
    producer = play.open(A)
    record = play.transaction.record._replace(state=TransactionState.PREPARE_ABORT, partitions=frozenset())
    play.partition = TransactionPartition(7, 1, play.services)
    play.partition.install({ID: record})
    assert play.state() == "CompleteAbort"
    assert play.markers.sent == []
    assert play.init(producer).error is NONE


# -- partitions that know a newer epoch of the producer: __transaction_state has lost records ----------------


@both
def test_partitions_that_know_a_newer_epoch_end_the_transaction_and_the_producer_id(
    play: Play, commit: bool
) -> None:
    producer = play.open(A, B)
    play.end(producer, commit=commit)
    ((_, report),) = play.markers.sent
    play.markers.sent.clear()
    report({A}, superseded=True)
    assert play.init().error is CONCURRENT
    report({B})
    # What a later, lost transaction may have open there is aborted in the last epoch.
    ((wanted, _),) = play.markers.sent
    assert (wanted.partitions, wanted.marker.committed) == ({A}, False)
    assert wanted.marker.producer == (producer.producer_id, INT16_MAX)
    assert play.last_record().state is TransactionState.PREPARE_ABORT
    play.markers.write_all()
    assert play.state() == "CompleteAbort"
    assert play.init(producer).error is FENCED
    play.next_producer_id = producer.producer_id + 1
    assert play.init().value.producer == (producer.producer_id + 1, 0)


def test_the_last_epoch_is_superseded_by_nothing(play: Play) -> None:
    play.end(play.open(A))
    for _ in range(2):
        ((_, report),) = play.markers.sent
        play.markers.sent.clear()
        report({A}, superseded=True)
    assert (play.state(), play.markers.sent) == ("CompleteAbort", [])


def test_the_abort_in_the_last_epoch_goes_on_after_a_load(play: Play) -> None:
    play.end(play.open(A))
    play.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    ((_, report),) = play.markers.sent
    play.markers.sent.clear()
    report({A}, superseded=True)
    assert play.markers.sent == []
    play.append_error = NONE
    play.timer.fire()
    assert play.state() == "PrepareAbort"
    play.reload()
    assert play.markers.sent[-1][0].marker.producer.epoch == INT16_MAX
    play.markers.write_all()
    assert play.state() == "CompleteAbort"


# -- appends -------------------------------------------------------------------------------------------------


def test_appends_wait_for_the_timeout_of_the_transaction(play: Play) -> None:
    play.init(timeout_ms=4_321)
    assert play.appends[-1].timeout_ms == 4_321
    play.reload()
    play.add(play.described().producer, A)
    assert (play.appends[-1].timeout_ms, play.appends[-1].leader_epoch) == (4_321, 1)


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_errors_of_appends_as_clients_see_them(play: Play, error: ErrorCode, answered: ErrorCode) -> None:
    producer = play.producer()
    play.append_error = error
    assert play.init().error is answered
    assert play.add(producer, A).error is answered
    play.append_error = NONE
    assert play.add(producer, A).error is NONE
    play.append_error = error
    assert play.end(producer).error is answered
