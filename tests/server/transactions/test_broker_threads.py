"""The threads that send to other brokers end in bounded time, whatever these brokers do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from klog.client.connection import ReconnectingConnection
from klog.protocol.errors import ChannelError
from klog.server.transactions.broker_threads import BrokerThreads
from tests.server.transactions.fake_brokers import FakeBroker, FakeConnection
from tests.waiting import eventually


class SlowConnection(FakeConnection):
    """Is being opened until a test lets it be; `close` cannot end that."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__(broker)
        self.opening = threading.Event()
        self.may_open = threading.Event()

    def connect(self) -> None:
        self.opening.set()
        assert self.may_open.wait(60)
        super().connect()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What klog has logged; clients that other tests left may log, too."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("klog.")]


def test_a_stop_does_not_wait_for_a_connection_that_is_being_opened(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowConnection(FakeBroker(lambda request: request))
    ended: list[BaseException] = []

    def new_work(broker_id: int, connection: ReconnectingConnection) -> Callable[[], None]:
        def work() -> None:
            try:
                connection.version_of(0)
            except ChannelError as error:
                ended.append(error)

        return work

    threads = BrokerThreads("test-sender", lambda broker_id: ReconnectingConnection(lambda: slow), new_work)
    threads.wake(2)
    assert slow.opening.wait(60)
    begun_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        threads.stop()
    assert time.monotonic() - begun_s < 30
    assert said(caplog) == ["test-sender: not waiting for broker 2, which does not answer"]
    slow.may_open.set()
    eventually(lambda: len(ended) == 1)
    assert not slow.connected, "what was opened after the stop is closed again"


def test_a_stop_says_nothing_if_all_threads_end(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    threads = BrokerThreads(
        "test-sender",
        lambda broker_id: ReconnectingConnection(lambda: FakeConnection(FakeBroker(lambda request: request))),
        lambda broker_id, connection: done.set,
    )
    threads.wake(2)
    assert done.wait(60)
    with caplog.at_level(logging.WARNING):
        threads.stop()
    assert said(caplog) == []
