"""Requests wait for a controller and for their turn, and no longer than until their deadline."""

from __future__ import annotations

import pytest

from klog.drivers.controller_requests import (
    LOOKUP_MS,
    RETRY_MS,
    ControllerRequests,
    ForController,
    ToBroker,
)
from klog.drivers.driver import FOR_A_CALL, Send, Wait
from klog.formats.errors import KlogError
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.values import BrokerRegistration
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError, RequestTimeoutError, UnsupportedApiError
from klog.protocol.messages import build, response_class

KEY = ApiKey.ALLOCATE_PRODUCER_IDS
BROKERS = {each: BrokerRegistration(each, ()) for each in (1, 2)}


def answer(error: ErrorCode = ErrorCode.NONE) -> Entity:
    values = {"producer_id_start": 0, "producer_id_len": 0, "throttle_time": 0}
    return build(response_class(KEY, 0), error_code=error, **values)


class Queue:
    """The driver; `replies` are the numbers of requests with what they were answered."""

    def __init__(self) -> None:
        self.controller_id: int | None = 1
        self.driver = ControllerRequests(
            lambda: ClusterSnapshot(brokers=BROKERS, controller_id=self.controller_id)
        )
        self.replies: list[tuple[int, Entity | KlogError]] = []

    def put(self, number: int, deadline_ms: int | None = None) -> None:
        def reply(found: Entity | KlogError) -> None:
            self.replies.append((number, found))

        self.driver.put(ForController(KEY, lambda _version: answer(), reply, deadline_ms))

    def sent(self, now_ms: int = 0) -> ToBroker:
        step = self.driver.next_step(now_ms)
        assert isinstance(step, Send)
        return step.request

    def carry_out(self) -> None:
        for effect in self.driver.take_effects():
            effect()


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_requests_are_sent_in_turn(queue: Queue) -> None:
    assert queue.driver.next_step(0) is FOR_A_CALL
    queue.put(1)
    queue.put(2)
    first = queue.sent()
    assert first.broker == BROKERS[1]
    assert queue.driver.next_step(0) is FOR_A_CALL
    queue.driver.answered(first, answer(), 0)
    queue.driver.answered(queue.sent(), answer(ErrorCode.STALE_BROKER_EPOCH), 0)
    queue.carry_out()
    assert queue.replies == [(1, answer()), (2, answer(ErrorCode.STALE_BROKER_EPOCH))]


@pytest.mark.parametrize("moved", [True, False])
def test_a_request_is_sent_again_to_the_controller_that_is_known_then(queue: Queue, moved: bool) -> None:
    queue.put(1)
    first = queue.sent()
    if moved:
        queue.driver.answered(first, answer(ErrorCode.NOT_CONTROLLER), 0)
    else:
        queue.driver.failed(first, ConnectionLostError("lost"), 0)
    assert queue.driver.next_step(0) == Wait(RETRY_MS)
    queue.controller_id = 2
    assert queue.sent(RETRY_MS).broker == BROKERS[2]
    queue.carry_out()
    assert not queue.replies


def test_only_the_first_of_several_failures_is_logged(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    queue.put(1)
    for attempt in range(3):
        queue.driver.failed(queue.sent(attempt * RETRY_MS), ConnectionLostError("lost"), attempt * RETRY_MS)
    assert caplog.text.count("is sent again") == 1
    queue.driver.answered(queue.sent(3 * RETRY_MS), answer(), 3 * RETRY_MS)
    queue.put(2)
    queue.driver.failed(queue.sent(4 * RETRY_MS), ConnectionLostError("lost"), 4 * RETRY_MS)
    assert caplog.text.count("is sent again") == 2


def test_without_a_controller_it_is_looked_up_again_until_a_deadline_is_due(queue: Queue) -> None:
    queue.controller_id = None
    queue.put(1)
    queue.put(2, deadline_ms=LOOKUP_MS // 2)
    assert queue.driver.next_step(0) == Wait(LOOKUP_MS // 2)
    assert queue.driver.next_step(LOOKUP_MS // 2) == Wait(LOOKUP_MS)
    queue.carry_out()
    ((number, error),) = queue.replies
    assert number == 2
    assert isinstance(error, RequestTimeoutError)


@pytest.mark.parametrize("error", [UnsupportedApiError("no"), RuntimeError("a defect")])
def test_what_cannot_be_sent_at_all_is_given_up(queue: Queue, error: Exception) -> None:
    queue.put(1)
    queue.put(2)
    queue.driver.failed(queue.sent(), error, 0)
    queue.driver.answered(queue.sent(), answer(), 0)
    queue.carry_out()
    assert [number for number, _ in queue.replies] == [1, 2]
    assert isinstance(queue.replies[0][1], KlogError)
