"""All logs of a broker: loading, creating, deleting and stopping."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.formats.names import FileKind
from klog.storage.log.disk_guard import LogClosedError
from tests.storage.log.building import NOW_MS, append, batch, fill, idempotent
from tests.storage.log.managing import TOPIC_ID, Managed, new_log, partition


def test_a_new_log_has_its_files_and_its_topic_id(tmp_path: Path) -> None:
    log = new_log(Managed(tmp_path / "a").start())
    assert sorted(os.listdir(log.directory)) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert Path(log.directory, "partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID}"


def test_a_log_is_created_once(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a").start()
    assert manager.get(partition(0)) is None
    log = manager.get_or_create(partition(0), None, is_new=True)
    assert (log.topic_id, manager.get(partition(0))) == (None, log)
    assert new_log(manager) is log
    assert log.topic_id == TOPIC_ID


def test_a_new_log_is_created_in_the_directory_that_has_the_fewest(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    parents = [Path(new_log(manager, n).directory).parent.name for n in range(4)]
    assert parents == ["a", "b", "a", "b"]


def test_a_clean_stop_loses_nothing_and_the_next_start_scans_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Managed(tmp_path / "a", tmp_path / "b")
    manager = first.start()
    for n in range(3):
        append(new_log(manager, n), idempotent(0, 4))
    manager.logs()[0].set_high_watermark(3)
    first.stop()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    monkeypatch.setattr("klog.storage.repair.recovery.plan_recovery", None)
    second = Managed(tmp_path / "a", tmp_path / "b")
    manager = second.start()
    assert [manager.get(partition(n)).log_end_offset for n in range(3)] == [4, 4, 4]
    assert [manager.get(partition(n)).high_watermark for n in range(3)] == [3, 0, 0]
    assert [manager.get(partition(n)).recovery_point for n in range(3)] == [4, 4, 4]
    assert manager.get(partition(0)).topic_id == TOPIC_ID
    assert append(manager.get(partition(1)), idempotent(0, 4)).duplicate
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists(), "a crash from now on is a crash"
    assert {(p.done, p.total, p.recovered) for p in second.listener.progress} == {
        (1, 2, False),
        (2, 2, False),
        (1, 1, False),
    }


def test_after_a_crash_every_log_is_recovered(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    log = new_log(first.start())
    fill(log, 5)
    first.crash()
    with open(log.segments.active.path(FileKind.LOG), "ab") as file:
        file.write(b"half a batch")
    second = Managed(tmp_path / "a")
    manager = second.start()
    assert manager.get(partition(0)).log_end_offset == 5
    assert [p.recovered for p in second.listener.progress] == [True]
    kept = list((tmp_path / "klog-quarantine").rglob("*.tail"))
    assert [path.read_bytes() for path in kept] == [b"half a batch"]
    assert not list((tmp_path / "klog-quarantine").rglob("*.replaced"))


def test_a_deleted_log_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    log = new_log(manager)
    fill(log, 3)
    manager.delete([partition(0)])
    (renamed,) = [name for name in os.listdir(tmp_path / "a") if name.startswith("t-0")]
    assert renamed.endswith("-delete")
    assert manager.get(partition(0)) is None
    with pytest.raises(LogClosedError):
        append(log, batch())
    assert new_log(manager).log_end_offset == 0, "the name is free again"
    managed.pass_ms(59_999)
    assert renamed in os.listdir(tmp_path / "a")
    managed.pass_ms(1)
    assert renamed not in os.listdir(tmp_path / "a")
    assert managed.listener.failed == []


def test_a_log_that_cannot_be_deleted_does_not_hold_up_the_others(tmp_path: Path, monkeypatch) -> None:
    manager = Managed(tmp_path / "a").start()
    stuck = new_log(manager, 0)
    new_log(manager, 1)

    def fails(_path: str) -> None:
        raise StorageError("no")

    monkeypatch.setattr(stuck, "rename_directory", fails)
    assert list(manager.delete([partition(0), partition(1)])) == [partition(0)]
    assert [name[:3] for name in os.listdir(tmp_path / "a") if name.endswith("-delete")] == ["t-1"]


def test_a_deletion_that_a_crash_interrupted_is_finished_after_the_next_start(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    manager = first.start()
    new_log(manager)
    manager.delete([partition(0)])
    first.crash()
    second = Managed(tmp_path / "a")
    assert second.start().logs() == []
    second.pass_ms(60_000)
    assert not [name for name in os.listdir(tmp_path / "a") if name.startswith("t-0")]


def test_a_stray_replica_is_renamed_and_kept(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    manager = first.start()
    new_log(manager)
    assert manager.set_aside_strays([partition(0)]) == {}
    first.pass_ms(10**6)
    first.stop()
    assert Managed(tmp_path / "a").start().logs() == []
    assert [name for name in os.listdir(tmp_path / "a") if name.endswith("-stray")]


def test_a_future_replica_is_loaded_but_does_not_serve(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    fill(new_log(first.start()), 2)
    first.stop()
    os.rename(tmp_path / "a" / "t-0", tmp_path / "a" / f"t-0.{'ab' * 16}-future")
    manager = Managed(tmp_path / "a").start()
    assert manager.get(partition(0)) is None
    held = manager.in_directory(str(tmp_path / "a"))
    assert [(is_future, log.log_end_offset) for log, is_future in held] == [(True, 2)]


def test_a_replica_that_was_moving_is_deleted_with_what_has_moved(tmp_path: Path) -> None:
    """Else a topic of the same name would one day be given its records."""
    directories = (tmp_path / "a", tmp_path / "b")
    for directory in directories:
        managed = Managed(directory)
        fill(new_log(managed.start()), 2)
        managed.stop()
    os.rename(tmp_path / "b" / "t-0", tmp_path / "b" / f"t-0.{'ab' * 16}-future")
    managed = Managed(*directories, directory_delete_delay_ms=10)
    assert managed.start().delete([partition(0)]) == {}
    managed.pass_ms(10)
    assert [name for directory in directories for name in os.listdir(directory) if "t-0" in name] == []


def test_files_of_deleted_segments_go_after_their_delay(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", topics={"t": {"retention.ms": "1000", "file.delete.delay.ms": "500"}})
    log = new_log(managed.start())
    fill(log, 3)
    managed.clock.now_ms = NOW_MS + 1001
    assert managed.upkeep.retain() == 1
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)

    def deleted() -> list[str]:
        return [name for name in os.listdir(log.directory) if name.endswith(".deleted")]

    managed.pass_ms(499)
    assert len(deleted()) == 3
    managed.pass_ms(1)
    assert deleted() == []


def test_logs_are_flushed_when_flush_ms_have_passed(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", topics={"t": {"flush.ms": "1000"}})
    log = new_log(managed.start())
    fill(log, 1)
    managed.clock.now_ms += 999
    managed.upkeep.flush()
    assert log.recovery_point == 0
    managed.clock.now_ms += 1
    managed.upkeep.flush()
    assert log.recovery_point == 1


def test_the_old_segment_is_flushed_in_the_background_after_a_roll(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    log = new_log(managed.start())
    fill(log, 2)
    log.roll()
    assert log.recovery_point == 0
    managed.scheduler.run_due()
    assert log.recovery_point == 2


def test_idle_producers_are_removed(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", producer_expiration_ms=1000)
    append(new_log(managed.start()), idempotent(0))
    managed.clock.now_ms = NOW_MS + 1000
    assert managed.upkeep.expire_producers() == 1


def test_new_configs_reach_the_logs_of_their_topic(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    mine, other = new_log(manager), new_log(manager, topic="u")
    managed.topics = {"t": {"retention.ms": "5"}, "u": {"retention.ms": "6"}}
    manager.reconfigure("t")
    assert (mine.config.retention_ms, other.config.retention_ms) == (5, 604_800_000)


@pytest.mark.parametrize(("count", "of_one_file", "of_all"), [(3, 6, 0), (64, 0, 1)])
def test_logs_that_are_created_together_are_forced_to_disk_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, of_one_file: int, of_all: int
) -> None:
    manager = Managed(tmp_path / "a").start()
    synced: list[int] = []
    whole: list[str] = []
    monkeypatch.setattr("os.fsync", synced.append)
    monkeypatch.setattr("klog.storage.log.new_logs.sync_file_system", whole.append)
    monkeypatch.setattr("klog.storage.log.new_logs.can_sync_file_system", lambda: True)
    with manager.creating():
        logs = [new_log(manager, number) for number in range(count)]
        assert (synced, whole) == ([], [])
    assert (len(synced), len(whole)) == (of_one_file, of_all)
    assert Path(logs[0].directory, "partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID}"
    new_log(manager, count)
    assert len(synced) == of_one_file + 2


def test_a_disk_that_does_not_take_new_logs_takes_their_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("klog.storage.log.new_logs.os.fsync", fail)
        with manager.creating():
            log = new_log(manager, 0)
    # Before the controller is answered that the log is there.
    assert list(manager.offline) == [str(Path(log.directory).parent)]
    assert managed.listener.failed == [(str(Path(log.directory).parent), (partition(0),))]


def test_a_disk_that_does_not_take_a_topic_id_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    log = manager.get_or_create(partition(0), None, is_new=True)

    def fail(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("klog.storage.log.log_manager.write_topic_id", fail)
        with pytest.raises(OSError, match="No space left"):
            manager.get_or_create(partition(0), TOPIC_ID, is_new=False)
    assert log.topic_id is None
    managed.scheduler.run_due()
    assert list(manager.offline) == [str(Path(log.directory).parent)]
