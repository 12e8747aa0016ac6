"""`klog serve --read-only` as a command: what it logs, what it leaves behind, and wrong command lines."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import Run, runner
from tests.corpora import Corpus

TXN = Corpus("k39-txn").log_dir().path
LISTENER = "listeners=PLAINTEXT://127.0.0.1:0"
TIMEOUT_S = 60


@pytest.fixture
def klog(capfd, monkeypatch) -> Run:
    return runner(capfd, monkeypatch)


def test_a_backup_is_served_until_ctrl_c_and_nothing_stays(klog: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "klog", "serve", "--read-only", str(TXN), "-o", LISTENER]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as served:
        try:
            for line in served.stderr:
                if found := re.search(r"serves (127\.0\.0\.1:\d+)", line):
                    break
            read = klog("consume", "t-lat", "-b", found[1], "-o", "beginning", "-e")
            assert read.code == 0, read.err
            assert read.out.startswith("v0\nv1\n")
            written = klog("produce", "t-lat", "x", "-b", found[1])
            assert (written.code, "POLICY_VIOLATION" in written.err) == (1, True)
        finally:
            served.send_signal(signal.SIGINT)
            served.stderr.read()
            assert served.wait(TIMEOUT_S) == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("klog")] == []


@pytest.mark.parametrize("flags", [(), ("--no-check",)], ids=["checked", "unchecked"])
def test_all_segments_are_checked_unless_it_is_switched_off(tmp_path: Path, flags: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "klog", "serve", "--read-only", str(TXN), "-o", LISTENER, *flags]
    last = "serves 127.0.0.1" if flags else "segments checked"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as served:
        try:
            lines = []
            for line in served.stderr:
                lines.append(line)
                if last in line:
                    break
        finally:
            served.send_signal(signal.SIGINT)
            lines += served.stderr.readlines()
            assert served.wait(TIMEOUT_S) == 0
    summaries = [line for line in lines if "segments checked" in line]
    assert len(summaries) == (0 if flags else 1)
    assert all("segments checked, 0 damaged places" in line for line in summaries)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--read-only",), "missing DIR"),
        (("/somewhere",), "with --read-only it serves directories"),
        (("--no-check",), "--no-check is for --read-only"),
    ],
)
def test_directories_and_read_only_belong_together(
    klog: Run, arguments: tuple[str, ...], problem: str
) -> None:
    refused = klog("serve", *arguments)
    assert (refused.code, problem in refused.err) == (2, True)


def test_a_directory_without_partitions_is_one_line(klog: Run, tmp_path: Path) -> None:
    refused = klog("serve", "--read-only", tmp_path / "missing")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "no partition is found" in refused.err


def test_a_plain_broker_loads_nothing_of_backups(tmp_path: Path) -> None:
    """What is not used costs each start time, and each broker memory."""
    program = (
        "import os, sys\n"
        "from functools import partial\n"
        "from klog.commands import main\n"
        "from klog.server import run\n"
        "def show(broker):\n"
        "    print(*sys.modules, flush=True)\n"
        "    os._exit(0)\n"
        "run.run = partial(run.run, on_serving=show)\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", "-o", f"log.dirs={tmp_path}", "-o", LISTENER],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    loaded = done.stdout.split()
    assert "klog.commands.servers.serve" in loaded
    others = (
        "klog.backup",
        "klog.export",
        "klog.convert",
        "klog.spark",
        "klog.admin",
        "klog.commands.offline",
    )
    assert [name for name in loaded if name.startswith(others)] == []
    assert not {"pyarrow", "cryptography", "zstandard"} & set(loaded)
