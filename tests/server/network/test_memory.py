"""Requests beyond the memory for requests wait unread, and are served when memory is free again."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.server.network.listeners import read_listeners
from klog.server.network.memory_pool import MemoryPool
from klog.server.startup.settings import network_settings
from tests.server.network.servers import (
    CREATE_TOPICS,
    TIMEOUT_S,
    Calling,
    Client,
    Echo,
    frame,
    running,
)
from tests.waiting import eventually, never

HEADER_BYTES = 10


def test_the_last_request_may_take_more_than_is_left_and_a_refused_one_learns_when_memory_is_free():
    calls = []
    pool = MemoryPool(100, lambda: calls.append(pool.available_bytes))
    assert pool.take(60)
    assert pool.take(60)
    assert pool.available_bytes == -20
    assert not pool.take(1)
    pool.give_back(20)
    assert calls == []
    pool.give_back(40)
    pool.give_back(60)
    assert calls == [40]
    assert pool.available_bytes == 100


@pytest.mark.parametrize("size", [100, 200_000])
def test_connections_wait_in_turn_until_answers_have_freed_memory(size):
    held = []
    handler = Calling(held.append, blocking=())
    with running(handler, queued_max_request_bytes=size + 1, network_threads=2) as server:
        clients = [Client(server) for _ in range(4)]
        for client in clients:
            client.send(frame(bytes(size)))
        # With its header one request takes all the memory.
        eventually(lambda: len(held) == 1)
        never(lambda: len(held) > 1, within_s=0.1)
        assert server.memory.available_bytes == 1 - HEADER_BYTES
        for number in range(4):
            eventually(lambda number=number: len(held) == number + 1)
            held[number].respond([b"done"])
        for client in clients:
            assert client.receive() == (1, b"done")
            client.sock.close()
        eventually(lambda: server.memory.available_bytes == size + 1)


@pytest.mark.parametrize("size", [10, 100_000])
def test_requests_of_one_connection_are_served_in_order(size):
    with running(Echo(), queued_max_request_bytes=1) as server, Client(server) as client:
        client.send(frame(bytes(size), 1) + frame(b"x", 2, CREATE_TOPICS, 4) + frame(bytes(size), 3))
        assert [client.receive()[0] for _ in range(3)] == [1, 2, 3]
        eventually(lambda: server.memory.available_bytes == 1)


def test_closed_connections_return_their_memory():
    held = []
    with running(Calling(held.append), queued_max_request_bytes=1000) as server:
        with Client(server) as begun, Client(server) as asked:
            begun.send(frame(bytes(100_000))[:70_000])
            eventually(lambda: server.memory.available_bytes < 0)
            begun.sock.close()
            eventually(lambda: server.memory.available_bytes == 1000)
            asked.send(frame(b"x"))
            eventually(lambda: len(held) == 1)
            # The client resets the connection: while a request is handled the server does not read.
            asked.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: server.counts.total == 0)
        # The request is still there.
        assert server.memory.available_bytes == 1000 - HEADER_BYTES - 1
        held[0].respond([b"too late"])
        eventually(lambda: server.memory.available_bytes == 1000)
        with Client(server) as bad:
            bad.send(frame(bytes(100_000), api_key=999))
            assert bad.is_closed()
        eventually(lambda: server.memory.available_bytes == 1000)


def test_a_connection_that_waits_for_memory_does_not_delay_the_stop():
    held = []
    with (
        running(
            Calling(held.append), queued_max_request_bytes=1, stop_timeout_ms=2 * TIMEOUT_S * 1000
        ) as server,
        Client(server) as one,
        Client(server) as two,
    ):
        one.send(frame(b"x"))
        eventually(lambda: len(held) == 1)
        two.send(frame(b"y"))
        never(lambda: len(held) > 1, within_s=0.05)
        threading.Timer(0.1, held[0].respond, [[b"done"]]).start()
        started_s = time.monotonic()
        server.stop()
        assert time.monotonic() - started_s < TIMEOUT_S
        assert one.receive() == (1, b"done")
        assert two.is_closed()


def test_the_memory_must_be_enough_for_the_largest_request():
    config = BrokerConfig({"queued.max.request.bytes": "99", "socket.request.max.bytes": "100"})
    with pytest.raises(ConfigError, match=r"larger or equal to socket\.request\.max\.bytes"):
        network_settings(config, read_listeners(config))
    config = BrokerConfig({"queued.max.request.bytes": "100", "socket.request.max.bytes": "100"})
    assert network_settings(config, read_listeners(config)).queued_max_request_bytes == 100
