"""Measures the network layer with a handler that answers at once: `python -m benchmarks.network`.

Each case has its own server process and load processes. The modules are those of the checkout, not compiled.
Small requests are Produce requests of 100 bytes, one in flight on each of 8 connections. It prints
requests/s, the latency that one more client sees, and for large requests the server's CPU seconds per GiB.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection

from klog.server.network import Handler, Listener, NetworkSettings, Request, SocketServer

SECONDS = 4.0
ANSWER_BODY = b"\0\0\0\1\0\5topic\0\0\0\1\0\0\0\0\0\0" + bytes(24)
ANSWER_BYTES = 8 + len(ANSWER_BODY)
GIB = 1 << 30
ADDRESS = "127.0.0.1"

_context = multiprocessing.get_context("spawn")


class Answering(Handler):
    """Answers every request at once with the same bytes."""

    def may_block(self, api_key: int, api_version: int) -> bool:  # noqa: ARG002
        return False

    def handle(self, request: Request) -> None:
        request.respond([ANSWER_BODY])

    def failed(self, request: Request, fault: Exception) -> None:  # noqa: ARG002
        raise fault


def frame(records_bytes: int) -> bytes:
    """A Produce request of version 7 whose body is `records_bytes` zeros."""
    body = struct.pack(">hhih", 0, 7, 1, -1) + bytes(records_bytes)
    return struct.pack(">i", len(body)) + body


def serve(control: Connection) -> None:
    """Runs a server. Sends its port, then its CPU seconds each time it receives True; ends on False."""
    server = SocketServer([Listener("PLAINTEXT", ADDRESS, 0)], NetworkSettings(), Answering())
    server.bind()
    server.start()
    control.send(server.port("PLAINTEXT"))
    while control.recv():
        used = resource.getrusage(resource.RUSAGE_SELF)
        control.send((used.ru_utime + used.ru_stime, used.ru_maxrss))
    server.stop()


def connect(port: int) -> socket.socket:
    sock = socket.create_connection((ADDRESS, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket, size: int) -> None:
    while size:
        size -= len(sock.recv(size))


def small_load(port: int, connections: int, results: Connection) -> None:
    """Small requests, one in flight on each connection."""
    socks = [connect(port) for _ in range(connections)]
    request = frame(100)
    count = 0
    until_s = time.perf_counter() + SECONDS
    while time.perf_counter() < until_s:
        for sock in socks:
            sock.send(request)
        for sock in socks:
            receive(sock, ANSWER_BYTES)
        count += connections
    results.send(count / SECONDS)


def large_load(port: int, records_bytes: int, connections: int, results: Connection) -> None:
    """Large requests, one in flight on each connection."""
    socks = [connect(port) for _ in range(connections)]
    request = frame(records_bytes)
    count = 0
    until_s = time.perf_counter() + SECONDS
    while time.perf_counter() < until_s:
        for sock in socks:
            sock.sendall(request)
        for sock in socks:
            receive(sock, ANSWER_BYTES)
        count += connections
    results.send(count * records_bytes)


def latency_load(port: int, results: Connection) -> None:
    """One connection, a request every half millisecond: the latencies in microseconds, sorted."""
    sock = connect(port)
    request = frame(100)
    taken = []
    until_s = time.perf_counter() + SECONDS
    while time.perf_counter() < until_s:
        start_s = time.perf_counter()
        sock.send(request)
        receive(sock, ANSWER_BYTES)
        taken.append((time.perf_counter() - start_s) * 1e6)
        time.sleep(0.0005)
    results.send(sorted(taken))


@contextmanager
def process(target: Callable[..., None], *args: object) -> Iterator[Connection]:
    """Runs a child process; yields the parent's end of its pipe."""
    ours, theirs = _context.Pipe()
    child = _context.Process(target=target, args=(*args, theirs), daemon=True)
    child.start()
    try:
        yield ours
    finally:
        child.join(SECONDS + 5)


@contextmanager
def a_server() -> Iterator[tuple[int, Callable[[], tuple[float, int]]]]:
    """Runs a server; yields its port, and a function for its CPU seconds and its peak memory in KiB."""
    with process(serve) as control:
        port = control.recv()

        def used() -> tuple[float, int]:
            control.send(True)
            used_s, peak_kib = control.recv()
            return used_s, peak_kib

        yield port, used
        control.send(False)


def percentile(values: list[float], share: float) -> float:
    return values[int(len(values) * share)]


def measure_small() -> None:
    with a_server() as (port, used), process(small_load, port, 8) as load:
        before, _ = used()
        rate = load.recv()
        cpu_us = (used()[0] - before) / (rate * SECONDS) * 1e6
        print(f"small requests, 8 connections {rate:10,.0f} requests/s   {cpu_us:6.1f} us CPU each")


def measure_large(records_bytes: int, connections: int) -> None:
    with a_server() as (port, used), process(large_load, port, records_bytes, connections) as load:
        before, _ = used()
        moved = load.recv()
        cpu = (used()[0] - before) / (moved / GIB)
        rate = moved / SECONDS / GIB
        title = f"{records_bytes:,} bytes x {connections}"
        print(f"{title:28} {rate:10.2f} GiB/s   {cpu:6.2f} CPU-s/GiB")


def measure_beside(large: bool) -> None:
    with a_server() as (port, _), ExitStack() as loads:
        if large:
            stream = loads.enter_context(process(large_load, port, 1_000_000, 1))
        latencies = loads.enter_context(process(latency_load, port)).recv()
        if large:
            stream.recv()
        title = "beside a 1 MB stream" if large else "alone"
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        print(f"small request {title:22} p50 {p50:6.0f} us   p99 {p99:6.0f} us")


def measure_idle(connections: int = 1000) -> None:
    with a_server() as (port, used):
        _, before_kib = used()
        socks = [connect(port) for _ in range(connections)]
        for sock in socks:
            sock.send(frame(100))
        for sock in socks:
            receive(sock, ANSWER_BYTES)
        cpu, kib = used()
        time.sleep(SECONDS)
        cpu_after, _ = used()
        share = (cpu_after - cpu) / SECONDS * 100
        memory = (kib - before_kib) / 1024
        print(f"{connections} idle connections {memory:6.1f} MiB   {share:5.2f} % CPU")
        for sock in socks:
            sock.close()


def main() -> None:
    print(f"{os.cpu_count()} cores")
    measure_small()
    measure_large(16 * 1024, 8)
    measure_large(1_000_000, 1)
    measure_beside(large=False)
    measure_beside(large=True)
    measure_idle()


if __name__ == "__main__":
    main()
