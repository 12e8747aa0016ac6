"""Committed offsets: which commit counts, what a fetch sees, and what expires."""

from __future__ import annotations

import pytest

from klog.coordinator.groups.offsets.offsets import GroupOffsets, GroupView
from klog.coordinator.groups.values import CommittedOffset, FetchedOffset, GroupState
from klog.protocol.error_codes import ErrorCode

A, B = ("t", 0), ("u", 1)
PRODUCER = 7
COMMITTED_MS = 1_000
RETENTION_MS = 100


def commit(offset: int, **values: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", COMMITTED_MS)._replace(**values)


@pytest.fixture
def offsets() -> GroupOffsets:
    return GroupOffsets()


def stored(offsets: GroupOffsets, *keys: tuple[str, int]) -> GroupOffsets:
    for number, key in enumerate(keys or (A, B)):
        offsets.load(key, commit(number), number, None)
    return offsets


def fetched(offsets: GroupOffsets, key=A, *, require_stable: bool = False) -> FetchedOffset:
    return offsets.fetch([key], require_stable=require_stable)[key]


def test_a_commit_counts_when_it_is_written(offsets) -> None:
    commits = {A: commit(5)}
    offsets.begin(commits)
    assert fetched(offsets) == FetchedOffset()
    assert fetched(offsets, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets.written(commits, 0)
    assert fetched(offsets, require_stable=True) == FetchedOffset(5, 3, "note")


def test_of_two_commits_the_later_in_the_log_wins_whatever_the_order_of_the_outcomes(offsets) -> None:
    first, second = {A: commit(5)}, {A: commit(4)}
    offsets.begin(first)
    offsets.begin(second)
    offsets.written(second, 11)
    assert fetched(offsets).offset == 4
    offsets.written(first, 10)
    assert fetched(offsets).offset == 4


def test_a_commit_that_fails_changes_nothing(offsets) -> None:
    stored(offsets)
    commits = {A: commit(9)}
    offsets.begin(commits)
    offsets.failed(commits)
    assert fetched(offsets, require_stable=True).offset == 0


def test_all_offsets_are_those_that_are_committed(offsets) -> None:
    stored(offsets, A)
    offsets.begin({B: commit(1)})
    assert list(offsets.fetch(None, require_stable=False)) == [A]
    assert not offsets.is_empty


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(offsets, committed: bool) -> None:
    stored(offsets, A)
    commits = {A: commit(9)}
    offsets.begin_transactional(PRODUCER, commits)
    offsets.written_transactional(PRODUCER, commits, 20)
    assert fetched(offsets).offset == 0
    assert fetched(offsets, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets.complete(PRODUCER, committed=committed)
    assert fetched(offsets, require_stable=True).offset == (9 if committed else 0)


def test_a_later_commit_outlives_an_earlier_transaction(offsets) -> None:
    transactional, plain = {A: commit(9)}, {A: commit(8)}
    offsets.begin_transactional(PRODUCER, transactional)
    offsets.written_transactional(PRODUCER, transactional, 20)
    offsets.begin(plain)
    offsets.written(plain, 21)
    offsets.complete(PRODUCER, committed=True)
    assert fetched(offsets).offset == 8


def test_offsets_of_a_transaction_that_could_not_be_written_do_not_count(offsets) -> None:
    commits = {A: commit(9)}
    offsets.begin_transactional(PRODUCER, commits)
    offsets.failed_transactional(PRODUCER, commits)
    assert offsets.is_empty
    offsets.complete(PRODUCER, committed=True)
    assert fetched(offsets) == FetchedOffset()


@pytest.mark.parametrize("is_written_first", [True, False])
def test_a_commit_that_fails_takes_no_other_with_it(offsets, is_written_first: bool) -> None:
    """Another producer epoch's request may come late, and be refused when the first is written or before."""
    first, late = {A: commit(8)}, {A: commit(6)}
    offsets.begin_transactional(PRODUCER, first)
    if is_written_first:
        offsets.written_transactional(PRODUCER, first, 81)
    offsets.begin_transactional(PRODUCER, late)
    offsets.failed_transactional(PRODUCER, late)
    if not is_written_first:
        offsets.written_transactional(PRODUCER, first, 81)
    assert fetched(offsets, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets.complete(PRODUCER, committed=True)
    assert fetched(offsets, require_stable=True).offset == 8


def test_a_plain_commit_that_fails_takes_no_other_with_it(offsets) -> None:
    first, second = {A: commit(5)}, {A: commit(6)}
    offsets.begin(first)
    offsets.begin(second)
    offsets.failed(second)
    assert fetched(offsets, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets.written(first, 10)
    assert fetched(offsets, require_stable=True).offset == 5


def test_of_two_equal_commits_each_counts_once(offsets) -> None:
    first, second = {A: commit(5)}, {A: commit(5)}
    offsets.begin(first)
    offsets.begin(second)
    offsets.failed(second)
    assert fetched(offsets, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets.failed(first)
    assert fetched(offsets, require_stable=True) == FetchedOffset()


def test_of_two_offsets_in_a_transaction_the_later_in_the_log_counts(offsets) -> None:
    first, second = {A: commit(5)}, {A: commit(6)}
    offsets.begin_transactional(PRODUCER, first)
    offsets.begin_transactional(PRODUCER, second)
    offsets.written_transactional(PRODUCER, second, 11)
    offsets.written_transactional(PRODUCER, first, 10)
    offsets.complete(PRODUCER, committed=True)
    assert fetched(offsets).offset == 6


def test_a_commit_that_is_removed_while_it_is_written_does_not_come_back(offsets) -> None:
    first, second = {A: commit(5)}, {A: commit(6)}
    offsets.begin(first)
    offsets.remove([A])
    offsets.begin(second)
    offsets.written(first, 10)
    assert fetched(offsets) == FetchedOffset()


def test_offsets_are_removed_wherever_they_are(offsets) -> None:
    stored(offsets, A)
    offsets.begin({B: commit(1)})
    offsets.begin_transactional(PRODUCER, {A: commit(2)})
    assert offsets.remove([A, B, ("other", 0)]) == [A]
    assert offsets.is_empty


def test_all_are_removed(offsets) -> None:
    assert stored(offsets).remove_all() == [A, B]
    assert offsets.is_empty


@pytest.mark.parametrize("transaction", [None, PRODUCER])
def test_a_removal_in_the_log_removes_what_was_loaded(offsets, transaction) -> None:
    offsets.load(A, commit(1), 0, transaction)
    offsets.load_removal(A, transaction)
    offsets.complete(PRODUCER, committed=True)
    assert fetched(offsets) == FetchedOffset()


EMPTY, STABLE = GroupState.EMPTY, GroupState.STABLE
NOW = COMMITTED_MS + RETENTION_MS


@pytest.mark.parametrize(
    ("view", "expired"),
    [
        (GroupView(EMPTY, NOW - RETENTION_MS, "consumer", ()), [A, B]),
        (GroupView(EMPTY, NOW - RETENTION_MS + 1, "consumer", ()), []),
        (GroupView(EMPTY, -1, "consumer", ()), [A, B]),  # since when is not known: from the commit
        (GroupView(EMPTY, NOW, None, None), [A, B]),  # never had members
        (GroupView(STABLE, 0, "consumer", {"t"}), [B]),
        (GroupView(STABLE, 0, "consumer", None), []),
        (GroupView(STABLE, 0, "connect", None), []),
        (GroupView(GroupState.PREPARING_REBALANCE, 0, "consumer", ()), []),
        (GroupView(GroupState.COMPLETING_REBALANCE, 0, "consumer", ()), []),
    ],
)
def test_what_expires(offsets, view: GroupView, expired) -> None:
    assert stored(offsets).remove_expired(view, NOW, RETENTION_MS) == expired


def test_nothing_expires_early_or_while_it_is_being_written(offsets) -> None:
    view = GroupView(EMPTY, COMMITTED_MS, None, None)
    assert stored(offsets).remove_expired(view, NOW - 1, RETENTION_MS) == []
    offsets.begin({A: commit(1)})
    assert offsets.remove_expired(view, NOW, RETENTION_MS) == [B]


def test_a_time_that_the_client_set_counts_instead(offsets) -> None:
    offsets.load(A, commit(1, expire_timestamp_ms=NOW + 50), 0, None)
    view = GroupView(EMPTY, 0, None, None)
    assert offsets.remove_expired(view, NOW + 49, RETENTION_MS) == []
    assert offsets.remove_expired(view, NOW + 50, RETENTION_MS) == [A]
