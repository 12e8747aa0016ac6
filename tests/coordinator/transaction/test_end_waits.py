"""A producer's next transaction waits for the markers of its last one, but not for long."""

from __future__ import annotations

import pytest

from klog.coordinator.transactions.end_waits import EndWaits
from klog.coordinator.transactions.transaction import Transaction, new_transaction
from klog.coordinator.transactions.values import Producer
from klog.protocol.error_codes import ErrorCode
from tests.coordinator.transaction.play import A, B, FakeTimer, Play

NONE = ErrorCode.NONE
WAIT_MS = 20


@pytest.fixture
def play() -> Play:
    return Play(WAIT_MS)


@pytest.fixture
def decided(play: Play) -> Producer:
    """A producer whose transaction is decided and has no markers yet."""
    producer = play.open()
    assert play.end(producer).error is NONE
    return producer


def test_partitions_are_added_when_the_markers_are_written(play: Play, decided: Producer) -> None:
    answer = play.add(decided, B)
    assert not answer.came
    play.markers.write_all()
    assert answer.error is NONE
    assert play.state() == "Ongoing"
    assert play.described().partitions == {B}


def test_they_wait_for_the_last_record_too(play: Play, decided: Producer) -> None:
    answer = play.add(decided, B)
    play.holds_appends = True
    play.markers.write_all()
    assert not answer.came
    play.acknowledge()
    assert not answer.came
    play.acknowledge()
    assert answer.error is NONE


def test_a_producer_that_has_waited_for_long_tries_again(play: Play, decided: Producer) -> None:
    answer = play.add(decided, B)
    play.timer.fire()
    assert not answer.came
    play.timer.fire()
    assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not play.timer.tasks
    play.markers.write_all()
    assert play.state() == "CompleteCommit"
    assert play.add(decided, B).error is NONE


def test_another_producer_is_told_at_once(play: Play, decided: Producer) -> None:
    old = decided._replace(epoch=decided.epoch - 1)
    assert play.add(old, B).error is ErrorCode.PRODUCER_FENCED


def test_a_change_that_is_being_written_is_not_waited_for(play: Play) -> None:
    producer = play.producer()
    play.holds_appends = True
    play.add(producer, A)
    assert play.add(producer, B).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_whoever_waits_is_answered_when_the_leadership_goes(play: Play, decided: Producer) -> None:
    answer = play.add(decided, B)
    play.why_not = ErrorCode.NOT_COORDINATOR
    play.partition.close()
    assert answer.error is ErrorCode.NOT_COORDINATOR


def test_an_end_that_cannot_be_written_now_is_waited_for(play: Play, decided: Producer) -> None:
    answer = play.add(decided, B)
    play.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    play.markers.write_all()
    assert not answer.came
    play.append_error = NONE
    play.timer.fire()
    assert answer.error is NONE


class TestWaits:
    def transaction(self) -> Transaction:
        return new_transaction("id", 1, 1000, 0)

    def test_each_is_let_go_once(self) -> None:
        timer, gone = FakeTimer(), []
        waits = EndWaits(timer, lambda: 0, WAIT_MS)  # type: ignore[arg-type]
        one, other = self.transaction(), self.transaction()
        assert waits.add(one, lambda: gone.append("first"))
        assert waits.add(other, lambda: gone.append("other"))
        timer.fire()
        assert waits.add(one, lambda: gone.append("second"))
        assert len(timer.tasks) == 1
        waits.let_go(one)
        assert gone == ["first", "second"]
        timer.fire()
        assert gone == ["first", "second", "other"]
        waits.let_go(other)
        while timer.tasks:
            timer.fire()
        assert gone == ["first", "second", "other"]
        assert not len(waits)

    def test_the_timer_starts_again_after_a_pause(self) -> None:
        timer, gone = FakeTimer(), []
        waits = EndWaits(timer, lambda: 0, WAIT_MS)  # type: ignore[arg-type]
        for round_ in range(3):
            assert waits.add(self.transaction(), lambda number=round_: gone.append(number))
            timer.fire()
            timer.fire()
            assert not timer.tasks
            assert gone[-1] == round_

    def test_without_patience_nothing_waits(self) -> None:
        waits = EndWaits(FakeTimer(), lambda: 0, 0)  # type: ignore[arg-type]
        assert not waits.add(self.transaction(), lambda: None)
