"""Which markers go to which broker next, and what an answer to them means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.transactions.values import MarkersToWrite
from klog.drivers.marker_queues import (
    UNKNOWN,
    Entry,
    MarkerErrors,
    MarkerQueues,
    RoutedEntries,
    Transaction,
    judged,
)
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from tests.server.transactions.markers import A0, A1, B0, Written, markers


class Cluster:
    """The leaders of partitions, by the tests' wish."""

    def __init__(self, **leaders: int) -> None:
        self.leaders: dict[TopicPartition, int] = {A0: 1, A1: 2, B0: 1}

    def __call__(self, partition: TopicPartition) -> int:
        return self.leaders.get(partition, UNKNOWN)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def queues(cluster: Cluster) -> MarkerQueues:
    return MarkerQueues(cluster)


def transaction(wanted: MarkersToWrite) -> Transaction:
    return Transaction(wanted, Written())


def taken(queues: MarkerQueues, broker_id: int) -> list[tuple[int, frozenset[TopicPartition]]]:
    """Producer ids and partitions of the next request."""
    return [
        (entry.transaction.wanted.marker.producer.producer_id, entry.partitions)
        for entry in queues.take(broker_id)
    ]


def test_each_leader_gets_one_entry_with_its_partitions(queues: MarkerQueues) -> None:
    assert queues.add(transaction(markers(A0, A1, B0))) == {1, 2}
    assert taken(queues, 1) == [(9, {A0, B0})]
    assert taken(queues, 2) == [(9, {A1})]
    assert queues.take(1) == []


def test_all_that_has_gathered_for_a_broker_goes_together(queues: MarkerQueues) -> None:
    queues.add(transaction(markers(A0)))
    queues.add(transaction(markers(B0, producer_id=10)))
    assert taken(queues, 1) == [(9, {A0}), (10, {B0})]


def test_two_markers_of_one_producer_go_in_turn(queues: MarkerQueues) -> None:
    # The answer names producers, so it could not say which of the two it means.
    for _ in range(2):
        queues.add(transaction(markers(A0)))
    assert taken(queues, 1) == [(9, {A0})]
    assert taken(queues, 1) == [(9, {A0})]


def test_what_has_no_leader_waits_to_be_looked_up_again(queues: MarkerQueues, cluster: Cluster) -> None:
    del cluster.leaders[A1]
    assert queues.add(transaction(markers(A0, A1))) == {1, UNKNOWN}
    (waiting,) = queues.take_unknown()
    assert waiting.partitions == {A1}
    cluster.leaders[A1] = 3
    assert queues.route([waiting]) == {3}
    assert taken(queues, 3) == [(9, {A1})]


def judgement(queues: MarkerQueues, broker_id: int, **errors: ErrorCode) -> RoutedEntries:
    named = {"a0": A0, "a1": A1, "b0": B0}
    return judged(queues.take(broker_id), {9: {named[name]: error for name, error in errors.items()}})


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION],
)
def test_a_partition_that_has_the_marker_or_can_hold_none_is_done(
    queues: MarkerQueues, error: ErrorCode
) -> None:
    sent = transaction(markers(A0))
    queues.add(sent)
    assert judgement(queues, 1, a0=error) == RoutedEntries(done=(Entry(sent, frozenset((A0,))),))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_passing_error_sends_the_marker_to_the_present_leader(
    queues: MarkerQueues, cluster: Cluster, error: ErrorCode
) -> None:
    queues.add(transaction(markers(A0, B0)))
    outcome = judgement(queues, 1, a0=error, b0=ErrorCode.NONE)
    (again,) = outcome.again
    assert (again.partitions, again.failures, outcome.refused) == ({A0}, 1, ())
    cluster.leaders[A0] = 2
    assert queues.route(outcome.again) == {2}
    (again,) = judgement(queues, 2, a0=error).again
    assert again.failures == 2


