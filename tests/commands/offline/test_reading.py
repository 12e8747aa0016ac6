"""Commands that change nothing leave nothing: no file, no lock, no time; also where a broker runs."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import corpora
from tests.commands.running import Run, runner

READING = {
    "dump-table": ["dump-segment", "-f", "table"],
    "dump-jsonl": ["dump-segment", "-f", "jsonl", "--verify"],
    "dump-kafka": ["dump-segment", "-f", "kafka"],
    "dump-all-files": ["dump-segment", "--all-files"],
    "summary": ["dump-segment", "--summary"],
    "verify": ["verify"],
    "rebuild-index": ["rebuild-index", "--check"],
    "rebuild-index-snapshots": ["rebuild-index", "--check", "--snapshots"],
    "recover": ["recover", "--dry-run"],
    "recover-from-point": ["recover", "--dry-run", "--from-recovery-point"],
    "clean-status": ["clean", "--status"],
    "clean-dry-run": ["clean", "--policy", "compact,delete", "--retention-ms", "1", "--dry-run"],
    "convert-dry-run": ["convert", "--compression", "zstd", "--dry-run"],
    "export": ["export", "--dry-run", "-o", "tables"],
}
CORPORA = ["k39-codecs", "k39-unclean"]
HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
)


@pytest.fixture
def klog(capfd, monkeypatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture(params=CORPORA)
def logs(request, tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "kafka"
    shutil.copytree(corpora.Corpus(request.param).path / "logs", copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return copy


@pytest.fixture
def broker(logs: Path) -> Iterator[None]:
    """A process that holds the lock of the log directory, as a broker does."""
    logs.chmod(0o755)
    command = [sys.executable, "-c", HOLD, logs / ".lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate(b"\n")


def state(tree: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time of change and content of a tree."""
    return {
        str(path): (status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [tree, *tree.rglob("*")]
        for status in [path.stat()]
    }


@pytest.mark.parametrize("name", READING)
def test_reading_leaves_every_byte_name_and_time(klog: Run, logs: Path, name: str) -> None:
    before = state(logs)
    done = klog(*READING[name], logs)
    assert done.code in (0, 1)
    assert state(logs) == before
    assert os.listdir(logs.parent) == ["kafka"]


@pytest.mark.parametrize("name", READING)
def test_reading_works_where_a_broker_runs(klog: Run, broker: None, logs: Path, name: str) -> None:
    before = state(logs)
    done = klog(*READING[name], logs)
    assert done.out
    assert state(logs) == before
    judges = READING[name][0] in {"verify", "rebuild-index", "recover", "clean", "convert"}
    assert bool(re.search(r"note: process \d+ \(.+\) has .* open", done.err)) == judges


TRY = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(0)
sys.exit("nobody holds the lock")
"""


@pytest.mark.parametrize(
    ("arguments", "module", "step"),
    [
        (["clean", "--policy", "delete", "--retention-ms", "1", "--yes"], "cleaner.offline", "mark_deleted"),
        (["recover", "--yes"], "repair.recovery_run", "run_recovery"),
        (["rebuild-index", "--force"], "repair.index_rebuild", "rebuild"),
    ],
)
def test_changing_holds_the_lock_while_it_changes(
    klog: Run, logs: Path, monkeypatch, arguments: list[str], module: str, step: str
) -> None:
    for path in [logs, *logs.rglob("*")]:
        path.chmod(0o755)
    if arguments[0] == "clean":
        assert klog("recover", "--yes", logs).code == 0
    storage = importlib.import_module(f"klog.storage.{module}")
    real = getattr(storage, step)
    tried: list[int] = []

    def step_that_looks(*args: object, **how: object) -> object:
        tried.append(subprocess.run([sys.executable, "-c", TRY, logs / ".lock"], check=False).returncode)
        return real(*args, **how)

    monkeypatch.setattr(storage, step, step_that_looks)
    klog(*arguments, logs)
    assert tried
    assert not any(tried)


@pytest.mark.parametrize(
    "arguments",
    [
        ["rebuild-index"],
        ["rebuild-index", "--force"],
        ["recover", "--yes"],
        ["clean", "--policy", "compact", "--yes"],
    ],
)
def test_changing_is_refused_where_a_broker_runs(
    klog: Run, broker: None, logs: Path, arguments: list[str]
) -> None:
    before = state(logs)
    done = klog(*arguments, logs)
    assert (done.code, done.out) == (1, "")
    assert re.search(r"process \d+ \(.+\) holds this log directory", done.err)
    assert state(logs) == before
    one = next(logs.glob("*-0"))
    assert klog(*arguments, one).code == 1
    assert state(logs) == before
