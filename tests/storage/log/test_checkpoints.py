"""Offset checkpoints: their content, their timers, one writing for many logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.log.checkpoints import ALL_CHECKPOINTS
from klog.storage.log.data_directory import DataDirectory
from klog.storage.log.disk_guard import LogClosedError
from klog.storage.log.log_manager import LogManager
from tests.storage.log.building import fill
from tests.storage.log.managing import Managed, new_log, partition, read_checkpoint


def test_checkpoints_are_written_on_their_timers(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    log = new_log(managed.start())
    managed.upkeep.start()
    fill(log, 3)
    log.roll()
    log.advance_log_start(2)
    managed.pass_ms(5_000)
    assert read_checkpoint(tmp_path / "a", FileKind.REPLICATION_CHECKPOINT) == {partition(0): 3}
    assert read_checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {}
    managed.pass_ms(55_000)
    assert read_checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {partition(0): 3}
    assert read_checkpoint(tmp_path / "a", FileKind.LOG_START_CHECKPOINT) == {partition(0): 2}


def test_the_log_start_checkpoint_has_an_entry_only_if_the_first_segment_starts_earlier(
    tmp_path: Path,
) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    first, second = new_log(manager, 0), new_log(manager, 1)
    for log in (first, second):
        fill(log, 3)
    first.advance_log_start(1)
    manager.checkpoint()
    assert read_checkpoint(tmp_path / "a", FileKind.LOG_START_CHECKPOINT) == {partition(0): 1}
    managed.crash()
    assert Managed(tmp_path / "a").start().get(partition(0)).log_start_offset == 1


def test_a_truncation_is_in_the_checkpoints_at_once(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a").start()
    fill(new_log(manager), 5)
    manager.get(partition(0)).flush()
    assert manager.truncate_to({partition(0): 2}) == {}
    assert read_checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {partition(0): 2}
    assert manager.restart_at({partition(0): 1}) == {}
    assert read_checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {partition(0): 1}


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    """Ten flushed logs of three records in two directories."""
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    for number in range(10):
        fill(new_log(manager, number), 3)
        manager.get(partition(number)).flush()
    return manager


@pytest.fixture
def written(manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, FileKind]]:
    """The checkpoints that are written, each with its directory."""
    written: list[tuple[str, FileKind]] = []
    write = DataDirectory.write_offsets

    def counted(self: DataDirectory, kind: FileKind, offsets: dict[TopicPartition, int]) -> None:
        written.append((self.path, kind))
        write(self, kind, offsets)

    monkeypatch.setattr(DataDirectory, "write_offsets", counted)
    return written


def recovery_points(tmp_path: Path) -> dict[TopicPartition, int]:
    return {
        partition: offset
        for name in "ab"
        for partition, offset in read_checkpoint(tmp_path / name, FileKind.RECOVERY_POINT_CHECKPOINT).items()
    }


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda manager, logs: manager.delete([partition(99), *logs]), {}),
        (lambda manager, logs: manager.set_aside_strays(logs), {}),
        (
            lambda manager, logs: manager.truncate_to(dict.fromkeys(logs, 2)),
            dict.fromkeys(map(partition, range(8)), 2),
        ),
        (
            lambda manager, logs: manager.restart_at(dict.fromkeys(logs, 1)),
            dict.fromkeys(map(partition, range(8)), 1),
        ),
    ],
    ids=["delete", "stray", "truncate", "restart"],
)
def test_many_logs_are_changed_and_each_directory_s_checkpoints_are_written_once(
    tmp_path: Path, manager: LogManager, written: list[tuple[str, FileKind]], change, left
) -> None:
    assert change(manager, [partition(number) for number in range(8)]) == {}
    assert sorted(written) == sorted(
        (str(tmp_path / name), kind) for name in "ab" for kind in ALL_CHECKPOINTS
    )
    assert recovery_points(tmp_path) == {**left, partition(8): 3, partition(9): 3}


def test_a_truncation_that_drops_nothing_writes_no_checkpoints(
    manager: LogManager, written: list[tuple[str, FileKind]]
) -> None:
    assert manager.truncate_to({partition(0): 3, partition(1): 7}) == {}
    assert written == []


def test_a_log_that_cannot_be_truncated_does_not_hold_up_the_others(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a").start()
    fill(new_log(manager, 0), 3)
    fill(new_log(manager, 1), 3)
    manager.get(partition(0)).release()
    failed = manager.truncate_to({partition(0): 1, partition(1): 1, partition(2): 1})
    assert {partition: type(error) for partition, error in failed.items()} == {
        partition(0): LogClosedError,
        partition(2): StorageError,
    }
    assert manager.get(partition(1)).log_end_offset == 1


def test_checkpoints_have_entries_of_future_replicas_too(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    log = new_log(managed.start())
    fill(log, 2)
    log.set_high_watermark(2)
    log.advance_log_start(1)
    managed.stop()
    os.rename(tmp_path / "a" / "t-0", tmp_path / "a" / f"t-0.{'ab' * 16}-future")
    for _ in range(2):
        managed = Managed(tmp_path / "a")
        managed.start()
        managed.stop()
    text = (tmp_path / "a" / "log-start-offset-checkpoint").read_text()
    assert text == "0\n1\nt 0 1\n"
