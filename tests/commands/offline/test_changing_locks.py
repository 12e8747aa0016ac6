"""Commands that change a log directory refuse it while a broker holds it, however it is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.running import Run, runner
from tests.corpora import Corpus

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
)
HOLD_ITSELF = (
    "import fcntl, os, sys; f = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(f, fcntl.LOCK_EX);"
    " print(flush=True); input()"
)
HELD = r"process \d+ \(python\S*\) holds this log directory"
# Every command that changes a directory; those that talk to a broker leave that to the broker.
CHANGING = [
    ("rebuild-index",),
    ("rebuild-index", "--force"),
    ("rebuild-index", "--force", "--snapshots"),
    ("recover", "--yes"),
    ("recover", "--yes", "--from-recovery-point"),
    ("clean", "--yes", "--policy", "compact", "--min-dirty-ratio", "0"),
    ("clean", "--yes", "--policy", "delete", "--retention-ms", "1"),
    ("convert", "--yes", "--compression", "zstd"),
    ("convert", "--yes", "--compression", "none", "--all"),
]
NAMED = (
    "log directory",
    "partition",
    "segment",
    "link to the partition",
    "link to the log directory",
    "below",
)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


def damaged(root: Path) -> Path:
    directory = root / "disk" / "logs" / "b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.flip-last-0").path, directory)
    (directory / "00000000000000000000.index").unlink()
    return directory


@contextmanager
def held(script: str, *arguments: Path | str) -> Iterator[None]:
    """Another process holds what the script says."""
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate(b"\n")


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Path]:
    """A damaged partition in a log directory that another process holds."""
    directory = damaged(tmp_path)
    (directory.parent / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    with held(HOLD, directory.parent / ".lock"):
        yield directory


def state(tree: Path) -> dict[Path, tuple[int, int, int]]:
    """Inode, size and time of change of each file."""
    found = {path: path.stat() for path in sorted(tree.rglob("*"))}
    return {path: (status.st_ino, status.st_size, status.st_mtime_ns) for path, status in found.items()}


def named(partition: Path, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if how == "log directory":
        return partition.parent
    if how == "segment":
        return partition / "00000000000000000000.log"
    if how == "working directory":
        monkeypatch.chdir(partition)
        return Path()
    link = tmp_path / "another-name"
    if how.startswith("link"):
        link.symlink_to(partition if how.endswith("partition") else partition.parent)
        return link
    return partition


@pytest.mark.parametrize("how", NAMED)
@pytest.mark.parametrize("command", CHANGING, ids=" ".join)
def test_a_directory_that_a_broker_holds_is_not_changed(
    command: tuple[str, ...],
    how: str,
    partition: Path,
    tmp_path: Path,
    klog: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = named(partition, how, tmp_path, monkeypatch)
    before = state(partition.parent)
    done = klog(*command, path)
    assert done.code == 1
    assert re.search(HELD, done.err)
    assert state(partition.parent) == before


def test_a_link_in_a_log_directory_belongs_to_that_directory(
    partition: Path, tmp_path: Path, klog: Run
) -> None:
    """A broker's partition may lie on another disk."""
    elsewhere = tmp_path / "other-disk" / "b-0"
    elsewhere.parent.mkdir()
    partition.rename(elsewhere)
    partition.symlink_to(elsewhere)
    done = klog("rebuild-index", "--force", partition)
    assert done.code == 1
    assert re.search(HELD, done.err)


@pytest.mark.parametrize("command", CHANGING, ids=" ".join)
def test_a_copy_that_another_command_changes_is_not_changed_and_no_file_is_left(
    command: tuple[str, ...], tmp_path: Path, klog: Run
) -> None:
    """A copy has no `.lock`; the lock is on the directory itself."""
    directory = damaged(tmp_path)
    before = state(directory.parent)
    with held(HOLD_ITSELF, directory.parent):
        done = klog(*command, directory)
        assert state(directory.parent) == before
    assert done.code == 1
    assert re.search(HELD, done.err)
    assert klog("verify", directory).err == ""


@pytest.mark.parametrize("marked", [True, False])
def test_a_command_that_only_reads_says_who_changes_the_directory(
    tmp_path: Path, klog: Run, *, marked: bool
) -> None:
    directory = damaged(tmp_path)
    if marked:
        (directory.parent / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    script = "from klog.storage.files.directory_lock import locked\n"
    script += f"with locked({str(directory.parent)!r}): print(flush=True); input()"
    with held(script, "klog", "recover"):
        done = klog("verify", directory)
    assert re.search(r"note: process \d+ \(klog recover\) has .* open", done.err)
