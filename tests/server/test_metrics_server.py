"""The port of the metrics serves them over HTTP, and bad clients cause no message in the log."""

from __future__ import annotations

import errno
import os
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from klog.formats.errors import KlogError, UsageError
from klog.server.metrics import metrics_server
from klog.server.metrics.metrics_server import MetricsServer

TEXT = "up 1\n"


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
