"""All logs of a broker: loading, choosing directories, checkpoints, deletion, failing disks, stopping."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.log.checkpoints import ALL_CHECKPOINTS
from klog.storage.log.data_directory import DataDirectory, DirectoryLockedError
from klog.storage.log.directory_loading import UnknownDirectoryError
from klog.storage.log.disk_guard import LogClosedError
from klog.storage.log.log_manager import LogManager
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import NOW_MS, append, batch, fill, idempotent, stored
from tests.storage.log.managing import Managed

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def where(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def new(manager: LogManager, number: int = 0, topic: str = "t") -> PartitionLog:
    return manager.get_or_create(where(number, topic), TOPIC_ID, is_new=True)


def checkpoint(directory: Path, kind: FileKind) -> dict[TopicPartition, int]:
    return DataDirectory(str(directory)).read_offsets(kind)


def test_a_new_log_has_its_files_and_its_topic_id(tmp_path: Path) -> None:
    log = new(Managed(tmp_path / "a").start())
    assert sorted(os.listdir(log.directory)) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert Path(log.directory, "partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID}"


def test_a_log_is_made_once(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a").start()
    assert manager.get(where(0)) is None
    log = manager.get_or_create(where(0), None, is_new=True)
    assert (log.topic_id, manager.get(where(0))) == (None, log)
    assert new(manager) is log
    assert log.topic_id == TOPIC_ID


def test_a_new_log_goes_where_the_fewest_are(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    parents = [Path(new(manager, n).directory).parent.name for n in range(4)]
    assert parents == ["a", "b", "a", "b"]


def test_a_clean_stop_loses_nothing_and_the_next_start_scans_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Managed(tmp_path / "a", tmp_path / "b")
    manager = first.start()
    for n in range(3):
        append(new(manager, n), idempotent(0, 4))
    manager.logs()[0].set_high_watermark(3)
    first.stop()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    monkeypatch.setattr("klog.storage.recovery.plan_recovery", None)
    second = Managed(tmp_path / "a", tmp_path / "b")
    manager = second.start()
    assert [manager.get(where(n)).log_end_offset for n in range(3)] == [4, 4, 4]
    assert [manager.get(where(n)).high_watermark for n in range(3)] == [3, 0, 0]
    assert [manager.get(where(n)).recovery_point for n in range(3)] == [4, 4, 4]
    assert manager.get(where(0)).topic_id == TOPIC_ID
    assert append(manager.get(where(1)), idempotent(0, 4)).duplicate
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists(), "a crash from now on is a crash"
    assert {(p.done, p.total, p.recovered) for p in second.heard.progress} == {
        (1, 2, False),
        (2, 2, False),
        (1, 1, False),
    }


def test_after_a_crash_every_log_is_recovered(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    log = new(first.start())
    fill(log, 5)
    first.crash()
    with open(log.segments.active.path(FileKind.LOG), "ab") as file:
        file.write(b"half a batch")
    second = Managed(tmp_path / "a")
    manager = second.start()
    assert manager.get(where(0)).log_end_offset == 5
    assert [p.recovered for p in second.heard.progress] == [True]
    kept = list((tmp_path / "klog-quarantine").rglob("*.tail"))
    assert [path.read_bytes() for path in kept] == [b"half a batch"]
    assert not list((tmp_path / "klog-quarantine").rglob("*.replaced"))


def test_checkpoints_are_written_on_their_timers(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    log = new(managed.start())
    managed.upkeep.start()
    fill(log, 3)
    log.roll()
    log.advance_log_start(2)
    managed.pass_ms(5_000)
    assert checkpoint(tmp_path / "a", FileKind.REPLICATION_CHECKPOINT) == {where(0): 3}
    assert checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {}
    managed.pass_ms(55_000)
    assert checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {where(0): 3}
    assert checkpoint(tmp_path / "a", FileKind.LOG_START_CHECKPOINT) == {where(0): 2}


def test_the_log_start_checkpoint_holds_only_what_the_segments_do_not_say(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    first, second = new(manager, 0), new(manager, 1)
    for log in (first, second):
        fill(log, 3)
    first.advance_log_start(1)
    manager.checkpoint()
    assert checkpoint(tmp_path / "a", FileKind.LOG_START_CHECKPOINT) == {where(0): 1}
    managed.crash()
    assert Managed(tmp_path / "a").start().get(where(0)).log_start_offset == 1


def test_a_cut_is_in_the_checkpoints_at_once(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a").start()
    fill(new(manager), 5)
    manager.get(where(0)).flush()
    assert manager.truncate_to({where(0): 2}) == {}
    assert checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {where(0): 2}
    assert manager.restart_at({where(0): 1}) == {}
    assert checkpoint(tmp_path / "a", FileKind.RECOVERY_POINT_CHECKPOINT) == {where(0): 1}


def test_a_deleted_log_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    log = new(manager)
    fill(log, 3)
    manager.delete([where(0)])
    (renamed,) = [name for name in os.listdir(tmp_path / "a") if name.startswith("t-0")]
    assert renamed.endswith("-delete")
    assert manager.get(where(0)) is None
    with pytest.raises(LogClosedError):
        append(log, batch())
    assert new(manager).log_end_offset == 0, "the name is free again"
    managed.pass_ms(59_999)
    assert renamed in os.listdir(tmp_path / "a")
    managed.pass_ms(1)
    assert renamed not in os.listdir(tmp_path / "a")
    assert managed.heard.failed == []


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    """Ten flushed logs of three records in two directories."""
    manager = Managed(tmp_path / "a", tmp_path / "b").start()
    for number in range(10):
        fill(new(manager, number), 3)
        manager.get(where(number)).flush()
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
        for partition, offset in checkpoint(tmp_path / name, FileKind.RECOVERY_POINT_CHECKPOINT).items()
    }


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda manager, logs: manager.delete([where(99), *logs]), {}),
        (lambda manager, logs: manager.set_aside_strays(logs), {}),
        (
            lambda manager, logs: manager.truncate_to(dict.fromkeys(logs, 2)),
            dict.fromkeys(map(where, range(8)), 2),
        ),
        (
            lambda manager, logs: manager.restart_at(dict.fromkeys(logs, 1)),
            dict.fromkeys(map(where, range(8)), 1),
        ),
    ],
    ids=["delete", "stray", "truncate", "restart"],
)
def test_many_logs_are_changed_with_one_writing_of_each_directory_s_checkpoints(
    tmp_path: Path, manager: LogManager, written: list[tuple[str, FileKind]], change, left
) -> None:
    assert change(manager, [where(number) for number in range(8)]) == {}
    assert sorted(written) == sorted(
        (str(tmp_path / name), kind) for name in "ab" for kind in ALL_CHECKPOINTS
    )
    assert recovery_points(tmp_path) == {**left, where(8): 3, where(9): 3}


def test_a_truncation_that_drops_nothing_writes_no_checkpoints(
    manager: LogManager, written: list[tuple[str, FileKind]]
) -> None:
    assert manager.truncate_to({where(0): 3, where(1): 7}) == {}
    assert written == []


def test_a_log_that_cannot_be_truncated_does_not_hold_up_the_others(tmp_path: Path) -> None:
    manager = Managed(tmp_path / "a").start()
    fill(new(manager, 0), 3)
    fill(new(manager, 1), 3)
    manager.get(where(0)).release()
    failed = manager.truncate_to({where(0): 1, where(1): 1, where(2): 1})
    assert {partition: type(error) for partition, error in failed.items()} == {
        where(0): LogClosedError,
        where(2): StorageError,
    }
    assert manager.get(where(1)).log_end_offset == 1


def test_a_log_that_cannot_be_deleted_does_not_hold_up_the_others(tmp_path: Path, monkeypatch) -> None:
    manager = Managed(tmp_path / "a").start()
    stuck = new(manager, 0)
    new(manager, 1)

    def fails(_path: str) -> None:
        raise StorageError("no")

    monkeypatch.setattr(stuck, "rename_directory", fails)
    assert list(manager.delete([where(0), where(1)])) == [where(0)]
    assert [name[:3] for name in os.listdir(tmp_path / "a") if name.endswith("-delete")] == ["t-1"]


def test_a_deletion_that_a_crash_cut_short_is_finished_after_the_next_start(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    manager = first.start()
    new(manager)
    manager.delete([where(0)])
    first.crash()
    second = Managed(tmp_path / "a")
    assert second.start().logs() == []
    second.pass_ms(60_000)
    assert not [name for name in os.listdir(tmp_path / "a") if name.startswith("t-0")]


def test_a_stray_replica_is_kept_aside(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    manager = first.start()
    new(manager)
    assert manager.set_aside_strays([where(0)]) == {}
    first.pass_ms(10**6)
    first.stop()
    assert Managed(tmp_path / "a").start().logs() == []
    assert [name for name in os.listdir(tmp_path / "a") if name.endswith("-stray")]


def test_a_future_replica_is_loaded_but_does_not_serve(tmp_path: Path) -> None:
    first = Managed(tmp_path / "a")
    fill(new(first.start()), 2)
    first.stop()
    os.rename(tmp_path / "a" / "t-0", tmp_path / "a" / f"t-0.{'ab' * 16}-future")
    manager = Managed(tmp_path / "a").start()
    assert manager.get(where(0)) is None
    held = manager.in_directory(str(tmp_path / "a"))
    assert [(is_future, log.log_end_offset) for log, is_future in held] == [(True, 2)]


def test_a_replica_that_was_moving_is_deleted_with_what_has_moved(tmp_path: Path) -> None:
    """Else a topic of the same name would one day be given its records."""
    directories = (tmp_path / "a", tmp_path / "b")
    for directory in directories:
        managed = Managed(directory)
        fill(new(managed.start()), 2)
        managed.stop()
    os.rename(tmp_path / "b" / "t-0", tmp_path / "b" / f"t-0.{'ab' * 16}-future")
    managed = Managed(*directories, directory_delete_delay_ms=10)
    assert managed.start().delete([where(0)]) == {}
    managed.pass_ms(10)
    assert [name for directory in directories for name in os.listdir(directory) if "t-0" in name] == []


def test_checkpoints_speak_of_future_replicas_too(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    log = new(managed.start())
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


def test_files_of_deleted_segments_go_after_their_delay(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", topics={"t": {"retention.ms": "1000", "file.delete.delay.ms": "500"}})
    log = new(managed.start())
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
    log = new(managed.start())
    fill(log, 1)
    managed.clock.now_ms += 999
    managed.upkeep.flush()
    assert log.recovery_point == 0
    managed.clock.now_ms += 1
    managed.upkeep.flush()
    assert log.recovery_point == 1


def test_the_old_segment_is_flushed_in_the_background_after_a_roll(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    log = new(managed.start())
    fill(log, 2)
    log.roll()
    assert log.recovery_point == 0
    managed.scheduler.run_due()
    assert log.recovery_point == 2


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", producer_expiration_ms=1000)
    append(new(managed.start()), idempotent(0))
    managed.clock.now_ms = NOW_MS + 1000
    assert managed.upkeep.expire_producers() == 1


def test_new_configs_reach_the_logs_of_their_topic(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    mine, other = new(manager), new(manager, topic="u")
    managed.topics = {"t": {"retention.ms": "5"}, "u": {"retention.ms": "6"}}
    manager.reconfigure("t")
    assert (mine.config.retention_ms, other.config.retention_ms) == (5, 604_800_000)


def test_directories_say_whose_they_are(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    managed.manager.open()
    assert managed.manager.identities() == {str(tmp_path / "a"): None}
    managed.manager.claim(3, "c")
    (identity,) = managed.manager.identities().values()
    assert (identity.node_id, identity.cluster_id, identity.version) == (3, "c", 0)


@pytest.mark.parametrize("content", [b"version=7\n", b"broker.id=one\n", b"version=1\n", b"a=\\u00zz\n"])
def test_a_directory_that_cannot_say_whose_it_is_goes_offline(tmp_path: Path, content: bytes) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    managed.start()
    managed.stop()
    (tmp_path / "b" / "meta.properties").write_bytes(content)
    managed = Managed(tmp_path / "a", tmp_path / "b")
    managed.manager.open()
    assert managed.manager.identities().keys() == {str(tmp_path / "a")}
    assert managed.heard.failed == [(str(tmp_path / "b"), ())]
    assert (tmp_path / "b" / "meta.properties").read_bytes() == content
    (tmp_path / "a" / "meta.properties").write_bytes(content)
    with pytest.raises(StorageError, match="no log directory can be used"):
        managed.manager.identities()
    managed.crash()


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    managed.start()
    take = (
        "import sys\n"
        "from klog.storage.log.data_directory import DataDirectory\n"
        "DataDirectory(sys.argv[1]).take_lock()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", take, str(tmp_path / "a")], capture_output=True, text=True, check=False
    )
    assert DirectoryLockedError.__name__ in done.stderr
    managed.stop()
    subprocess.run([sys.executable, "-c", take, str(tmp_path / "a")], check=True)


def test_what_a_dead_broker_left_unfinished_is_removed(tmp_path: Path) -> None:
    unfinished = ("meta.properties.1.tmp", "recovery-point-offset-checkpoint.tmp")
    others = ("notes.tmp", "recovery-point-offset-checkpoint.old")
    (tmp_path / "a").mkdir()
    for name in (*unfinished, *others):
        (tmp_path / "a" / name).write_text("0")
    Managed(tmp_path / "a").start()
    left = os.listdir(tmp_path / "a")
    assert set(left) & {*unfinished, *others} == set(others)


@pytest.mark.parametrize("name", ["lost+found", "t-01", "notes"])
def test_a_directory_that_is_no_partition_s_keeps_the_broker_from_starting(tmp_path: Path, name: str) -> None:
    (tmp_path / "a" / name).mkdir(parents=True)
    with pytest.raises(UnknownDirectoryError, match=name.replace("+", r"\+")):
        Managed(tmp_path / "a").start()


def test_a_broker_that_may_not_start_leaves_its_other_directories_cleanly_stopped(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    new(managed.start())
    managed.stop()
    (tmp_path / "b" / "lost+found").mkdir(parents=True)
    refused = Managed(tmp_path / "a", tmp_path / "b")
    with pytest.raises(UnknownDirectoryError):
        refused.start()
    refused.crash()
    (tmp_path / "b" / "lost+found").rmdir()
    again = Managed(tmp_path / "a", tmp_path / "b")
    again.start()
    assert [p.recovered for p in again.heard.progress] == [False]


def test_one_partition_in_two_directories_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    for name in ("a", "b"):
        managed = Managed(tmp_path / name)
        new(managed.start())
        managed.stop()
    with pytest.raises(UnknownDirectoryError, match="t-0"):
        Managed(tmp_path / "a", tmp_path / "b").start()


# -- failing disks


def break_writes(monkeypatch: pytest.MonkeyPatch, error: int = 28) -> None:
    def fails(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "pwrite", fails)


def test_a_full_disk_takes_its_directory_offline_with_one_clear_line_and_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    first, second, third = new(manager, 0), new(manager, 1), new(manager, 2)
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        break_writes(broken)
        with pytest.raises(OSError, match="No space left"):
            append(first, batch())
        managed.scheduler.run_due()
    assert managed.heard.failed == [(str(tmp_path / "a"), (where(0), where(2)))]
    (line,) = caplog.messages
    assert str(tmp_path / "a") in line
    assert "No space left on device" in line
    assert list(manager.offline) == [str(tmp_path / "a")]
    for log in (first, third):
        with pytest.raises(LogClosedError):
            append(log, batch())
    assert append(second, batch()).last_offset == 0
    assert manager.get(where(0)) is None
    assert Path(new(manager, 7).directory).parent.name == "b"
    with pytest.raises(StorageError, match="offline"):
        manager.get_or_create(where(0), TOPIC_ID, is_new=False)
    managed.stop()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not managed.heard.all_failed


def test_what_was_written_before_the_disk_failed_is_there_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a")
    log = new(managed.start())
    fill(log, 3)
    with monkeypatch.context() as broken:
        break_writes(broken)
        with pytest.raises(OSError, match="No space"):
            append(log, batch())
        managed.scheduler.run_due()
    assert managed.heard.all_failed
    managed.stop()
    assert len(stored(Managed(tmp_path / "a").start().get(where(0)))) == 3


def test_a_directory_whose_failure_is_still_to_be_told_is_not_marked_as_cleanly_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    log, other = new(manager), new(manager, 1)
    fill(log, 3)
    fill(other, 3)
    with monkeypatch.context() as broken:
        break_writes(broken)
        with pytest.raises(OSError, match="No space"):
            append(log, batch())
    manager.stop()  # before the scheduler has its turn
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    again = Managed(tmp_path / "a", tmp_path / "b").start()
    assert [len(stored(again.get(where(n)))) for n in range(2)] == [3, 3]
    # Its largest timestamp is what retention goes by.
    assert again.get(where(0)).segments.active.max_timestamp.timestamp == NOW_MS


def test_a_directory_that_cannot_be_made_is_offline_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    managed = Managed(tmp_path / "file" / "a", tmp_path / "b")
    manager = managed.start()
    assert manager.online == (str(tmp_path / "b"),)
    assert list(manager.offline) == [str(tmp_path / "file" / "a")]
    with pytest.raises(StorageError, match="no log directory"):
        Managed(tmp_path / "file" / "a").start()


def test_a_directory_that_becomes_read_only_goes_offline_when_a_log_is_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    real = os.makedirs

    def read_only(path: str, *args: object, **kwargs: object) -> None:
        if str(path).startswith(str(tmp_path / "a")):
            raise OSError(30, "Read-only file system")
        real(path, *args, **kwargs)

    monkeypatch.setattr(os, "makedirs", read_only)
    assert Path(new(manager).directory).parent.name == "b"
    managed.scheduler.run_due()
    assert list(manager.offline) == [str(tmp_path / "a")]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "t-0/leader-epoch-checkpoint"])
def test_a_damaged_checkpoint_takes_its_directory_offline(tmp_path: Path, name: str) -> None:
    managed = Managed(tmp_path / "a")
    fill(new(managed.start()), 1)
    managed.stop()
    (tmp_path / "a" / name).write_text("0\n7\nnonsense\n")
    again = Managed(tmp_path / "a", tmp_path / "b")
    manager = again.start()
    assert list(manager.offline) == [str(tmp_path / "a")]
    again.stop()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    new(manager)

    def fails(*_: object) -> None:
        raise StorageError("cannot be written")

    monkeypatch.setattr("klog.storage.checkpoint_files.write_atomically", fails)
    manager.checkpoint()
    assert managed.heard.all_failed
