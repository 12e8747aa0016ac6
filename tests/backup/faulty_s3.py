"""moto's S3 server behind a proxy that refuses, delays and cuts what a test chooses."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.backup.moto_s3 import HOST, moto_s3, uri_of

_HEADERS_OF_ONE_HOP = ("connection", "transfer-encoding", "content-length")
_STEP_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request: it is answered with an error, or it or its answer is cut off in the middle,
    or the answer never comes, or comes in steps with pauses."""

    status: int | None = None
    code: str = ""
    cuts_request: bool = False
    cuts_answer: bool = False
    is_silent: bool = False
    pause_s: float = 0.0


SLOW_DOWN = Fault(503, "SlowDown")
INTERNAL = Fault(500, "InternalError")
DENIED = Fault(403, "AccessDenied")
CUT_UPLOAD = Fault(cuts_request=True)
CUT_DOWNLOAD = Fault(cuts_answer=True)
SILENT = Fault(is_silent=True)
SLOW = Fault(pause_s=0.02)

Choice = Callable[[str, str], Fault | None]
"""Given the method and the path with its query: what happens to the request."""


def _nothing(_method: str, _path: str) -> Fault | None:
    return None


@dataclass(slots=True)
class FaultyS3:
    """The server's bucket as a URI. `choice` may be changed at any time; `requests` are those that came."""

    uri: str
    port: int
    choice: Choice = _nothing
    requests: list[tuple[str, str]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def place(self, name: str) -> str:
        """The URI of a repository."""
        return self.uri.replace("NAME", name)


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    faulty: FaultyS3
    target: int


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        faulty = self.server.faulty
        faulty.requests.append((self.command, self.path))
        fault = faulty.choice(self.command, self.path)
        if fault is not None and fault.cuts_request and self.command == "PUT":
            self.rfile.read(_STEP_BYTES // 2)
            self._reset()
            return
        body = self._body()
        if fault is not None and fault.is_silent:
            faulty.released.wait(30)
            self._reset()
            return
        if fault is not None and fault.status is not None:
            text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>no</Message></Error>"
            self._answer(fault.status, [("Content-Type", "application/xml")], text.encode(), fault)
            return
        self._forward(body, fault or Fault())

    def _body(self) -> bytes:
        """The body, without HTTP's chunks."""
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _forward(self, body: bytes, fault: Fault) -> None:
        connection = http.client.HTTPConnection(HOST, self.server.target)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in (*_HEADERS_OF_ONE_HOP, "expect"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
            kept = [each for each in answer.getheaders() if each[0].lower() not in _HEADERS_OF_ONE_HOP]
            self._answer(answer.status, kept, data, fault, size)
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, fault: Fault, size: str | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", size or str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault.cuts_answer:
            self.wfile.write(data[: len(data) // 2])
            self._reset()
            return
        for start in range(0, len(data), _STEP_BYTES):
            self.wfile.write(data[start : start + _STEP_BYTES])
            if fault.pause_s:
                time.sleep(fault.pause_s)

    def _reset(self) -> None:
        """Close the connection as a lost one ends."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 (the names of http.server)

    def handle_one_request(self) -> None:
        with suppress(ConnectionError, ValueError):  # the client, or a fault, has closed it
            super().handle_one_request()


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """moto's server, and a proxy before it. There is a bucket `backups`."""
    with moto_s3() as port:
        proxy = _Proxy((HOST, 0), _Handler)
        own_port = proxy.server_address[1]
        proxy.faulty, proxy.target = FaultyS3(uri_of(own_port, "NAME"), own_port), port
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy.faulty
        finally:
            proxy.faulty.released.set()
            proxy.shutdown()
            proxy.server_close()
            thread.join()
