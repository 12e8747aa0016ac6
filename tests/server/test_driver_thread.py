"""A thread that runs a driver: it gives back answers and failures, and survives defects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.protocol.errors import ConnectionLostError
from klog.server.threads.driver_thread import DriverThread, Reply, asking
from klog.storage.log.scheduler import monotonic_ms
from tests.waiting import eventually


class Numbers(Driver[int, int]):
    """Sends numbers, one at a time; one that failed is sent again after 1 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[int] = []
        self.answers: dict[int, int] = {}
        self.failures: list[Exception] = []
        self.told: list[int] = []
        self._is_busy = False
        self._not_before_ms = 0

    def put(self, number: int) -> None:
        self.waiting.append(number)
        self.wake()

    def next_step(self, now_ms: int) -> Send[int] | Wait:
        if self._is_busy or not self.waiting:
            return FOR_A_CALL
        if now_ms < self._not_before_ms:
            return Wait(self._not_before_ms)
        self._is_busy = True
        return Send(self.waiting[0])

    def answered(self, request: int, answer: int, now_ms: int) -> None:
        self._is_busy = False
        self.waiting.remove(request)
        self.answers[request] = answer
        self._effects.append(partial(self._tell, request))

    def _tell(self, request: int) -> None:
        self.told.append(request)
        if request < 0:
            raise ZeroDivisionError

    def failed(self, request: int, error: Exception, now_ms: int) -> None:
        self._is_busy = False
        self.failures.append(error)
        self._not_before_ms = now_ms + 1


New = Callable[[Callable[[int, Reply[int]], object]], Numbers]


@pytest.fixture
def new() -> Iterator[New]:
    threads: list[DriverThread[int, int]] = []

    def make(send: Callable[[int, Reply[int]], object]) -> Numbers:
        driver = Numbers()
        threads.append(DriverThread("test-driver", driver, send, monotonic_ms, retry_s=0.001))
        threads[-1].start()
        return driver

    yield make
    for each in threads:
        each.stop()
    assert all(each.worker.join(60) for each in threads)


def test_answers_come_back_and_effects_are_carried_out_in_their_order(new: New) -> None:
    driver = new(asking(lambda number: number * 2))
    for number in (1, -2, 3):
        driver.put(number)
    eventually(lambda: driver.answers == {1: 2, -2: -4, 3: 6})
    eventually(lambda: driver.told == [1, -2, 3])


def test_an_answer_may_come_later_from_another_thread(new: New) -> None:
    replies: list[Reply[int]] = []
    driver = new(lambda _, reply: replies.append(reply))
    driver.put(1)
    driver.put(2)
    for _ in range(2):
        eventually(lambda: bool(replies))
        threading.Thread(target=replies.pop(), args=(7,)).start()
    eventually(lambda: driver.answers == {1: 7, 2: 7})


def test_a_lost_connection_and_a_defect_are_failures(new: New, caplog: pytest.LogCaptureFixture) -> None:
    errors = [ConnectionLostError("lost"), ZeroDivisionError()]

    def ask(number: int) -> int:
        if errors:
            raise errors.pop(0)
        return number

    driver = new(asking(ask))
    driver.put(1)
    eventually(lambda: driver.answers == {1: 1})
    assert [type(each) for each in driver.failures] == [ConnectionLostError, ZeroDivisionError]
    assert caplog.text.count("goes on after an unexpected error") == 1, "only the defect is one"


def test_a_defect_of_the_driver_does_not_end_the_thread(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = new(asking(lambda number: number))
    broken = threading.Event()

    def breaks(_: int) -> Send[int] | Wait:
        broken.set()
        raise ZeroDivisionError

    monkeypatch.setattr(driver, "next_step", breaks)
    driver.put(1)
    assert broken.wait(60)
    monkeypatch.undo()
    eventually(lambda: driver.answers == {1: 1})
