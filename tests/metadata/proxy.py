"""A TCP proxy in front of a server, for example between a store and ZooKeeper, that tests can break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.threads import join, started


class Proxy:
    """Forwards 127.0.0.1:`port` to a server; 0 is any free port.

    `cut` breaks every connection, `refuse` rejects new ones, and `lose_next_reply` forwards the next request
    and breaks the connection instead of answering.
    """

    def __init__(self, server_port: int, port: int = 0) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._refusing = False
        self._armed = False
        self._requested = False
        self._start(self._accept)

    def cut(self) -> None:
        with self._lock:
            sockets, self._open = self._open, []
        for each in sockets:
            _shut(each)

    def refuse(self, refusing: bool) -> None:
        self._refusing = refusing
        if refusing:
            self.cut()

    def lose_next_reply(self) -> None:
        self._requested = False
        self._armed = True

    def close(self) -> None:
        _shut(self._listener)
        self.cut()
        join(self._threads)

    def _start(self, target: Callable[..., object], *args: object) -> None:
        self._threads.append(started(target, *args))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open += [client, server]
                self._start(self._pump, client, server, True)
                self._start(self._pump, server, client, False)

    def _pump(self, source: socket.socket, target: socket.socket, requests: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if requests and self._armed:
                    self._requested = True
                elif not requests and self._armed and self._requested:
                    self._armed = False
                    break
                target.sendall(data)
        for each in (source, target):
            _shut(each)


def _shut(each: socket.socket) -> None:
    # `shutdown` before `close` wakes a thread that waits in recv or accept.
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
