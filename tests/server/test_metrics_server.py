"""The port of the metrics serves them over HTTP, and bad clients cause no message in the log."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from klog.formats.errors import KlogError, UsageError
from klog.server.metrics import metrics_server
from klog.server.metrics.metrics_server import MetricsServer
from tests.waiting import eventually

TEXT = "up 1\n"
CONNECTIONS = 2000


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    running = MetricsServer(0, lambda: [TEXT])
    yield running
    running.stop()


def scrape(server: MetricsServer, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read(), "utf-8")


def test_metrics_are_served_over_http_and_nothing_else_is(server: MetricsServer) -> None:
    assert scrape(server) == TEXT
    with pytest.raises(urllib.error.HTTPError, match="404") as missing:
        scrape(server, "/")
    missing.value.close()


def test_a_port_in_use_is_an_error_but_no_wrong_usage(server: MetricsServer) -> None:
    with pytest.raises(KlogError, match="metrics") as raised:
        MetricsServer(server.port, lambda: ())
    assert not isinstance(raised.value, UsageError)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"GET /metrics HTTP/1.1\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/9\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\xc8\x01" + bytes(60),
        b"\xff\xfe \xff\r\n\r\n",
    ],
)
def test_bad_requests_and_lost_connections_are_not_logged(
    server: MetricsServer, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(request_bytes)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert scrape(server) == TEXT
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/metrics/../../etc/passwd", "/%2e%2e/metrics", "/metrics%00"])
def test_no_other_path_leads_anywhere(server: MetricsServer, path: str) -> None:
    answer = asked(server, f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
    assert answer.split(b" ", 2)[1] == b"404"
    assert b"passwd" not in answer


@pytest.mark.parametrize("host", [b"evil.example", b"<script>", b"\xff" * 100, b"127.0.0.1:1\r\nHost: again"])
def test_the_host_that_a_client_names_does_not_come_back(server: MetricsServer, host: bytes) -> None:
    answer = asked(server, b"GET /metrics HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert answer.endswith(TEXT.encode())
    assert host not in answer


@pytest.mark.parametrize("headers", [b"A: " + b"x" * 70_000 + b"\r\n", b"A: x\r\n" * 200])
def test_too_many_headers_are_refused(server: MetricsServer, headers: bytes) -> None:
    answer = asked(server, b"GET /metrics HTTP/1.1\r\n" + headers + b"\r\n")
    assert answer.split(b" ", 2)[1] in (b"", b"431")
    assert scrape(server) == TEXT


def asked(server: MetricsServer, request: bytes) -> bytes:
    """All that the server answers to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := sock.recv(1 << 16):
                answer += piece
        return answer


def test_thousands_of_connections_that_ask_nothing_keep_no_thread_and_nobody_from_scraping(
    server: MetricsServer,
) -> None:
    before = threading.active_count()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    waiting = []
    try:
        address = ("127.0.0.1", server.port)
        waiting += (
            socket.create_connection(address, timeout=60) for _ in range(min(CONNECTIONS, hard // 2 - 100))
        )
        assert scrape(server) == TEXT
        eventually(lambda: threading.active_count() - before <= metrics_server._MOST_CONNECTIONS + 1)
    finally:
        for sock in waiting:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: threading.active_count() <= before)


def test_a_connection_without_a_request_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_TIMEOUT_S", 0.05)
    server = MetricsServer(0, lambda: [TEXT])
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        assert sock.recv(1) == b""
    server.stop()


def test_the_server_waits_before_it_accepts_again_without_descriptors(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = metrics_server.ThreadingHTTPServer.get_request
    refusals = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]
    pauses: list[float] = []

    def refused_once(self: metrics_server.ThreadingHTTPServer) -> tuple[socket.socket, tuple[str, int]]:
        if refusals:
            raise refusals.pop()
        return accept(self)

    monkeypatch.setattr(metrics_server.ThreadingHTTPServer, "get_request", refused_once)
    monkeypatch.setattr(metrics_server.time, "sleep", pauses.append)
    assert scrape(server) == TEXT
    assert len(pauses) == 1
