"""Steps of sending markers: to other brokers, to this one, and while a leader is not known."""

from __future__ import annotations

import pytest

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.drivers.marker_queues import UNKNOWN
from klog.drivers.markers import LeaderLookup, MarkerRequest, MarkerRoutes, MarkersHere, MarkersToBroker
from klog.metadata.errors import ConnectionLossError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from klog.protocol.transaction_messages import TxnMarker
from tests.server.transactions.markers import A0, A1, B0, Written, markers

OWN, OTHER = 0, 1
FIRST_PAUSE_MS = 50


class Coordinator:
    """The drivers of broker 0."""

    def __init__(self) -> None:
        self.leaders = {A0: OTHER, A1: OWN, B0: OTHER}
        self.woken: list[int] = []
        self.routes = MarkerRoutes(OWN, lambda key: self.leaders.get(key, UNKNOWN), self.woken.append)
        self.other = MarkersToBroker(self.routes, OTHER)
        self.here = MarkersHere(self.routes)
        self.lookup = LeaderLookup(self.routes)

    def add(self, *partitions, **how) -> Written:
        written = Written()
        self.routes.add(markers(*partitions, **how), written)
        return written

    def wakes(self) -> list[int]:
        woken = [*self.woken]
        self.woken.clear()
        return woken


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def sent(driver: Driver, now_ms: int = 0):
    step = driver.next_step(now_ms)
    assert isinstance(step, Send), step
    return step.request


def all_with(request: MarkerRequest, error: ErrorCode = ErrorCode.NONE) -> dict:
    return {each.producer_id: dict.fromkeys(each.partitions, error) for each in request.markers}


def carry_out(driver: Driver) -> None:
    for effect in driver.take_effects():
        effect()


def test_another_broker_gets_one_request_at_a_time(coordinator: Coordinator) -> None:
    first, second = coordinator.add(A0), coordinator.add(B0, producer_id=10)
    assert coordinator.wakes() == [OTHER, OTHER]
    request = sent(coordinator.other)
    assert [each.producer_id for each in request.markers] == [9, 10]
    third = coordinator.add(A0, producer_id=11)
    assert coordinator.other.next_step(0) == FOR_A_CALL
    coordinator.other.answered(request, all_with(request), 0)
    assert not first.calls, "it is told without the lock"
    carry_out(coordinator.other)
    assert (first.partitions, second.partitions) == ({A0}, {B0})
    request = sent(coordinator.other)
    coordinator.other.answered(request, all_with(request), 0)
    carry_out(coordinator.other)
    assert third.partitions == {A0}


def test_markers_for_this_broker_wake_nobody_and_do_not_wait_for_each_other(coordinator: Coordinator) -> None:
    coordinator.add(A1)
    assert coordinator.wakes() == []
    first = sent(coordinator.here)
    assert first.markers == [TxnMarker(9, 2, True, frozenset((A1,)), 5)]
    written = coordinator.add(A1, producer_id=10)
    second = sent(coordinator.here)
    coordinator.here.answered(second, all_with(second), 0)
    carry_out(coordinator.here)
    assert written.partitions == {A1}


def test_what_a_leader_does_not_take_now_is_routed_again_after_a_pause(coordinator: Coordinator) -> None:
    written = coordinator.add(A0)
    request = sent(coordinator.other)
    coordinator.wakes()
    coordinator.other.answered(request, all_with(request, ErrorCode.NOT_LEADER_OR_FOLLOWER), 100)
    assert coordinator.wakes() == [OWN], "the driver of this broker ends the pauses"
    coordinator.leaders[A0] = 2
    assert coordinator.here.next_step(100) == Wait(100 + FIRST_PAUSE_MS)
    assert coordinator.here.next_step(100 + FIRST_PAUSE_MS) == FOR_A_CALL
    assert coordinator.wakes() == [2]
    assert not written.calls


def test_a_lost_connection_is_an_answer_without_content(coordinator: Coordinator) -> None:
    written = coordinator.add(A0)
    request = sent(coordinator.other)
    coordinator.other.failed(request, ConnectionLostError("lost"), 100)
    coordinator.here.next_step(100 + FIRST_PAUSE_MS)
    again = sent(coordinator.other, 100 + FIRST_PAUSE_MS)
    assert again.markers == request.markers
    coordinator.other.answered(request, all_with(request), 200)
    carry_out(coordinator.other)
    assert not written.calls, "the answer to the first request comes too late"


def test_what_is_forgotten_is_neither_sent_nor_told(coordinator: Coordinator) -> None:
    written = coordinator.add(A0, number=3)
    request = sent(coordinator.other)
    waiting = coordinator.add(A0, number=3)
    coordinator.routes.queues.forget(3)
    coordinator.other.answered(request, all_with(request), 0)
    carry_out(coordinator.other)
    assert coordinator.other.next_step(0) == FOR_A_CALL
    assert not written.calls
    assert not waiting.calls


def test_a_leader_that_is_not_known_is_looked_up_until_it_is(coordinator: Coordinator) -> None:
    del coordinator.leaders[A0]
    coordinator.add(A0)
    assert coordinator.wakes() == [UNKNOWN]
    request = sent(coordinator.lookup)
    assert request.partitions == [A0]
    assert coordinator.lookup.next_step(0) == FOR_A_CALL
    coordinator.lookup.failed(request, ConnectionLossError("away"), 10)
    assert coordinator.lookup.next_step(10) == Wait(10 + FIRST_PAUSE_MS)
    request = sent(coordinator.lookup, 10 + FIRST_PAUSE_MS)
    coordinator.leaders[A0] = OTHER
    coordinator.lookup.answered(request, {A0}, 70)
    assert sent(coordinator.other).markers


def test_a_new_partition_without_a_leader_does_not_wait_for_the_pause_of_others(
    coordinator: Coordinator,
) -> None:
    del coordinator.leaders[A0]
    coordinator.add(A0)
    coordinator.lookup.answered(sent(coordinator.lookup), {A0}, 0)
    assert isinstance(coordinator.lookup.next_step(0), Wait)
    del coordinator.leaders[B0]
    coordinator.add(B0)
    assert sent(coordinator.lookup).partitions == [A0, B0]


def test_a_deleted_topic_needs_no_marker(coordinator: Coordinator) -> None:
    del coordinator.leaders[A0], coordinator.leaders[B0]
    written = coordinator.add(A0, B0)
    coordinator.lookup.answered(sent(coordinator.lookup), {A0}, 0)
    carry_out(coordinator.lookup)
    assert written.partitions == {B0}
    assert coordinator.routes.queues.waiting_for_leaders == 1


def test_a_partition_that_a_topic_has_not_any_more_needs_no_marker(coordinator: Coordinator) -> None:
    # The topic was deleted and created again with fewer partitions.
    del coordinator.leaders[A0], coordinator.leaders[A1]
    written = coordinator.add(A0, A1)
    coordinator.lookup.answered(sent(coordinator.lookup), {A0}, 0)
    carry_out(coordinator.lookup)
    assert written.partitions == {A1}
    assert coordinator.routes.queues.waiting_for_leaders == 1
