"""The HTTP endpoint that Prometheus scrapes: `/metrics` on 127.0.0.1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from klog.formats.errors import UsageError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves what `text` gives, piece by piece, until `stop`. Raises `UsageError` where the port is taken."""

    def __init__(self, port: int, text: Callable[[], Iterable[str]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(HTTPStatus.NOT_FOUND, "look at /metrics")
                    return
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.end_headers()
                # Whoever asked may be gone before the end: no news either.
                with suppress(ConnectionError):
                    for piece in text():
                        self.wfile.write(piece.encode())

            def log_message(self, *_: object) -> None:
                """Scrapes are not news."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise UsageError(f"cannot serve metrics on port {port}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="klog-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
