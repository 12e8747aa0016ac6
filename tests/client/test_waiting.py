"""A client waits for a broker that does not listen yet, and for nothing else."""

from __future__ import annotations

import pytest

from klog.client.retry import Retry, RetryPolicy
from klog.client.waiting import until_accepted
from klog.protocol.errors import ConnectFailedError, ConnectRefusedError


class World:
    """A broker that refuses so many connections, and a clock that only pauses move."""

    def __init__(self, refusals: int, error: Exception | None = None) -> None:
        self.refusals = refusals
        self.error = error or ConnectRefusedError("refused")
        self.now_s = 0.0
        self.told = 0
        self.retry = Retry(RetryPolicy(1_000, longest_pause_ms=200), lambda: self.now_s, self.pause)

    def pause(self, pause_s: float) -> None:
        self.now_s += pause_s

    def tell(self) -> None:
        self.told += 1

    def connect(self) -> str:
        if self.refusals:
            self.refusals -= 1
            raise self.error
        return "connected"


def test_refused_connections_are_tried_again_and_told_once():
    world = World(refusals=4)
    assert until_accepted(world.connect, world.retry, world.tell) == "connected"
    assert world.told == 1


def test_a_broker_that_listens_is_not_waited_for():
    world = World(refusals=0)
    assert until_accepted(world.connect, world.retry, world.tell) == "connected"
    assert (world.told, world.now_s) == (0, 0.0)


def test_the_wait_ends_with_the_error_at_the_time_limit():
    world = World(refusals=1 << 30)
    with pytest.raises(ConnectRefusedError):
        until_accepted(world.connect, world.retry, world.tell)
    assert 0.8 <= world.now_s <= 1.0


def test_other_failures_to_connect_are_raised_at_once():
    world = World(1, ConnectFailedError("no such host"))
    with pytest.raises(ConnectFailedError, match="no such host"):
        until_accepted(world.connect, world.retry, world.tell)
    assert (world.told, world.now_s) == (0, 0.0)
