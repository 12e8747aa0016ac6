"""The proxies of a test cluster hold back what is sent over a cut network, and know who connects."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from klog.testing.proxies import Node, Proxies
from tests.processes import child

SHORT_S = 0.3


@contextmanager
def connected(proxies: Proxies, source: Node | None = None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection through a proxy to node 1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = proxies.open(1, server.getsockname()[1], source)
        with socket.create_connection(("127.0.0.1", port)) as near:
            server.settimeout(60)
            far, _ = server.accept()
            with far:
                near.settimeout(60)
                far.settimeout(60)
                yield near, far


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    """This process is node 0."""
    made = Proxies(lambda: {0: os.getpid()})
    yield made
    made.close()


def arrives(to: socket.socket, text: bytes) -> bool:
    to.settimeout(60)
    return to.recv(100) == text


def is_silent(to: socket.socket) -> bool:
    to.settimeout(SHORT_S)
    try:
        to.recv(100)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("source", [None, 0], ids=["found", "named"])
def test_what_is_sent_over_a_cut_arrives_after_it_has_healed(proxies: Proxies, source: Node | None) -> None:
    with connected(proxies, source) as (near, far):
        near.sendall(b"before")
        assert arrives(far, b"before")
        proxies.cut(0, 1)
        near.sendall(b"held back")
        assert is_silent(far)
        far.sendall(b"the other way")
        assert arrives(near, b"the other way")
        proxies.heal()
        assert arrives(far, b"held back")


def test_a_cut_of_others_changes_nothing(proxies: Proxies) -> None:
    with connected(proxies) as (near, far):
        proxies.cut(2, 1)
        proxies.cut(0, 2)
        near.sendall(b"there")
        assert arrives(far, b"there")


def test_one_pair_is_healed_of_several(proxies: Proxies) -> None:
    with connected(proxies) as (near, far):
        proxies.cut(0, 1)
        proxies.cut(1, 0)
        proxies.heal([(0, 1)])
        near.sendall(b"there")
        far.sendall(b"and back")
        assert arrives(far, b"there")
        assert is_silent(near)
        proxies.heal()
        assert arrives(near, b"and back")


def test_an_end_is_not_seen_over_a_cut(proxies: Proxies) -> None:
    with connected(proxies) as (near, far):
        proxies.cut(0, 1)
        near.close()
        assert is_silent(far)
        proxies.heal()
        assert arrives(far, b"")


def test_what_was_sent_before_the_end_arrives(proxies: Proxies) -> None:
    sent = bytes(3_000_000)
    with connected(proxies) as (near, far):
        near.sendall(sent)
        near.close()
        with far.makefile("rb") as received:
            assert received.read() == sent


def test_connections_between_two_nodes_are_reset(proxies: Proxies) -> None:
    with connected(proxies) as (near, far):
        proxies.reset(1, 2)
        near.sendall(b"there")
        assert arrives(far, b"there")
        proxies.reset(1, 0)
        assert arrives(near, b"")
        assert arrives(far, b"")


def test_a_node_that_is_down_closes_the_connection(proxies: Proxies) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", proxies.open(1, port))) as near:
        assert arrives(near, b"")


def test_connections_of_two_processes_are_told_apart() -> None:
    program = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));\
 s.sendall(b'other'); sys.stdin.read()"
    with socket.create_server(("127.0.0.1", 0)) as server:
        pids: dict[Node, int] = {0: os.getpid()}
        proxies = Proxies(lambda: pids)
        port = proxies.open(1, server.getsockname()[1])
        proxies.cut(0, 1)
        with child([sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE) as process:
            pids[2] = process.pid
            server.settimeout(60)
            far, _ = server.accept()
            with far:
                assert arrives(far, b"other")
            process.stdin.close()
        proxies.close()


def bound_to(port: int) -> socket.socket:
    """A socket of a port that a closed connection may have used just before (0: a free one)."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def test_a_port_that_another_connection_used_before_belongs_to_who_uses_it(proxies: Proxies) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        with bound_to(0) as first:
            port = first.getsockname()[1]
            first.connect(other.getsockname())
            accepted, _ = other.accept()
        with accepted:
            assert accepted.recv(1) == b""  # who closed first keeps the port in TIME_WAIT
        with bound_to(port) as near:
            proxies.cut(0, 1)
            near.connect(("127.0.0.1", proxies.open(1, server.getsockname()[1])))
            server.settimeout(SHORT_S)
            with pytest.raises(TimeoutError):
                server.accept()


def test_a_connection_that_waits_is_closed_with_the_proxies(proxies: Proxies) -> None:
    port = proxies.open(1, 1, 0)
    proxies.hold(1, is_held=True)
    with socket.create_connection(("127.0.0.1", port)) as near:
        near.settimeout(60)
        # One that is accepted later shows that the proxy has begun with this one.
        with socket.create_connection(("127.0.0.1", port)):
            proxies.cut(0, 1)
        proxies.close()
        gc.collect()  # What is not closed is a warning here, which fails the test.
        assert near.recv(1) == b""
