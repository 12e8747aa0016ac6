"""moto's S3 server with faults in front of it, as those of a real store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.backup.moto_s3 import HOST, create_bucket, credentials, uri_of
from tests.threads import join, started

_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class FaultyS3:
    """What happens to reads of objects: every `busy_every`-th is answered by 503, `cut` answers break off in
    the middle, and while the store `hangs` none is answered.
    """

    def __init__(self, store: Callable[..., Iterable[bytes]]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._reads = 0
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.busy_every = 0
        self.cut = 0
        self.uri = ""

    def hang(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET" or "/data/" not in environ["PATH_INFO"]:
            return self._store(environ, start_response)
        self._goes_on.wait(60)
        with self._lock:
            self._reads += 1
            is_busy = self.busy_every and self._reads % self.busy_every == 0
            is_cut, self.cut = self.cut > 0, max(0, self.cut - 1)
        if is_busy:
            start_response("503 Slow Down", [("Content-Length", str(len(_BUSY)))])
            return [_BUSY]
        answer = self._store(environ, start_response)
        return _first_half(answer) if is_cut else answer


def _first_half(answer: Iterable[bytes]) -> Iterator[bytes]:
    data = b"".join(answer)
    yield data[: len(data) // 2]
    raise ConnectionResetError("the store loses the connection")


@contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """A server with an empty bucket, and the credentials for it in the environment."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: object) -> None:
            """Nothing."""

    faults = FaultyS3(DomainDispatcherApplication(create_backend_app))
    server = make_server(HOST, 0, faults, threaded=True, request_handler=Quiet)
    thread = started(server.serve_forever)
    try:
        with credentials():
            create_bucket(server.server_port)
            faults.uri = uri_of(server.server_port)
            yield faults
    finally:
        faults.go_on()
        server.shutdown()
        join([thread])
        server.server_close()
