"""A server takes other listeners, threads and limits while clients are connected."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from klog.formats.errors import UsageError
from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.usage import QuotaWindows
from klog.server.network import BindError, Listener, ListenerLimits, NetworkSettings, SocketServer
from klog.server.network.connection_limits import ConnectionCounts
from tests.server.network.servers import (
    CREATE_TOPICS,
    TIMEOUT_S,
    Calling,
    Client,
    Echo,
    client_tls,
    frame,
    running,
    server_tls,
)
from tests.waiting import eventually

TEST = Listener("TEST", "127.0.0.1", 0)
OUTER = Listener("OUTER", "127.0.0.1", 0)


def threads_named(prefix: str) -> set[threading.Thread]:
    """Also those of other tests' servers, which may still be ending."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(prefix)}


def test_more_and_fewer_io_threads_serve_and_end():
    before = threads_named("klog-io-")
    with running(Echo(), io_threads=2) as server, Client(server) as client:
        for count in (4, 1, 3):
            server.reconfigure([TEST], NetworkSettings(io_threads=count))
            eventually(lambda count=count: len(threads_named("klog-io-") - before) == count)
            assert server.thread_counts == (1, count)
            assert client.ask(b"x", api_key=CREATE_TOPICS, version=4) == b"x"
            assert client.ask(bytes(200_000)) == bytes(200_000)
    assert threads_named("klog-io-") <= before


def test_a_network_thread_that_ends_sends_its_answers_and_closes_its_connections():
    held = []
    before = threads_named("klog-network-")
    with running(Calling(held.append), network_threads=2) as server:
        clients = [Client(server) for _ in range(4)]
        for client in clients:
            client.send(frame(b"x"))
        eventually(lambda: len(held) == 4)
        server.reconfigure([TEST], NetworkSettings(network_threads=1))
        assert server.thread_counts == (1, 2)
        for request in held:
            request.respond([b"answer"])
        for client in clients:
            assert client.receive() == (1, b"answer")
        eventually(lambda: server.counts.total == 2)
        eventually(lambda: len(threads_named("klog-network-") - before) == 1)
        with Client(server) as new:
            new.send(frame(b"y"))
            eventually(lambda: len(held) == 5)
            held[4].respond([b"answer"])
            assert new.receive() == (1, b"answer")
        for client in clients:
            client.sock.close()


def test_more_network_threads_take_their_turn():
    handler = Echo()
    with running(handler) as server:
        server.reconfigure([TEST], NetworkSettings(network_threads=3))
        for _ in range(3):
            with Client(server) as client:
                assert client.ask(b"x") == b"x"
    assert len(handler.threads) == 3


def test_each_listener_has_its_own_number_of_network_threads():
    handler = Echo()
    settings = NetworkSettings(network_threads=2, listener_network_threads={"OUTER": 3})
    with running(handler, network_threads=2) as server:
        server.reconfigure([TEST, OUTER], settings)
        assert server.thread_counts == (5, 2)
        for name, count in (("TEST", 2), ("OUTER", 3)):
            handler.threads.clear()
            for _ in range(6):
                with Client(server, listener=name) as client:
                    assert client.ask(b"x") == b"x"
            assert len(handler.threads) == count
        server.reconfigure([TEST, OUTER], NetworkSettings(network_threads=1))
        assert server.thread_counts == (2, 2)
        server.reconfigure([OUTER], NetworkSettings(network_threads=1))
        assert server.thread_counts == (1, 2)
        with Client(server, listener="OUTER") as client:
            assert client.ask(b"x") == b"x"


@pytest.mark.parametrize("added_later", [False, True])
def test_a_listener_is_served_while_all_network_threads_of_another_are_busy(added_later):
    going, done = threading.Event(), threading.Event()

    def handle(request):
        if request.listener == "TEST":
            going.set()
            assert done.wait(TIMEOUT_S)
        request.respond([bytes(request.body)])

    server = SocketServer([TEST] if added_later else [TEST, OUTER], NetworkSettings(), Calling(handle))
    server.bind()
    server.start()
    if added_later:
        server.reconfigure([TEST, OUTER], NetworkSettings())
    with Client(server) as held, Client(server, listener="OUTER") as client:
        held.send(frame(b"held"))
        assert going.wait(TIMEOUT_S)
        assert client.ask(b"x") == b"x"
        with Client(server, listener="OUTER") as new:
            assert new.ask(b"y") == b"y"
        done.set()
        assert held.receive() == (1, b"held")
    server.stop()


