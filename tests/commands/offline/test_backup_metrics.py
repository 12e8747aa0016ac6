"""What `klog backup run` tells Prometheus."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from klog.backup.reading import open_backups
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica, write_segment

_PAGE = Path(__file__).parents[3] / "docs" / "backup.md"


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    replica(tmp_path / "logs" / "orders-0", [batch(5 * each, 5) for each in range(8)])
    replica(tmp_path / "logs" / "payments-0", [batch(5 * each, 5) for each in range(4)])
    return tmp_path / "logs"


def values(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("klog_backup_"): float(value) for name, _, value in lines}


def test_a_run_writes_what_it_has_done(klog: Run, logs: Path, tmp_path: Path) -> None:
    file = tmp_path / "klog.prom"
    assert klog("backup", "run", logs, "--to", tmp_path / "r", "--metrics-file", file, "-q").code == 0

    manifest = open_backups(str(tmp_path / "r")).newest()
    assert manifest is not None
    found = values(file.read_text())
    assert found["newest_restorable_timestamp_seconds"] == manifest.begin_ms / 1000
    assert found["oldest_partition_timestamp_seconds"] >= manifest.begin_ms / 1000
    assert (found["partitions"], found["damaged_partitions"], found["damaged_ranges"]) == (2, 0, 0)
    assert found["log_bytes"] == sum(path.stat().st_size for path in logs.rglob("*.log"))
    assert (found["last_run_success"], found["last_run_problems"]) == (1, 0)
    assert (found["last_run_read_bytes"], found["last_run_stored_bytes"]) == (
        manifest.read_bytes,
        manifest.stored_bytes,
    )
    assert found["last_run_stored_pieces"] == 3
    assert found['runs_total{outcome="clean"}'] == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_damage_is_counted_and_does_not_hold_back_the_moment(klog: Run, logs: Path, tmp_path: Path) -> None:
    path = next((logs / "payments-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    for position in (70, len(data) - 5):
        data[position] ^= 1
    path.write_bytes(data)
    file = tmp_path / "klog.prom"
    command = ("backup", "run", logs, "--to", tmp_path / "r", "--metrics-file", file, "-q")
    assert klog(*command).code == 1
    assert klog(*command).code == 1

    found = values(file.read_text())
    assert (found["damaged_partitions"], found["damaged_ranges"]) == (1, 2)
    assert found["last_run_problems"] >= 1
    assert found["last_run_success"] == 1
    assert found['runs_total{outcome="incomplete"}'] == 1
    assert found["oldest_partition_timestamp_seconds"] >= found["newest_restorable_timestamp_seconds"]


def test_a_topic_that_a_run_leaves_out_falls_behind(klog: Run, logs: Path, tmp_path: Path) -> None:
    file = tmp_path / "klog.prom"
    command = ("backup", "run", logs, "--to", tmp_path / "r", "--metrics-file", file, "-q")
    klog(*command)
    klog(*command, "--topic", "orders")
    found = values(file.read_text())
    assert found["oldest_partition_timestamp_seconds"] < found["newest_restorable_timestamp_seconds"]


@pytest.mark.parametrize("at", ["while it opens the repository", "while it runs"])
def test_a_run_that_fails_leaves_the_moment_as_it_was(klog: Run, logs: Path, tmp_path: Path, at: str) -> None:
    file = tmp_path / "klog.prom"
    command = ("backup", "run", logs, "--to", tmp_path / "r", "--metrics-file", file, "-q")
    klog(*command)
    before = values(file.read_text())
    if at == "while it runs":
        replica(logs / "new-0", [batch(0, 5)])
        (tmp_path / "r" / "_klog" / "unfinished").rmdir()
        (tmp_path / "r" / "_klog" / "unfinished").write_text("in the way")
    else:
        (tmp_path / "r" / "klog-backup.json").write_text("{")

    assert klog(*command).code == 1

    found = values(file.read_text())
    assert found["last_run_success"] == 0
    assert found['runs_total{outcome="failed"}'] == 1
    for name in ("newest_restorable_timestamp_seconds", "oldest_partition_timestamp_seconds", "partitions"):
        assert found[name] == before[name]


def test_runs_one_after_another_are_served(logs: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "klog", "backup", "run", str(logs), "--to", str(tmp_path / "r"), "-q"]
    with subprocess.Popen([*command, "--every", "100ms", "--metrics-port", str(port)]) as process:
        try:
            first = _served(port, 1)
            write_segment(logs / "orders-0", [batch(40, 5)])
            later = _served(port, first['runs_total{outcome="clean"}'] + 2)
        finally:
            process.send_signal(signal.SIGINT)
    assert later["newest_restorable_timestamp_seconds"] > first["newest_restorable_timestamp_seconds"]
    assert later["read_bytes_total"] > first["read_bytes_total"]


def _served(port: int, runs: float) -> dict[str, float]:
    """The metrics when so many runs are done."""
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                found = values(answer.read().decode())
        except OSError:
            found = {}
        if found.get('runs_total{outcome="clean"}', 0) >= runs:
            return found
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metrics-port", "0"], "--metrics-port is for --every"),
        (["--metrics-file", "/no/such/directory/x.prom"], "its directory does not exist"),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(
    klog: Run, logs: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = klog("backup", "run", logs, "--to", tmp_path / "r", *arguments)
    assert (done.code, said in done.err) == (2, True)
    assert not (tmp_path / "r").exists()


def test_the_page_lists_all_metrics(klog: Run, logs: Path, tmp_path: Path) -> None:
    file = tmp_path / "klog.prom"
    klog("backup", "run", logs, "--to", tmp_path / "r", "--metrics-file", file, "-q")
    written = set(re.findall(r"^# TYPE (\S+)", file.read_text(), re.MULTILINE))
    listed = set()
    for line in _PAGE.read_text().splitlines():
        if line.startswith("| `klog_backup_"):
            first, *others = re.findall(r"`([a-z_]+)(?:\{[^`]*)?`", line.split("|")[1])
            prefix = "klog_backup_last_run"
            listed |= {first, *(each if each.startswith("klog_") else f"{prefix}{each}" for each in others)}
    assert listed == written
