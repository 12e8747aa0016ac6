"""A running socket server with a handler of the test, and a minimal client for it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from klog.protocol.file_slice import BodyPart
from klog.server.network import Handler, Listener, NetworkSettings, Request, SocketServer

TLS_FILES = Path(__file__).parent / "tls"
# Only a failing test waits so long, even on a busy machine.
TIMEOUT_S = 60

PRODUCE = 0
METADATA = 3
CREATE_TOPICS = 19


class Echo(Handler):
    """Answers a request with its own body; requests of a `blocking` key go to an I/O thread."""

    def __init__(self, blocking: Sequence[int] = (CREATE_TOPICS,)) -> None:
        self.blocking = blocking
        self.on_io_thread: list[bool] = []
        self.threads: set[str] = set()

    def may_block(self, api_key: int, api_version: int) -> bool:
        return api_key in self.blocking

    def handle(self, request: Request) -> None:
        self.on_io_thread.append(request.on_io_thread)
        self.threads.add(threading.current_thread().name)
        request.respond(self.answer(request))

    def failed(self, request: Request, fault: Exception) -> None:
        raise fault

    def answer(self, request: Request) -> Sequence[BodyPart] | None:
        return [bytes(request.body)]


class Calling(Echo):
    """Lets a function answer."""

    def __init__(
        self, function: Callable[[Request], None], blocking: Sequence[int] = (CREATE_TOPICS,)
    ) -> None:
        super().__init__(blocking)
        self.function = function

    def handle(self, request: Request) -> None:
        self.function(request)


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS_FILES / "certificate.pem", TLS_FILES / "key.pem")
    return context


def client_tls(certificate: str | None = None) -> ssl.SSLContext:
    """`certificate` names the file with the client's own certificate and key."""
    context = ssl.create_default_context(cafile=str(TLS_FILES / "certificate.pem"))
    if certificate is not None:
        context.load_cert_chain(TLS_FILES / certificate)
    return context


@contextmanager
def running(
    handler,
    *,
    tls: bool = False,
    listener: Listener | None = None,
    poller_factory=None,
    clock_ms=None,
    is_cached=None,
    ip_limits=None,
    **settings,
) -> Iterator[SocketServer]:
    """A server on one listener `TEST` at a free port of 127.0.0.1."""
    listener = listener or Listener("TEST", "127.0.0.1", 0, server_tls() if tls else None)
    given = {
        "poller_factory": poller_factory,
        "clock_ms": clock_ms,
        "is_cached": is_cached,
        "ip_limits": ip_limits,
    }
    options = {name: value for name, value in given.items() if value is not None}
    server = SocketServer([listener], NetworkSettings(**settings), handler, **options)
    server.bind()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def frame(body: bytes, correlation_id: int = 1, api_key: int = PRODUCE, version: int = 7) -> bytes:
    """A request frame with a null client id, of a version without a flexible header."""
    request = struct.pack(">hhih", api_key, version, correlation_id, -1) + body
    return struct.pack(">i", len(request)) + request


class Client:
    """A blocking client that sends bytes and receives frames."""

    def __init__(self, server: SocketServer, *, tls: bool = False, listener: str = "TEST") -> None:
        self.sock = socket.create_connection(("127.0.0.1", server.port(listener)), TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.sock = client_tls().wrap_socket(self.sock, server_hostname="localhost")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.sock.close()

    def send(self, raw: bytes) -> None:
        self.sock.sendall(raw)

    def receive_bytes(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            data = self.sock.recv(min(size - len(out), 1 << 20))
            if not data:
                raise EOFError(f"closed after {len(out)} of {size} bytes")
            out += data
        return bytes(out)

    def receive(self) -> tuple[int, bytes]:
        """(correlation id, body) of the next response."""
        size, correlation_id = struct.unpack(">ii", self.receive_bytes(8))
        return correlation_id, self.receive_bytes(size - 4)

    def ask(self, body: bytes, correlation_id: int = 1, **options: int) -> bytes:
        self.send(frame(body, correlation_id, **options))
        answered, response = self.receive()
        assert answered == correlation_id
        return response

    def is_closed(self) -> bool:
        """Waits for the server to close the connection; nothing may be sent before that."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