def test_an_answer_that_leaves_out_a_partition_does_not_count_for_it(queues: MarkerQueues) -> None:
    queues.add(transaction(markers(A0, B0)))
    outcome = judgement(queues, 1, a0=ErrorCode.NONE)
    assert [entry.partitions for entry in outcome.again] == [{B0}]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_any_other_error_is_final(queues: MarkerQueues, error: ErrorCode) -> None:
    sent = transaction(markers(A0))
    queues.add(sent)
    assert judgement(queues, 1, a0=error).refused == ((Entry(sent, frozenset((A0,))), error),)


def test_a_partition_that_knows_a_newer_epoch_of_the_producer_has_superseded_the_marker(
    queues: MarkerQueues,
) -> None:
    sent = transaction(markers(A0, B0))
    queues.add(sent)
    outcome = judgement(queues, 1, a0=ErrorCode.INVALID_PRODUCER_EPOCH, b0=ErrorCode.NONE)
    assert outcome.superseded == (Entry(sent, frozenset((A0,))),)
    assert (outcome.done, outcome.refused) == ((Entry(sent, frozenset((B0,))),), ())


def test_a_partition_that_knows_a_newer_epoch_of_the_coordinator_fences_the_marker(
    queues: MarkerQueues,
) -> None:
    sent = transaction(markers(A0, B0))
    queues.add(sent)
    outcome = judgement(queues, 1, a0=ErrorCode.TRANSACTION_COORDINATOR_FENCED, b0=ErrorCode.NONE)
    assert outcome.fenced == (Entry(sent, frozenset((A0,))),)
    assert (outcome.done, outcome.refused) == ((Entry(sent, frozenset((B0,))),), ())


def test_a_transaction_that_was_given_up_sends_nothing_more(queues: MarkerQueues) -> None:
    sent = transaction(markers(A0, A1))
    queues.add(sent)
    entries = queues.take(1)
    queues.drop(sent)
    assert (queues.take(2), queues.route(entries), queues.written(entries[0])) == ([], set(), False)


def test_a_partition_that_is_led_elsewhere_is_forgotten_also_while_its_markers_are_sent(
    queues: MarkerQueues,
) -> None:
    queues.add(transaction(markers(A0, A1, number=7)))
    queues.add(transaction(markers(A0, producer_id=10, number=8)))
    (sending, _) = queues.take(1)
    queues.forget(7)
    assert not queues.written(sending)
    assert queues.route([sending]) == set()
    assert (queues.take(2), queues.waiting) == ([], 0)
    again = transaction(markers(A0, number=7))
    assert queues.add(again) == {1}, "it is led here again"
    assert not queues.written(sending), "an old answer says nothing about it"


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sets(st.sampled_from((A0, A1, B0)), min_size=1)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_every_partition_is_reported_once_whatever_brokers_answer(wanted, data) -> None:
    cluster = Cluster()
    queues = MarkerQueues(cluster)
    reported: dict[Transaction, list[TopicPartition]] = {}
    for producer_id, partitions in wanted:
        each = transaction(markers(*partitions, producer_id=producer_id))
        reported[each] = []
        queues.add(each)
    answers = st.sampled_from((ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    for turn in range(200):
        if not queues.waiting:
            break
        unlucky = turn < 20
        for partition in cluster.leaders:
            if unlucky:
                cluster.leaders[partition] = data.draw(st.sampled_from((1, 2, UNKNOWN)))
        if not unlucky:
            cluster.leaders = dict.fromkeys(cluster.leaders, 1)
        queues.route(queues.take_unknown())
        for broker_id in (1, 2):
            entries = queues.take(broker_id)
            answer: MarkerErrors = {}
            for entry in entries:
                for partition in entry.partitions:
                    error = data.draw(answers) if unlucky else ErrorCode.NONE
                    if error is not None:
                        producer_id = entry.transaction.wanted.marker.producer.producer_id
                        answer.setdefault(producer_id, {})[partition] = error
            outcome = judged(entries, answer)
            for entry in outcome.done:
                assert queues.written(entry)
                reported[entry.transaction] += entry.partitions
            queues.route(outcome.again)
    assert not queues.waiting
    assert all(sorted(seen) == sorted(each.wanted.partitions) for each, seen in reported.items())
