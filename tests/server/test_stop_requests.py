"""Signals that ask a broker to stop, also those that come while another one is handled."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from klog.server.startup.stop_requests import StopRequests


@pytest.fixture
def stop() -> Iterator[StopRequests]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a broker does not listen to it
    found = StopRequests()
    found.listen()
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_is_waited_for_and_a_second_one_is_urgent(stop: StopRequests) -> None:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    stop.wait()
    assert (stop.is_asked, stop.is_urgent, stop.fatal) == (True, False, None)
    signal.raise_signal(signal.SIGHUP)
    assert stop.is_urgent


def test_a_second_signal_counts_that_comes_while_the_first_is_handled(
    stop: StopRequests, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    first = iter([True])

    def interrupted(record: logging.LogRecord) -> bool:
        if next(first, False):
            signal.raise_signal(signal.SIGINT)
        return True

    monkeypatch.setattr(caplog.handler, "filter", interrupted)
    signal.raise_signal(signal.SIGTERM)
    assert (stop.is_asked, stop.is_urgent) == (True, True)
    assert {each.getMessage() for each in caplog.records} == {
        "SIGTERM: stopping",
        "SIGINT again: stopping without waiting for other brokers",
    }
    stop.wait()


def test_signals_that_come_at_any_time_never_stop_the_wait_for_good(stop: StopRequests) -> None:
    for _ in range(200):
        fresh = StopRequests()
        fresh.listen()
        both = [
            threading.Thread(target=os.kill, args=(os.getpid(), each))
            for each in (signal.SIGTERM, signal.SIGINT)
        ]
        for thread in both:
            thread.start()
        fresh.wait()
        for thread in both:
            thread.join()
        while not fresh.is_urgent:
            pass


def test_the_first_fatal_error_is_the_reason_and_is_urgent() -> None:
    stop = StopRequests()
    stop.fail("no log directory is online")
    stop.fail("another")
    stop.wait()
    assert (stop.fatal, stop.is_urgent) == ("no log directory is online", True)