def test_a_listener_that_moves_to_another_port_keeps_its_connections():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(Echo()) as server, Client(server) as old:
        assert old.ask(b"x") == b"x"
        old_port = server.port("TEST")
        server.reconfigure([Listener("TEST", "127.0.0.1", port)], NetworkSettings())
        assert server.port("TEST") == port != old_port
        assert old.ask(b"still here") == b"still here"
        with Client(server) as new:
            assert new.ask(b"x") == b"x"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", old_port), TIMEOUT_S)


def test_a_listener_is_added_and_removed_and_the_others_serve_on():
    with running(Echo()) as server, Client(server) as old:
        port = server.port("TEST")
        server.reconfigure([TEST, OUTER], NetworkSettings())
        assert server.port("TEST") == port
        with Client(server, listener="OUTER") as outer:
            assert outer.ask(b"new") == b"new"
            outer_port = server.port("OUTER")
            server.reconfigure([TEST], NetworkSettings())
            assert outer.is_closed()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", outer_port), TIMEOUT_S)
        with pytest.raises(UsageError):
            server.port("OUTER")
        assert old.ask(b"still here") == b"still here"
        eventually(lambda: server.counts.total == 1)


def test_a_connection_that_an_io_thread_has_is_closed_with_its_listener():
    going, done = threading.Event(), threading.Event()

    def handle(request):
        if request.listener == "OUTER":
            going.set()
            assert done.wait(TIMEOUT_S)
        request.respond([bytes(request.body)])

    with running(Calling(handle), io_threads=1) as server, Client(server) as other:
        server.reconfigure([TEST, OUTER], NetworkSettings(io_threads=1))
        with Client(server, listener="OUTER") as client:
            client.send(frame(b"x", api_key=CREATE_TOPICS, version=4))
            assert going.wait(TIMEOUT_S)
            server.reconfigure([TEST], NetworkSettings(io_threads=1))
            assert client.is_closed()
            done.set()
            eventually(lambda: server.counts.total == 1)
        assert other.ask(b"x", api_key=CREATE_TOPICS, version=4) == b"x"


def test_nothing_changes_if_an_address_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken, running(Echo(), io_threads=1) as server:
        taken_port = taken.getsockname()[1]
        wanted = [OUTER, Listener("TAKEN", "127.0.0.1", taken_port)]
        with pytest.raises(BindError, match="TAKEN"):
            server.reconfigure(wanted, NetworkSettings(io_threads=2, max_connections=0))
        assert server.thread_counts == (1, 1)
        with pytest.raises(UsageError):
            server.port("OUTER")
        with Client(server) as client:
            assert client.ask(b"x") == b"x"


def test_a_new_tls_context_is_for_new_connections():
    with running(Echo(), tls=True) as server, Client(server, tls=True) as old:
        assert old.ask(b"x") == b"x"
        strict = server_tls()
        strict.set_alpn_protocols(["new"])
        server.reconfigure([Listener("TEST", "127.0.0.1", 0, strict)], NetworkSettings())
        context = client_tls()
        context.set_alpn_protocols(["new"])
        raw = socket.create_connection(("127.0.0.1", server.port("TEST")), TIMEOUT_S)
        with context.wrap_socket(raw, server_hostname="localhost") as new:
            assert new.selected_alpn_protocol() == "new"
        assert old.ask(b"still here") == b"still here"


def test_connections_beyond_a_lower_limit_are_closed_the_longest_unused_first():
    with running(Echo()) as server:
        clients = [Client(server) for _ in range(3)]
        for client in clients:
            client.ask(b"x")
            time.sleep(0.005)
        clients[0].ask(b"x")
        server.reconfigure([TEST], NetworkSettings(max_connections=2))
        assert clients[1].is_closed()
        eventually(lambda: server.counts.total == 2)
        assert clients[0].ask(b"x") == clients[2].ask(b"x") == b"x"
        for client in clients:
            client.sock.close()


def test_a_higher_limit_accepts_a_waiting_connection():
    with running(Echo(), max_connections=1) as server, Client(server) as one:
        assert one.ask(b"x") == b"x"
        with Client(server) as two:
            two.send(frame(b"waited"))
            time.sleep(0.05)
            assert server.counts.total == 1
            server.reconfigure([TEST], NetworkSettings(max_connections=2))
            assert two.receive() == (1, b"waited")


