"""An export that is killed, at any moment and as often as may be, ends with the files of any other."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests import corpora
from tests.export.export_process import start
from tests.export.export_support import export, table_rows, tree
from tests.waiting import eventually

LOG = corpora.corpora("k39-codecs")[0].log_dir().partition("t-gzip-0").path
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """What an export gives that nobody disturbs."""
    output = tmp_path_factory.mktemp("whole") / "out"
    assert export(LOG, output).clean
    return output


def run(output: Path, **how) -> int:
    process = start(LOG, output, **how)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode in (0, KILLED), complaint
    return process.returncode


@pytest.mark.parametrize("first", [1, 4])
def test_killed_at_a_change_of_the_disk_and_resumed(first, whole, tmp_path) -> None:
    """Every third change from the first of a job to its last, the books' own included."""
    die_at = first
    while run(tmp_path / str(die_at), die_at=die_at) == KILLED:
        export(LOG, tmp_path / str(die_at), resume=True)
        assert tree(tmp_path / str(die_at)) == tree(whole), f"killed at change {die_at}"
        die_at += 6
    assert die_at > 60


def test_killed_again_and_again(whole, tmp_path) -> None:
    dice = random.Random(3)
    kills = 0
    while run(tmp_path / "out", resume=True, die_at=dice.randrange(2, 40)) == KILLED:
        kills += 1
        assert kills < 40
    assert kills > 1
    assert tree(tmp_path / "out") == tree(whole)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_time_with_all_its_processes(seed, whole, tmp_path) -> None:
    process = start(LOG, tmp_path / "out", processes=2)
    time.sleep(random.Random(seed).uniform(0.15, 0.6))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert run(tmp_path / "out", processes=2, resume=True) == 0
    assert tree(tmp_path / "out") == tree(whole)


def test_no_process_continues_when_the_first_is_killed(tmp_path) -> None:
    process = start(LOG, tmp_path / "out", processes=2)
    eventually(lambda: _children(process.pid) or process.poll() is not None)
    children = _children(process.pid)
    process.kill()
    process.communicate(timeout=60)
    assert children
    eventually(lambda: not any(_alive(child) for child in children))


def test_ctrl_c_leaves_a_job_state_to_resume_and_nothing_half_written(whole, tmp_path) -> None:
    process = start(LOG, tmp_path / "out", processes=2)
    eventually(lambda: (tmp_path / "out" / "_klog" / "job.json").exists() or process.poll() is not None)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode != 0
    assert complaint.count(b"Traceback") <= 1  # its own, which the command line keeps to itself
    assert not list((tmp_path / "out").rglob("*.tmp"))
    export(LOG, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(whole)


def test_files_of_a_split_that_was_not_committed_are_not_counted_twice(whole, tmp_path) -> None:
    """A run that read less (a disk that failed) and was killed before its commit named its file otherwise."""
    output = tmp_path / "out"
    assert run(output, die_at=45) == KILLED
    stray = output / "topic=t-gzip/partition=0/00000000000000000000-00000000000000000007-00000.parquet"
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"PAR1")
    export(LOG, output, resume=True)
    assert tree(output) == tree(whole)
    assert len(table_rows(output)) == 420


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    # The resource tracker that Python starts beside them ends by itself.
    return [int(word) for word in text.split()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
