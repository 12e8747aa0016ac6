"""Steps of the controller's requests to one broker: in order, each until it is answered."""

from __future__ import annotations

import pytest

from klog.controller.events import ResponseReceived
from klog.drivers.control_requests import RETRY_BACKOFF_MS, ControlDriver, QueuedRequest
from klog.drivers.driver import FOR_A_CALL, Send, Wait
from klog.metadata.control_requests import ControlRequest, ControlResponse
from klog.protocol.errors import ConnectionLostError
from tests.control_requests import update_metadata

LOST = ConnectionLostError("lost")


class Queue:
    """The requests to broker 3."""

    def __init__(self) -> None:
        self.responses: list[ResponseReceived] = []
        self.taken: list[QueuedRequest] = []
        self.wakes = 0
        self.driver = ControlDriver(3, self.responses.append, self.taken.append)
        self.driver.wake = self._woken

    def _woken(self) -> None:
        self.wakes += 1

    def sent(self, now_ms: int = 0) -> QueuedRequest:
        step = self.driver.next_step(now_ms)
        assert isinstance(step, Send), step
        return step.request

    def carry_out(self) -> None:
        for effect in self.driver.take_effects():
            effect()


@pytest.fixture
def queue() -> Queue:
    return Queue()


def request(number: int) -> ControlRequest:
    return update_metadata({}, {}, [], broker_epoch=number)


def test_requests_are_sent_one_at_a_time_in_their_order(queue: Queue) -> None:
    assert queue.driver.next_step(0) == FOR_A_CALL
    for number in (1, 2):
        queue.driver.put(request(number))
    assert queue.wakes == 2
    first = queue.sent()
    assert first.request == request(1)
    assert queue.driver.next_step(0) == FOR_A_CALL
    assert queue.driver.queued == 1
    queue.driver.answered(first, ControlResponse(), 0)
    queue.carry_out()
    assert queue.responses == [ResponseReceived(3, request(1), ControlResponse())]
    assert queue.sent().request == request(2)


def test_a_request_is_sent_again_after_the_back_off(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.driver.put(request(1))
    queue.driver.put(request(2))
    queue.driver.failed(queue.sent(), LOST, 70)
    assert queue.driver.next_step(70) == Wait(70 + RETRY_BACKOFF_MS)
    again = queue.sent(70 + RETRY_BACKOFF_MS)
    assert again.request == request(1)
    queue.driver.failed(again, LOST, 200)
    queue.carry_out()
    assert caplog.text.count("is sent again") == 1, "only the first failure is logged"
    assert len(queue.taken) == 1


def test_an_answer_to_a_request_that_was_answered_has_no_effect(queue: Queue) -> None:
    queue.driver.put(request(1))
    first = queue.sent()
    queue.driver.answered(first, ControlResponse(), 0)
    queue.driver.put(request(2))
    second = queue.sent()
    queue.driver.answered(first, ControlResponse(), 0)
    queue.carry_out()
    assert len(queue.responses) == 1
    queue.driver.answered(second, ControlResponse(), 0)
    queue.carry_out()
    assert len(queue.responses) == 2