def test_a_connection_that_another_listener_was_faster_than_waits_until_there_is_room(monkeypatch):
    with running(Echo(), max_connections=1) as server, Client(server) as one:
        assert one.ask(b"x") == b"x"
        server.reconfigure([TEST, OUTER], NetworkSettings(max_connections=1))
        counts = server.counts
        too_early, sees = [True], counts.may_accept

        def looks_too_early(listener):
            """The place that was still free when the acceptor looked is taken when it counts."""
            is_counting = counts._lock.locked()
            return too_early.pop() if too_early and not is_counting else sees(listener)

        monkeypatch.setattr(counts, "may_accept", looks_too_early)
        with Client(server, listener="OUTER") as two:
            two.send(frame(b"waited"))
            eventually(lambda: not too_early)
            time.sleep(0.05)
            assert server.counts.total == 1
            one.sock.close()
            assert two.receive() == (1, b"waited")
            assert server.counts.total == 1


def test_a_listener_has_its_own_limit_and_the_protected_one_only_that():
    settings = NetworkSettings(
        max_connections=1, protected_listener="OUTER", listener_limits={"OUTER": ListenerLimits(2)}
    )
    with running(Echo()) as server, Client(server) as client:
        assert client.ask(b"x") == b"x"
        server.reconfigure([TEST, OUTER], settings)
        outer = [Client(server, listener="OUTER") for _ in range(3)]
        for each in outer[:2]:
            assert each.ask(b"x") == b"x"
        # Three connections exceed the limit of one, and only this one is not protected.
        assert client.is_closed()
        outer[2].send(frame(b"waited"))
        time.sleep(0.05)
        assert server.counts.total == 2
        outer[0].sock.close()
        assert outer[2].receive() == (1, b"waited")
        for each in outer:
            each.sock.close()


def test_connections_beyond_the_rate_are_accepted_later():
    settings = NetworkSettings(max_connection_creation_rate=10, rate_samples=2, rate_window_ms=200)
    with running(Echo()) as server:
        server.reconfigure([TEST], settings)
        started_s = time.monotonic()
        clients = [Client(server) for _ in range(4)]
        assert clients[1].ask(b"x") == b"x"
        for client in clients:
            assert client.ask(b"x") == b"x"
            client.sock.close()
        assert time.monotonic() - started_s > 0.2


def test_the_protected_listener_does_not_count_in_the_brokers_rate():
    settings = NetworkSettings(
        max_connection_creation_rate=1, rate_samples=2, rate_window_ms=1000, protected_listener="A"
    )
    counts = ConnectionCounts(settings, lambda: 0)
    counts.reconfigure(settings, ["A", "B"])
    assert [counts.charge("A") for _ in range(3)] == [0, 0, 0]
    assert [counts.charge("B") for _ in range(2)] == [0, 1000]
    assert counts.rates() == (2.0, {"A": 3.0, "B": 2.0})
    counts.reconfigure(settings, ["A"])
    assert counts.charge("A") == 1000


def test_the_average_of_the_throttle_times_is_that_of_the_connections_that_waited():
    now_ms = 0
    settings = NetworkSettings(max_connection_creation_rate=1, rate_samples=2, rate_window_ms=1000)
    addresses = IpLimits(QuotaWindows(2, 1000), str)
    addresses.set_limit("127.0.0.1", 1)
    counts = ConnectionCounts(settings, lambda: now_ms, addresses)
    counts.reconfigure(settings, ["A", "B"])
    delays_ms = [counts.charge("A") for _ in range(3)]
    waited_ms = [each for each in delays_ms if each]
    held_ms = [held for _ in range(4) if (held := counts.charge_address("B", "127.0.0.1"))]
    assert waited_ms
    assert held_ms
    by_rate, by_address = counts.throttle_times_ms()
    assert by_rate == {"A": sum(waited_ms) / len(waited_ms), "B": 0.0}
    assert by_address == {"A": 0.0, "B": sum(held_ms) / len(held_ms)}
    now_ms = 90_000
    assert counts.throttle_times_ms() == ({"A": 0.0, "B": 0.0}, {"A": 0.0, "B": 0.0})


def test_after_the_stop_nothing_is_changed():
    with running(Echo()) as server:
        pass
    server.reconfigure([TEST, OUTER], NetworkSettings(io_threads=3))
    assert server.thread_counts == (0, 2)
    with pytest.raises(UsageError):
        server.port("OUTER")
