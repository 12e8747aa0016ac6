"""Reads what a server answers over HTTP or HTTPS, within limits of time and size."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable
from typing import Any, Final

LARGEST_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16


def read_answer(
    request: urllib.request.Request, timeout_s: float, context: ssl.SSLContext | None = None
) -> bytes:
    """The body of the answer. Raises OSError also if the answer, headers included, is not complete in
    `timeout_s`, if its body is larger than `LARGEST_BYTES`, and if it is none of HTTP.
    """
    limit = _TimeLimit()
    opener = urllib.request.build_opener(_Http(limit), _Https(limit, context))
    timer = threading.Timer(timeout_s, limit.reached)
    timer.daemon = True
    timer.start()
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return _body(answer)
    except http.client.HTTPException as error:
        raise OSError(f"the answer is none of HTTP: {error!r}") from error
    finally:
        timer.cancel()
        if limit.is_reached:
            # Whatever was raised or read: headers that were cut off count as complete.
            raise TimeoutError(f"the answer is not complete after {timeout_s:g} s")


def _body(answer: Any) -> bytes:  # noqa: ANN401
    body = bytearray()
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > LARGEST_BYTES:
            raise OSError(f"the answer is larger than {LARGEST_BYTES} bytes")
    if answer.length:
        raise OSError("the answer ends too early")
    return bytes(body)


class _TimeLimit:
    """Ends the connections of one request. A limit for each read is none for a server that drips."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_reached = False

    def watch(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.append(sock)
            if self.is_reached:
                _end(sock)

    def reached(self) -> None:
        with self._lock:
            self.is_reached = True
            for sock in self._sockets:
                _end(sock)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Of the TCP connection: shutting down TLS would wait for the other side.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _watched(kind: type[http.client.HTTPConnection], limit: _TimeLimit) -> Callable[..., Any]:
    """The class of connections that give their sockets to the limit."""

    class Watched(kind):  # type: ignore[valid-type,misc]
        def connect(self) -> None:
            super().connect()
            limit.watch(self.sock)

    return Watched


class _Http(urllib.request.HTTPHandler):
    def __init__(self, limit: _TimeLimit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, self._limit), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, limit: _TimeLimit, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._limit, self._tls = limit, context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPSConnection, self._limit), req, context=self._tls)
