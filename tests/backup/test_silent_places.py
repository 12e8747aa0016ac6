"""Object stores and brokers that accept connections and never answer: a command ends, and names them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.backup import store
from klog.backup.repository import open_repository
from klog.backup.retrying import START_S, RetryPolicy
from klog.backup.store import Store
from klog.export.outputs import FileStatus, LocalOutput
from klog.formats.errors import StorageError
from klog.replicas import remote
from tests.backup.moto_s3 import credentials, uri_of
from tests.backup.repositories import Backups
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def address() -> Iterator[str]:
    """Where connections are accepted, by the kernel, and nothing is read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent_s3(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A repository there. Each call makes one attempt, and a command one call."""
    monkeypatch.setattr(remote, "_S3_ATTEMPTS", 1)
    monkeypatch.setattr(store, "START_S", 0.0)
    with credentials():
        yield uri_of(int(address.rpartition(":")[2]))


@pytest.mark.parametrize(
    "command",
    [
        "backup run {logs} --to {place}",
        "backup list {place}",
        "restore {place} --to {logs}/new",
        "restore {place} -b {address}",
        "serve --read-only {place}",
    ],
)
def test_a_start_at_a_silent_object_store_ends(
    klog: Run, silent_s3: str, address: str, logs: Path, command: str
) -> None:
    replica(logs / "orders-0", [batch(0, 5)])
    words = [each.format(logs=logs, place=silent_s3, address=address) for each in command.split()]

    done = klog(*words)

    assert done.code == 1
    assert address in done.err
    assert "Timeout was reached" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", ["backup run --to {place}", "restore {place} --dry-run"])
def test_a_start_at_a_silent_broker_ends(
    klog: Run, address: str, backups: Backups, logs: Path, command: str
) -> None:
    replica(logs / "orders-0", [batch(0, 5)])
    backups.run(logs)
    words = command.format(place=backups.place).split()

    done = klog(*words, "-b", address, "--timeout-ms", "300")

    assert done.code == 1
    assert f"{address} did not answer in time" in done.err


def test_a_start_takes_a_minute_and_the_rest_as_long_as_the_policy_says(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", [batch(0, 5)])
    backups.run(logs)
    now_s, calls = 0.0, 0

    class Silent(LocalOutput):
        def status(self, name: str) -> FileStatus | None:
            nonlocal now_s, calls
            now_s += 20.0
            calls += 1
            raise StorageError("cannot be reached") from TimeoutError("timed out")

    policy = RetryPolicy(pause=lambda _pause_s: None, now_s=lambda: now_s)
    with pytest.raises(StorageError, match="cannot be reached"):
        open_repository(Store(Silent(str(backups.place)), policy))
    assert (now_s, calls) == (START_S, 3)
    with pytest.raises(StorageError, match="cannot be reached"):
        Store(Silent(str(backups.place)), policy).status("data/x")
    assert now_s == START_S + policy.limit_s
