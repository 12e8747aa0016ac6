"""A connection that opens when it is needed, and again after a failure."""

from __future__ import annotations

import pytest

from klog.client.connection import HostPort, ReconnectingConnection
from klog.protocol.errors import ConnectFailedError, ConnectionLostError, RequestTimeoutError
from tests.client.fake_broker import FakeConnection

LOST = ConnectionLostError("idle for too long")


class Connections:
    """Hands out the given connections in order."""

    def __init__(self, *connections):
        self.made = list(connections)

    def __call__(self):
        return self.made.pop(0)


def test_it_connects_for_the_first_request_and_keeps_the_connection():
    only = FakeConnection(answers=["a", "b"])
    connection = ReconnectingConnection(Connections(only))
    assert only.opened == 0
    assert [connection.send("1"), connection.send("2")] == ["a", "b"]
    assert only.opened == 1


def test_a_request_that_finds_an_idle_connection_closed_is_sent_once_more():
    first, second = FakeConnection(answers=["a", LOST]), FakeConnection(answers=["b"])
    connection = ReconnectingConnection(Connections(first, second))
    connection.send("1")
    assert connection.send("2") == "b"
    assert second.sent == ["2"]


def test_a_request_that_loses_a_new_connection_is_not_sent_again():
    connection = ReconnectingConnection(Connections(FakeConnection(answers=[LOST])))
    with pytest.raises(ConnectionLostError):
        connection.send("1")


def test_a_request_without_an_answer_in_time_is_not_sent_again():
    late = RequestTimeoutError("late")
    first, second = FakeConnection(answers=["a", late]), FakeConnection(answers=["b"])
    connection = ReconnectingConnection(Connections(first, second))
    connection.send("1")
    with pytest.raises(RequestTimeoutError):
        connection.send("2")
    assert connection.send("3") == "b"


def test_a_connection_that_was_closed_from_outside_stays_closed():
    first, second = FakeConnection(answers=["a", LOST]), FakeConnection(answers=["b"])
    connection = ReconnectingConnection(Connections(first, second))
    connection.send("1")
    real_send = first.send

    def send(request, timeout_ms=None):
        connection.close()
        return real_send(request)

    first.send = send
    with pytest.raises(ConnectionLostError):
        connection.send("2")
    assert second.sent == []


def test_a_broker_that_cannot_be_reached_is_an_error():
    connection = ReconnectingConnection(Connections(FakeConnection(down=True)))
    with pytest.raises(ConnectFailedError):
        connection.send("1")


def test_addresses_of_ipv6_have_brackets():
    assert str(HostPort("::1", 9092)) == "[::1]:9092"
    assert str(HostPort("localhost", 9092)) == "localhost:9092"


def test_a_connection_that_is_closed_while_it_opens_is_not_used(monkeypatch):
    only = FakeConnection(answers=["a"])
    connection = ReconnectingConnection(Connections(only))
    connect = only.connect

    def connect_slowly():
        connection.close()  # by another thread
        connect()

    monkeypatch.setattr(only, "connect", connect_slowly)
    with pytest.raises(ConnectionLostError):
        connection.send("1")
    assert not only.sent
    assert not only.connected
