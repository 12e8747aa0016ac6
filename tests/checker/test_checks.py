"""The checks find what they are for, and nothing in a history without violations."""

from __future__ import annotations

from tests.checker import checks
from tests.checker.histories import (
    Acknowledged,
    Commit,
    Observed,
    Outage,
    Outcome,
    RecordId,
    Transaction,
    Wait,
)

HERE, THERE = ("in", 0), ("in", 1)
A0, A1, A2, B0 = RecordId("a", 0), RecordId("a", 1), RecordId("a", 2), RecordId("b", 0)


def test_acknowledged_records_are_at_their_offsets() -> None:
    acknowledged = [Acknowledged(A0, HERE, 0), Acknowledged(A1, HERE, 2)]
    assert not list(checks.lost(acknowledged, {HERE: {0: A0, 1: B0, 2: A1}}))
    assert len(list(checks.lost(acknowledged, {HERE: {0: A0}}))) == 1
    assert len(list(checks.lost(acknowledged, {HERE: {0: A0, 2: B0}}))) == 1
    assert len(list(checks.lost(acknowledged, {THERE: {0: A0, 2: A1}}))) == 2


def test_a_record_is_there_once_in_all_partitions() -> None:
    assert not list(checks.duplicated({HERE: {0: A0}, THERE: {0: A1}}))
    assert len(list(checks.duplicated({HERE: {0: A0, 1: A0}}))) == 1
    assert len(list(checks.duplicated({HERE: {0: A0}, THERE: {5: A0}}))) == 1


def test_records_of_a_producer_keep_their_order_in_each_partition() -> None:
    assert not list(checks.disordered({HERE: {0: A0, 1: B0, 2: A2}, THERE: {0: A1}}))
    assert len(list(checks.disordered({HERE: {0: A0, 1: A2, 2: A1}}))) == 1


def test_committed_offsets_are_found_again() -> None:
    commits = [Commit(HERE, 5, 1.0, 2.0), Commit(HERE, 9, 3.0, None)]
    for offset, at_s in ((0, 0.5), (5, 1.5), (5, 2.5), (5, 4.0), (9, 4.0)):
        assert not list(checks.commits_lost(commits, [Observed(HERE, offset, at_s, at_s)]))
    for offset, at_s in ((5, 0.5), (0, 2.5), (4, 2.5), (9, 2.5), (10, 4.0)):
        assert len(list(checks.commits_lost(commits, [Observed(HERE, offset, at_s, at_s)]))) == 1
    assert len(list(checks.commits_lost(commits, [Observed(THERE, 5, 4.0, 4.0)]))) == 1


def test_committed_offsets_never_go_back() -> None:
    rising = [Observed(HERE, 5, 1.0, 2.0), Observed(HERE, 9, 3.0, 4.0), Observed(THERE, 1, 5.0, 6.0)]
    assert not list(checks.went_back(rising))
    # Two that overlap have no order.
    assert not list(checks.went_back([*rising, Observed(HERE, 5, 3.5, 4.0)]))
    assert len(list(checks.went_back([*rising, Observed(HERE, 5, 4.5, 5.0)]))) == 1


def test_a_group_reads_what_it_commits() -> None:
    logs = {HERE: {0: A0, 1: A1, 2: A2}}
    assert not list(checks.skipped({HERE: 2}, {HERE: {0, 1}}, logs))
    assert len(list(checks.skipped({HERE: 3}, {HERE: {0, 1}}, logs))) == 1
    assert len(list(checks.skipped({HERE: 1}, {}, logs))) == 1


def transaction(outcome: Outcome) -> Transaction:
    return Transaction("t", [A0, A1], {HERE: (0, 2)}, outcome)


def test_transactions_are_visible_as_a_whole_or_not_at_all() -> None:
    whole, nothing, part = {THERE: {0: A0, 3: A1}}, {THERE: {0: B0}}, {THERE: {0: A0}}
    committed, aborted, unknown = (transaction(outcome) for outcome in Outcome)
    assert not list(checks.not_atomic([committed, unknown], whole))
    assert not list(checks.not_atomic([aborted, unknown], nothing))
    for each, visible in (
        (committed, part),
        (committed, nothing),
        (aborted, part),
        (aborted, whole),
        (unknown, part),
    ):
        assert len(list(checks.not_atomic([each], visible))) == 1


def test_input_is_transformed_exactly_once() -> None:
    inputs = {HERE: {0: B0, 1: B0, 2: B0}}
    once, visible = [transaction(Outcome.UNKNOWN)], {THERE: {0: A0, 1: A1}}
    assert not list(checks.not_exactly_once(once, visible, {HERE: 2}, inputs))
    # The output without the offsets, the offsets without the output, and the output twice.
    assert len(list(checks.not_exactly_once(once, visible, {HERE: 0}, inputs))) == 2
    assert len(list(checks.not_exactly_once(once, {}, {HERE: 2}, inputs))) == 2
    twice = [*once, Transaction("u", [A2], {HERE: (1, 2)}, Outcome.COMMITTED)]
    both = {THERE: {0: A0, 1: A1, 2: A2}}
    assert len(list(checks.not_exactly_once(twice, both, {HERE: 2}, inputs))) == 1


def test_nobody_waits_longer_than_the_limit_while_there_is_a_broker() -> None:
    wait = Wait("t", "its commit", 10.0, 20.0)
    assert not list(checks.stuck([wait], [], 10.0))
    assert not list(checks.stuck([wait], [Outage(5.0, 12.0), Outage(18.0, 30.0)], 6.0))
    assert len(list(checks.stuck([wait], [], 9.0))) == 1
    assert len(list(checks.stuck([wait], [Outage(5.0, 12.0), Outage(25.0, 30.0)], 7.0))) == 1
