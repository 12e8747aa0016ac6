"""Output that cannot be written (a full disk, a closed stream, a reader that ends) is no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klog.commands import main
from tests import corpora

RUN = "from klog.commands.main import main; main()"
WRITING = [
    ["dump-segment", "-f", "table", "{}/c-b.intact-0"],
    ["dump-segment", "-f", "table", "--batches", "{}/c-b.intact-0"],
    ["dump-segment", "-f", "jsonl", "{}/c-b.intact-0"],
    ["dump-segment", "-f", "kafka", "{}/c-b.intact-0"],
    ["dump-segment", "--summary", "{}/c-b.intact-0"],
    ["dump-segment", "--summary", "{}"],
    ["dump-segment", "--summary", "-f", "jsonl", "{}"],
    ["dump-segment", "--all-files", "-f", "table", "{}/c-b.intact-0"],
    ["dump-segment", "-f", "parquet", "-o", "-", "{}/c-b.intact-0"],
    ["verify", "{}"],
    ["rebuild-index", "--check", "{}"],
    ["recover", "--dry-run", "{}"],
    ["clean", "--status", "{}/c-b.intact-0"],
    ["export", "--dry-run", "-o", "x", "{}/c-b.intact-0"],
    ["export", "-q", "-o", "x", "--report", "-", "{}/c-b.intact-0"],
    ["formats"],
    ["formats", "segment"],
    ["formats", "--json"],
    ["--help"],
    ["--version"],
    ["topics", "--help"],
    *([name, "--help"] for name in main.COMMANDS),
]
each = pytest.mark.parametrize("arguments", WRITING, ids=" ".join)


@pytest.fixture
def command(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(corpora.Corpus("corrupt-k39").path / "logs", tmp_path / "logs")
    return [sys.executable, "-c", RUN, *(argument.replace("{}", "logs") for argument in arguments)]


@each
def test_a_full_disk_is_one_error_and_code_1(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"klog: standard output cannot be written: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@each
def test_a_reader_that_ends_is_no_error(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"Broken pipe" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@each
def test_output_that_nobody_gets_is_an_error(command: list[str]) -> None:
    for closed in (">&-", ">&- 2>&- <&-"):
        shutil.rmtree("x", ignore_errors=True)
        script = f'exec "$@" {closed}'
        done = subprocess.run(["bash", "-c", script, "bash", *command], capture_output=True, check=False)
        assert done.returncode == 1
        assert b"Traceback" not in done.stderr
        said = b"klog: standard output cannot be written: Bad file descriptor (it is closed: "
        assert (said in done.stderr) == (closed == ">&-")


@pytest.mark.parametrize(
    "arguments", [["verify", "nowhere"], ["verify"], ["dump-segment", "logs"]], ids=" ".join
)
def test_stderr_that_is_full_does_not_change_the_exit_code(command: list[str]) -> None:
    expected = subprocess.run(command, capture_output=True, check=False).returncode
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full, check=False)
    assert done.returncode == expected != 0
