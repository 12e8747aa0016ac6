"""`klog serve` says that it waits for ZooKeeper, and stops at once meanwhile."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.metadata.errors import ConnectionLossError, WaitCancelledError
from klog.metadata.zookeeper import ZooKeeperStore
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_what_it_waits_for_and_stops_at_once(tmp_path: Path, silent: str, number: int) -> None:
    connect = {"zookeeper.connect": silent, "zookeeper.connection.timeout.ms": 600_000}
    with KlogBroker(tmp_path / "klog", connect) as klog:
        klog.spawn()
        # Every 3 s, and later where the machine is busy.
        said = rf"waiting for ZooKeeper at {silent}, which has not answered for (\d+) s \(at most 600 s\)"
        eventually(lambda: len(re.findall(said, klog.log_text)) >= 2)
        first, second = map(int, re.findall(said, klog.log_text)[:2])
        assert 3 <= first <= second
        assert second >= 6
        klog.stop(number)
        assert "Traceback" not in klog.log_text
        assert not (tmp_path / "klog" / "logs" / "meta.properties").exists()
        # The directory is free again.
        klog.spawn(zookeeper_connection_timeout_ms=500)
        assert klog.ended() == 1
        assert f"no ZooKeeper server of {silent} answered within 500 ms" in klog.log_text


def test_a_store_that_is_not_reached_is_given_up(silent: str) -> None:
    with pytest.raises(ConnectionLossError, match="answered within 200 ms"):
        ZooKeeperStore(silent, connect_timeout_ms=200)
    with pytest.raises(WaitCancelledError, match="stopped while no ZooKeeper server"):
        ZooKeeperStore(silent, connect_timeout_ms=600_000, is_stopping=lambda: True)


def test_attempts_that_are_refused_are_not_warned_of_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionLossError, match="answered within 300 ms"):
        ZooKeeperStore("127.0.0.1:1", connect_timeout_ms=300)
    assert not [record for record in caplog.records if record.name.startswith("kazoo")]


def test_a_server_that_neglects_a_connection_is_connected_to_again() -> None:
    """ZooKeeper accepts connections while it starts, and does not answer all of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionLossError):
            ZooKeeperStore(address, session_timeout_ms=6000, connect_timeout_ms=5000)
        for _ in range(2):
            server.accept()[0].close()
