"""Runs that are killed at any moment, two runs at once, and logs that change while they are read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from klog.backup import partition_copy
from klog.backup.verify import VerifyOptions, verify
from klog.formats.names import TopicPartition
from tests.backup.repositories import Backups, log_files
from tests.export.logs import batch, replica, write_segment

ORDERS = TopicPartition("orders", 0)


def some_logs(logs: Path, first: int = 0) -> None:
    for number in range(12):
        batches = [batch(first + 5 * each, 5, size=4000) for each in range(8)]
        write_segment(logs / f"orders-{number}", batches)


def check_all(backups: Backups) -> None:
    repository = backups.repository
    assert not verify(repository, repository.ids(), VerifyOptions()).findings


def test_a_run_that_is_killed_leaves_the_repository_valid_and_the_next_one_goes_on(
    backups: Backups, logs: Path
) -> None:
    some_logs(logs)
    backups.run(logs)
    chance = random.Random(int(os.environ.get("KLOG_TEST_SEED", "11")))
    killed = 0
    for number in range(1, 7):
        some_logs(logs, 40 * number)
        command = [sys.executable, "-m", "klog", "backup", "run", str(logs), "--to", str(backups.place)]
        with subprocess.Popen([*command, "--jobs", "2", "-q"], stderr=subprocess.PIPE) as process:
            _wait_for_the_first_piece(process, Path(backups.place))
            time.sleep(chance.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        check_all(backups)
    assert killed

    backups.now_ms += 10_000
    backups.run(logs)

    check_all(backups)
    for number in range(12):
        assert backups.segments("orders", number) == log_files(logs / f"orders-{number}")


def _wait_for_the_first_piece(process: subprocess.Popen[bytes], repository: Path) -> None:
    """Until the process writes its first object, or has ended."""
    unfinished = repository / "_klog" / "unfinished"
    before = set(os.listdir(unfinished))
    while process.poll() is None and set(os.listdir(unfinished)) <= before:
        time.sleep(0.001)


def test_two_runs_at_once_do_no_harm(backups: Backups, logs: Path) -> None:
    some_logs(logs)
    backups.run(logs)
    some_logs(logs, 40)
    threads = [threading.Thread(target=backups.run, args=(logs,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(backups.repository.ids()) == 4
    check_all(backups)
    assert backups.segments("orders", 3) == log_files(logs / "orders-3")


def test_what_another_run_has_just_written_is_carried_over(backups: Backups, tmp_path: Path) -> None:
    for number in (1, 2):
        replica(tmp_path / f"broker{number}" / f"orders-{number}", [batch(0, 5)])
    backups.run(tmp_path / "broker1")
    write_segment(tmp_path / "broker1" / "orders-1", [batch(5, 5)])

    def meanwhile(_bytes: int) -> None:
        backups.run(tmp_path / "broker1")
        backups.now_ms += 1000

    backups.run(tmp_path / "broker2", on_total=meanwhile)

    ends = {str(partition): state.end_offset for partition, state in backups.states().items()}
    assert ends == {"orders-1": 10, "orders-2": 5}


class _Meanwhile:
    """Does something to a log in the middle of a run: after the first segment was copied, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: object) -> None:
        self._copy = partition_copy.copy_part
        self._change = change
        self.copies = 0
        monkeypatch.setattr(partition_copy, "copy_part", self)

    def __call__(self, *arguments: object) -> object:
        copied = self._copy(*arguments)  # type: ignore[arg-type]
        self.copies += 1
        if self.copies == 1:
            self._change()  # type: ignore[operator]
        return copied


def batches(first: int, count: int) -> list[bytes]:
    return [batch(first + 5 * each, 5) for each in range(count)]


def test_a_segment_that_is_deleted_meanwhile(backups: Backups, logs: Path, monkeypatch) -> None:
    replica(logs / "orders-0", batches(0, 12))
    done = _Meanwhile(monkeypatch, (logs / "orders-0" / "00000000000000000000.log").unlink)

    assert backups.run(logs).is_clean

    assert done.copies == 3  # the second look copies nothing again
    assert backups.segments("orders") == log_files(logs / "orders-0")
    assert backups.states()[ORDERS].log_start_offset == 20


def test_segments_that_are_compacted_meanwhile(backups: Backups, logs: Path, monkeypatch) -> None:
    replica(logs / "orders-0", batches(0, 12))

    def compact() -> None:
        for base in (0, 20):
            path = logs / "orders-0" / f"{base:020d}.log"
            path.rename(path.with_name(path.name + ".deleted"))
            write_segment(logs / "orders-0", batches(base, 4)[1:3], base)

    _Meanwhile(monkeypatch, compact)

    assert backups.run(logs).is_clean
    assert backups.segments("orders") == log_files(logs / "orders-0")


def test_a_segment_that_is_rolled_meanwhile_is_taken_by_the_next_run(
    backups: Backups, logs: Path, monkeypatch
) -> None:
    replica(logs / "orders-0", batches(0, 6))
    before = log_files(logs / "orders-0")
    done = _Meanwhile(monkeypatch, lambda: write_segment(logs / "orders-0", batches(30, 2)))

    backups.run(logs)
    assert backups.segments("orders") == before
    backups.run(logs)
    assert backups.segments("orders") == log_files(logs / "orders-0")
    assert done.copies == 3


def test_a_topic_that_is_deleted_meanwhile(backups: Backups, logs: Path, monkeypatch) -> None:
    replica(logs / "orders-0", batches(0, 12))
    replica(logs / "payments-0", batches(0, 4))
    gone = logs / "orders-0.0123456789abcdef0123456789abcdef-delete"
    _Meanwhile(monkeypatch, lambda: (logs / "orders-0").rename(gone))

    assert backups.run(logs).is_clean
    assert set(backups.states()) == {TopicPartition("payments", 0)}


def test_a_log_that_never_rests_keeps_its_backup_of_before(backups: Backups, logs: Path, monkeypatch) -> None:
    replica(logs / "orders-0", batches(0, 4))
    backups.run(logs)
    before = log_files(logs / "orders-0")
    copy = partition_copy.copy_part

    def copy_and_change(*arguments: object) -> object:
        copied = copy(*arguments)  # type: ignore[arg-type]
        write_segment(logs / "orders-0", batches(0, 2 + time.time_ns() % 2), 0)
        path = logs / "orders-0" / "00000000000000000000.log"
        path.rename(path.with_suffix(".old"))
        path.write_bytes(path.with_suffix(".old").read_bytes())
        return copied

    monkeypatch.setattr(partition_copy, "copy_part", copy_and_change)
    write_segment(logs / "orders-0", batches(0, 3), 0)

    result = backups.run(logs)

    assert [problem.partition for problem in result.manifest.problems] == [ORDERS]
    assert "change faster than they can be read" in result.manifest.problems[0].what
    assert backups.segments("orders") == before
