"""`klog serve` says that it waits for ZooKeeper, and stops at once meanwhile."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.metadata.errors import ConnectionLossError, WaitCancelledError
from klog.metadata.zookeeper import ZooKeeperStore
from tests.swap.klog_process import KlogBroker


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
        klog.wait_for(f"waiting for ZooKeeper at {silent}, which has not answered for 3 s")
        klog.wait_for("has not answered for 6 s (at most 600 s)")
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
