"""Threads of the listener between brokers go before those of other listeners."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from itertools import chain

import pytest

from klog.server.network import Listener, NetworkSettings, SocketServer
from klog.server.network.precedence import GivingWay, Precedence, Turns
from tests.server.network.servers import TIMEOUT_S, Calling, Client, frame
from tests.threads import join, started
from tests.waiting import eventually

CLIENTS = Listener("TEST", "127.0.0.1", 0)
BROKERS = Listener("BROKERS", "127.0.0.1", 0)
LONG_MS = 1000 * TIMEOUT_S
EVENTS = [(number, 1) for number in range(20)]


class Thread:
    """A thread that goes first: its poller, and something that makes that ready."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self._reader, self._writer = os.pipe()
        self.epoll.register(self._reader, select.EPOLLIN)
        self.turns = Turns(self.epoll.fileno())

    def make_ready(self) -> None:
        os.write(self._writer, b"x")

    def take_turn(self) -> None:
        os.read(self._reader, 1)
        self.turns.end()

    def close(self) -> None:
        self.epoll.close()
        os.close(self._reader)
        os.close(self._writer)


@pytest.fixture
def first() -> Iterator[Thread]:
    thread = Thread()
    yield thread
    thread.close()


def test_all_events_are_handled_in_order_and_a_few_at_a_time(first):
    precedence, handled = Precedence(), []
    giving_way = GivingWay(precedence, 0.0)
    giving_way.serve(EVENTS, handled.append)
    assert handled == [EVENTS]
    handled.clear()
    precedence.first = (first.turns,)
    giving_way.serve(EVENTS, handled.append)
    assert [len(some) for some in handled] == [8, 8, 4]
    assert list(chain.from_iterable(handled)) == EVENTS


def test_a_thread_waits_for_the_end_of_a_turn_that_is_due(first):
    precedence, handled = Precedence(), []
    precedence.first = (first.turns,)
    first.make_ready()
    other = started(GivingWay(precedence, TIMEOUT_S).serve, EVENTS, handled.append)
    eventually(lambda: first.turns._waiting)
    assert not handled
    first.take_turn()
    join([other])
    assert list(chain.from_iterable(handled)) == EVENTS


def test_it_waits_no_longer_than_it_may_if_the_turn_does_not_end(first):
    precedence, handled = Precedence(), []
    precedence.first = (first.turns,)
    first.make_ready()
    begin_s = time.monotonic()
    GivingWay(precedence, 0.02).serve(EVENTS, handled.append)
    assert list(chain.from_iterable(handled)) == EVENTS
    assert time.monotonic() - begin_s >= 0.02


def test_a_turn_that_has_ended_meanwhile_is_not_waited_for(first):
    seen = first.turns.ended
    first.turns.end()
    begin_s = time.monotonic()
    first.turns.await_end(seen, TIMEOUT_S)
    assert time.monotonic() - begin_s < TIMEOUT_S


def test_other_threads_that_go_first_replace_those_before(first):
    precedence, handled = Precedence(), []
    gone = Thread()
    giving_way = GivingWay(precedence, 0.0)
    precedence.first = (gone.turns,)
    giving_way.serve(EVENTS, handled.append)
    gone.close()
    precedence.first = (first.turns,)
    giving_way.serve(EVENTS, handled.append)
    assert giving_way._poll.poll(0) == []


@pytest.mark.parametrize("protected", ["BROKERS", None])
def test_a_request_of_a_broker_is_answered_before_those_of_clients_that_came_earlier(protected):
    """All clients have asked before the network thread looks at the first of them."""
    order, looking, asked = [], threading.Event(), threading.Event()

    def handle(request):
        order.append(request.listener)
        if len(order) == 1:
            looking.set()
            assert asked.wait(TIMEOUT_S)
        request.respond([b"x"])

    settings = NetworkSettings(protected_listener=protected, give_way_most_ms=LONG_MS)
    server = SocketServer([CLIENTS, BROKERS], settings, Calling(handle))
    server.bind()
    server.start()
    clients = [Client(server) for _ in range(61)]
    with Client(server, listener="BROKERS") as broker:
        eventually(lambda: server.counts.total == 62)
        clients[0].send(frame(b"first"))
        assert looking.wait(TIMEOUT_S)
        for client in clients[1:]:
            client.send(frame(b"x"))
        broker.send(frame(b"x"))
        asked.set()
        for client in (*clients, broker):
            assert client.receive() == (1, b"x")
            client.sock.close()
    server.stop()
    if protected:
        # The one that is being served, and those that are served before the next look.
        assert order.index("BROKERS") <= 9
