"""The system's clock is set while the broker runs. Waiting requests end in time; no connection is closed."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.messages import encode_request_header
from tests.swap.clients import Admin, Writer
from tests.swap.clocks import HOUR_S, settable
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    file = tmp_path / "clock"
    file.write_text("0")
    return file


@pytest.fixture
def klog(tmp_path: Path, clock: Path) -> Iterator[KlogBroker]:
    with KlogBroker(tmp_path, before=settable(clock)) as running:
        running.start()
        Admin(running.bootstrap).create({"t": (1, {})})
        yield running
        running.stop()


def send_fetch(sock: socket.socket, max_wait_ms: int) -> None:
    """Sends Fetch version 4 for one partition, from its log end offset."""
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, 1000, 0) + struct.pack(">ih", 1, 1) + b"t"
    body += struct.pack(">iiqi", 1, 0, 0, 1000)
    whole = encode_request_header(ApiKey.FETCH, 4, 1, "clock") + body
    sock.sendall(struct.pack(">i", len(whole)) + whole)


def is_answered(sock: socket.socket, within_s: float) -> bool:
    return bool(select.select([sock], [], [], within_s)[0])


def test_a_waiting_fetch_is_answered_in_time_if_the_clock_is_set_back(klog: KlogBroker, clock: Path) -> None:
    with socket.create_connection(("127.0.0.1", klog.port)) as sock:

        def waits() -> bool:
            # The test may also be stalled until the fetch has its answer.
            send_fetch(sock, 2000)
            return not is_answered(sock, 0.2) or not sock.recv(1000)

        eventually(waits)
        clock.write_text(str(-HOUR_S))
        assert is_answered(sock, 30)


@pytest.mark.parametrize("offset_s", [-HOUR_S, HOUR_S])
def test_a_fetch_still_waits_for_records_after_the_clock_was_set(
    klog: KlogBroker, clock: Path, offset_s: int
) -> None:
    with socket.create_connection(("127.0.0.1", klog.port)) as sock:
        send_fetch(sock, 100)
        assert is_answered(sock, 30)
        sock.recv(1000)
        clock.write_text(str(offset_s))
        send_fetch(sock, 60_000)
        assert not is_answered(sock, 0.3)
        writer = Writer(klog.bootstrap, {})
        writer.write("t", b"here")
        writer.finish()
        assert is_answered(sock, 30)


def test_connections_are_not_closed_as_idle_if_the_clock_is_set_forward(
    klog: KlogBroker, clock: Path
) -> None:
    with socket.create_connection(("127.0.0.1", klog.port)) as sock:
        send_fetch(sock, 100)
        assert is_answered(sock, 30)
        sock.recv(1000)
        clock.write_text(str(24 * HOUR_S))
        # The network thread looks for idle connections once a second.
        assert not is_answered(sock, 1.5)
        send_fetch(sock, 100)
        assert is_answered(sock, 30)
        assert sock.recv(4)
