"""The HTTP endpoint `/metrics` on 127.0.0.1, from which Prometheus scrapes."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from klog.formats.errors import KlogError

_Request = socket.socket | tuple[bytes, socket.socket]
_Address = tuple[str, int] | str

_log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# How long to wait for a client, and after a connection that could not be accepted.
_TIMEOUT_S: Final = 10
_ACCEPT_BACKOFF_S: Final = 0.2
_MOST_CONNECTIONS: Final = 64


class _HttpServer(ThreadingHTTPServer):
    """A thread for each connection. Beyond the most, the oldest is closed: clients that do not go on must not
    keep descriptors from the logs, or others from scraping.
    """

    request_queue_size = 128  # connections that wait to be accepted

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._lock = threading.Lock()
        self._open: dict[_Request, None] = {}  # in the order in which they came

    def process_request(self, request: _Request, client_address: _Address) -> None:
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > _MOST_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
                if isinstance(oldest, socket.socket):
                    with contextlib.suppress(OSError):
                        oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: _Request) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        try:
            return super().get_request()
        except OSError:
            # Most likely no file descriptor is left. The connection still waits, so that accepting it again
            # at once would fail in a busy loop.
            time.sleep(_ACCEPT_BACKOFF_S)
            raise

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        error = sys.exception()
        # A client may close the connection at any time; that is not worth a line.
        if error is not None and not isinstance(error, OSError):
            _log.error("the metrics could not be sent", exc_info=error)


class MetricsServer:
    """Serves the pieces of `text` until `stop`. Raises `KlogError` if the port is in use."""

    def __init__(self, port: int, text: Callable[[], Iterable[str]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_S

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(HTTPStatus.NOT_FOUND, "look at /metrics")
                    return
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.end_headers()
                for piece in text():
                    self.wfile.write(piece.encode())

            def log_message(self, *_: object) -> None:
                """Scrapes are not logged."""

        try:
            self._server = _HttpServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise KlogError(
                f"cannot serve metrics on port {port}: {error.strerror}",
                cure="choose another port with --metrics-port, or stop what uses it",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="klog-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
