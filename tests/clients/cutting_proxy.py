"""A TCP proxy in front of a broker that cuts connections at random points of requests and answers.

So a request may reach the broker completely, in part or not at all, and its answer may be lost. The broker
advertises the proxy's address, so that clients connect through it.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import klog.testing
from klog.testing import BrokerProcess
from tests.threads import join, started

_CHUNK_BYTES = 4096


@contextmanager
def broker_behind_proxy(seed: int, chunks: int) -> Iterator[tuple[BrokerProcess, CuttingProxy]]:
    """A broker that clients reach only through a proxy; it has a second listener for its controller."""
    with CuttingProxy(seed, chunks) as proxy:
        config = {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "advertised.listeners": f"INSIDE://127.0.0.1:0,OUTSIDE://{proxy.address}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
        with klog.testing.broker(config) as broker:
            proxy.target_port = broker.ports["OUTSIDE"]
            yield broker, proxy


class CuttingProxy:
    """Forwards to `target_port` of 127.0.0.1; cuts a connection after a random number of chunks.

    `seed` makes the numbers repeatable; `chunks` is the average number of chunks per connection. After
    `spare` it cuts no connection.
    """

    def __init__(self, seed: int, chunks: int) -> None:
        self._random = random.Random(seed)
        self._chunks = chunks
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.target_port = 0
        self.cuts = 0
        self._cutting = True
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            sockets = list(self._open)
        for each in sockets:
            _shut(each)
        join(self._threads)

    def spare(self) -> None:
        """Stop cutting connections."""
        self._cutting = False

    def _start(self, run, *args) -> None:
        self._threads.append(started(run, *args))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, broker}
            lasts = self._random.randrange(1, 2 * self._chunks)
            left = [lasts]
            pair = threading.Barrier(2)
            self._start(self._pump, client, broker, left, pair)
            self._start(self._pump, broker, client, left, pair)

    def _pump(self, source: socket.socket, sink: socket.socket, left: list[int], pair) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                left[0] -= 1
                if self._cutting and left[0] <= 0:
                    # Only half of the chunk arrives.
                    sink.sendall(data[: len(data) // 2])
                    self.cuts += 1
                    break
                sink.sendall(data)
        _shut(source)
        _shut(sink)
        pair.wait()  # close no socket that the other thread still uses
        source.close()
        with self._lock:
            self._open.discard(source)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
