"""`klog restore` that a signal ends: at once, with word of what it leaves, and the next one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klog.backup.restoring.target import INCOMPLETE
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import batch, replica
from tests.waiting import eventually

TOPICS = ("orders", "payments")
BATCHES = 60
BATCH_BYTES = 20_000
FIRST_MS = 1_700_000_000_000
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

SLOW = """
import sys, threading
from klog.backup.restoring import histories, partition_files
from klog.commands import main
from klog.storage.files.chunks import chunks

chunks.__kwdefaults__["chunk_bytes"] = 20_000
slowed = {slowed}
work = slowed[0].__dict__[slowed[1]]

def slowly(*arguments):
    print("begun\\n", end="", flush=True)  # as one write: two threads do it
    threading.Event().wait(0.1)
    return work(*arguments)

setattr(*slowed, slowly)
main.main()
"""
WRITING = "(partition_files.PartitionWriter, 'copy')"
PLANNING = "(histories._PartitionReading, '_note')"


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def backed_up(backups: Backups, logs: Path) -> Path:
    """Two partitions of a megabyte."""
    for topic in TOPICS:
        replica(
            logs / f"{topic}-0",
            [batch(each, size=BATCH_BYTES, at=FIRST_MS + 1000 * each) for each in range(BATCHES)],
        )
    backups.run(logs)
    return logs


@contextmanager
def slow_restore(slowed: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A restore that takes six seconds for each partition, and has begun with one."""
    command = [sys.executable, "-c", SLOW.format(slowed=slowed), "restore", "-q", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def written(target: Path) -> dict[str, int]:
    """How many bytes of each segment are there."""
    return {path.parent.name: path.stat().st_size for path in target.glob("*-0/*.log")}


def interrupted(backups: Backups, target: Path, jobs: int, number: signal.Signals, *words: object) -> str:
    """What a restore said that a signal ended in the middle. The same restore is then complete."""
    with slow_restore(WRITING, backups.place, "--to", target, "--jobs", jobs, *words) as process:
        eventually(lambda: len([size for size in written(target).values() if size]) == jobs, 30)
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == CODES[number]
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_ends_a_restore_in_the_middle_and_the_next_one_goes_on(
    klog: Run, backups: Backups, backed_up: Path, tmp_path: Path, number: signal.Signals, jobs: int
) -> None:
    target = tmp_path / "new"
    (identifier,) = backups.repository.ids()

    said = interrupted(backups, target, jobs, number)

    assert said == (
        f"klog: interrupted: {target} is not complete, and no broker starts on it; the same command with "
        f"--backup {identifier} goes on with the partitions that are not done\n"
    )
    assert (target / INCOMPLETE).is_dir()
    assert all(size < BATCHES * BATCH_BYTES for size in written(target).values())
    assert klog("restore", backups.place, "--to", target, "--backup", identifier).code == 0
    assert not (target / INCOMPLETE).exists()
    for topic in TOPICS:
        assert log_files(target / f"{topic}-0") == log_files(backed_up / f"{topic}-0")


@pytest.mark.usefixtures("backed_up")
def test_what_is_said_names_the_moment_that_a_span_was(klog: Run, backups: Backups, tmp_path: Path) -> None:
    """After a while the same span is another moment, and the target is refused with the first one."""
    target = tmp_path / "new"
    said = interrupted(backups, target, 2, signal.SIGINT, "--at", FIRST_MS + 30_000)
    assert f"the same command with --at {FIRST_MS + 30_000} goes on" in said

    other = klog("restore", backups.place, "--to", target, "--at", FIRST_MS + 40_000)

    assert other.code == 2
    assert f"the same options and --at {FIRST_MS + 30_000}, or choose an empty directory" in other.err
    assert klog("restore", backups.place, "--to", target, "--at", FIRST_MS + 30_000).code == 0


@pytest.mark.usefixtures("backed_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_anything_is_written_leaves_nothing(
    backups: Backups, tmp_path: Path, number: signal.Signals
) -> None:
    words = (backups.place, "--to", tmp_path / "new", "--at", FIRST_MS, "--jobs", 2)
    with slow_restore(PLANNING, *words) as process:
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == CODES[number]
    assert not (tmp_path / "new").exists()
    assert said.count("\n") == 1
    assert "the moment is before the first backup" in said
