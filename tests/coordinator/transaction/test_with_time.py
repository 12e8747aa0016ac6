"""Transactions that time out, ids that expire, and what an operator sees of them."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.values import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    DescribedTransaction,
    ListedTransaction,
    Producer,
    TransactionState,
)
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.transaction.play import (
    EXPIRATION_MS,
    FIRST_PRODUCER_ID,
    ID,
    START_MS,
    TIMEOUT_MS,
    A,
    B,
    Play,
)

NONE = ErrorCode.NONE
PID = FIRST_PRODUCER_ID


@pytest.fixture
def play() -> Play:
    return Play()


def expire(play: Play, max_batch_bytes: int = 1 << 20) -> None:
    play.partition.remove_expired(EXPIRATION_MS, max_batch_bytes, 30_000)


# -- timeouts ------------------------------------------------------------------------------------------------


def test_a_transaction_is_aborted_after_its_timeout(play: Play) -> None:
    producer = play.open(A)
    play.now_ms += TIMEOUT_MS
    play.partition.abort_timed_out()
    assert play.state() == "Ongoing"
    play.now_ms += 1
    play.partition.abort_timed_out()
    assert play.state() == "PrepareAbort"
    ((wanted, _),) = play.markers.sent
    assert wanted.marker == (producer._replace(epoch=1), 0, False)
    # The producer learns that it has been fenced.
    assert play.end(producer).error is ErrorCode.PRODUCER_FENCED
    play.markers.write_all()
    assert play.state() == "CompleteAbort"
    assert play.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert play.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert play.init().value.producer == Producer(PID, 2)


def test_the_timeout_counts_from_the_first_partition(play: Play) -> None:
    producer = play.open(A)
    play.now_ms += TIMEOUT_MS
    assert play.add(producer, B).error is NONE
    play.now_ms += 1
    play.partition.abort_timed_out()
    assert play.state() == "PrepareAbort"


def test_the_timeout_counts_on_after_a_load(play: Play) -> None:
    play.open(A)
    play.now_ms += TIMEOUT_MS + 1
    play.reload()
    play.partition.abort_timed_out()
    assert play.state() == "PrepareAbort"


def test_only_open_transactions_time_out(play: Play) -> None:
    producer = play.open(A)
    play.end(producer)
    play.now_ms += 10 * TIMEOUT_MS
    play.partition.abort_timed_out()
    assert play.state() == "PrepareCommit"
    play.markers.write_all()
    play.partition.abort_timed_out()
    assert play.state() == "CompleteCommit"
    assert play.init().error is NONE
    play.partition.abort_timed_out()
    assert play.state() == "Empty"


def test_a_transaction_that_is_being_ended_does_not_time_out(play: Play) -> None:
    producer = play.open(A)
    play.now_ms += TIMEOUT_MS + 1
    play.holds_appends = True
    answer = play.end(producer)
    play.partition.abort_timed_out()
    play.acknowledge()
    assert answer.error is NONE
    assert play.state() == "PrepareCommit"


def test_an_abort_that_could_not_be_written_is_tried_again(play: Play) -> None:
    play.open(A)
    play.now_ms += TIMEOUT_MS + 1
    play.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        play.partition.abort_timed_out()
        assert (play.state(), play.described().producer) == ("Ongoing", Producer(PID, 1))
    play.append_error = NONE
    play.partition.abort_timed_out()
    assert (play.state(), play.described().producer) == ("PrepareAbort", Producer(PID, 1))


# -- expiry --------------------------------------------------------------------------------------------------


def test_an_id_that_is_not_used_is_removed(play: Play) -> None:
    producer = play.producer()
    play.now_ms += EXPIRATION_MS - 1
    expire(play)
    assert play.state() == "Empty"
    play.now_ms += 1
    expire(play)
    assert play.written() == {}
    assert play.described().error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert play.end(producer).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert play.init().value.producer == Producer(PID + 1, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_an_id_whose_transaction_is_complete_is_removed(play: Play, commit: bool) -> None:
    producer = play.open(A)
    play.end(producer, commit=commit)
    play.now_ms += EXPIRATION_MS
    expire(play)
    assert play.state() == ("PrepareCommit" if commit else "PrepareAbort")
    play.markers.write_all()
    expire(play)
    assert play.partition.transactions == {}


def test_an_id_with_an_open_transaction_stays(play: Play) -> None:
    play.open(A)
    play.now_ms += EXPIRATION_MS
    expire(play)
    assert play.state() == "Ongoing"


def test_an_id_is_of_no_use_while_it_is_removed(play: Play) -> None:
    producer = play.producer()
    play.now_ms += EXPIRATION_MS
    play.holds_appends = True
    expire(play)
    assert play.add(producer, A).error is ErrorCode.CONCURRENT_TRANSACTIONS
    expire(play)
    assert len(play.held) == 1
    assert play.held[0].timeout_ms == 30_000
    play.acknowledge(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert play.state() == "Empty"
    expire(play)
    play.acknowledge()
    assert play.partition.transactions == {}


def test_removals_share_batches_up_to_a_size(play: Play) -> None:
    ids = [f"id-{number:03}" for number in range(100)]
    for each in ids:
        assert play.init(transactional_id=each).error is NONE
    assert set(play.written()) == set(ids)
    play.now_ms += EXPIRATION_MS
    count = len(play.appends)
    expire(play, max_batch_bytes=1_000)
    batches = play.appends[count:]
    assert len(batches) > 1
    assert all(len(each.batch) <= 1_000 for each in batches)
    assert play.written() == {}
    assert play.partition.transactions == {}


def test_what_was_removed_in_an_epoch_that_is_over_changes_nothing(play: Play) -> None:
    play.producer()
    play.now_ms += EXPIRATION_MS
    play.holds_appends = True
    expire(play)
    play.partition.close()
    play.acknowledge()
    assert play.written() == {}


# -- inspection ----------------------------------------------------------------------------------------------


def test_a_transaction_is_described(play: Play) -> None:
    producer = play.producer()
    play.now_ms += 5
    play.add(producer, A, B)
    assert play.described() == DescribedTransaction(
        NONE, ID, "Ongoing", TIMEOUT_MS, START_MS + 5, producer, frozenset([A, B])
    )
    play.end(producer)
    play.markers.write_all()
    described = play.described()
    assert (described.state, described.partitions) == ("CompleteCommit", frozenset())
    # Until the next transaction starts, the start of the last one is shown.
    play.init()
    assert (play.described().state, play.described().start_ms) == ("Empty", START_MS + 5)
    assert play.written()[ID].start_ms == NO_TIMESTAMP


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [("", ErrorCode.INVALID_REQUEST), ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)],
)
def test_an_id_that_does_not_exist_is_described_by_an_error(play: Play, transactional_id, error) -> None:
    play.producer()
    assert play.described(transactional_id) == DescribedTransaction(error, transactional_id)
    play.why_not = ErrorCode.NOT_COORDINATOR
    assert play.described().error is ErrorCode.NOT_COORDINATOR
    assert play.described().producer == NO_PRODUCER


def some_transactions(play: Play) -> None:
    """`open` since the start, `done`, and `idle` that has never had a transaction."""
    for name in ("open", "done", "idle"):
        assert play.init(transactional_id=name).error is NONE
    play.add(Producer(PID, 0), A, transactional_id="open")
    play.add(Producer(PID + 1, 0), A, transactional_id="done")
    play.end(Producer(PID + 1, 0), transactional_id="done")
    play.markers.write_all()


@pytest.mark.parametrize(
    ("states", "producer_ids", "duration_ms", "unknown", "found"),
    [
        ([], [], -1, [], ["done", "idle", "open"]),
        (["Ongoing"], [], -1, [], ["open"]),
        (["Ongoing", "Empty"], [], -1, [], ["idle", "open"]),
        (["ongoing"], [], -1, ["ongoing"], []),
        (["Nonsense", "Empty"], [], -1, ["Nonsense"], ["idle"]),
        (["PrepareEpochFence", "Dead"], [], -1, [], []),
        ([], [PID + 1, 5], -1, [], ["done"]),
        (["Ongoing"], [PID + 1], -1, [], []),
        ([], [], 99, [], ["done", "idle", "open"]),
        ([], [], 100, [], ["idle"]),
        ([], [], 0, [], ["done", "idle", "open"]),
    ],
)
def test_transactions_are_listed(play: Play, states, producer_ids, duration_ms, unknown, found) -> None:
    some_transactions(play)
    play.now_ms += 100
    listing = play.requests.list(states, producer_ids, duration_ms)
    assert listing.error is NONE
    assert list(listing.unknown_states) == unknown
    assert sorted(each.transactional_id for each in listing.listed) == found


def test_a_listed_transaction_says_its_state(play: Play) -> None:
    some_transactions(play)
    listing = play.requests.list(["Ongoing"], [], -1)
    assert list(listing.listed) == [ListedTransaction("open", PID, "Ongoing")]


def test_nothing_is_listed_while_a_partition_is_loaded(play: Play) -> None:
    some_transactions(play)
    play.is_loading = True
    listing = play.requests.list([], [], -1)
    assert (listing.error, listing.listed) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())


def test_an_id_that_is_being_removed_is_still_shown(play: Play) -> None:
    play.producer()
    play.now_ms += EXPIRATION_MS
    play.holds_appends = True
    expire(play)
    assert play.state() == TransactionState.EMPTY.title
