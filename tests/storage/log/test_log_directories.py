"""Log directories: identity, locks, names that do not belong there, disks that fail."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.storage.log.data_directory import DirectoryLockedError
from klog.storage.log.directory_loading import UnknownDirectoryError
from klog.storage.log.disk_guard import LogClosedError
from tests.storage.log.building import NOW_MS, append, batch, fill, stored
from tests.storage.log.managing import TOPIC_ID, Managed, new_log, partition


def test_directories_record_their_broker_and_cluster(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    managed.manager.open()
    assert managed.manager.identities() == {str(tmp_path / "a"): None}
    managed.manager.claim(3, "c")
    (identity,) = managed.manager.identities().values()
    assert (identity.node_id, identity.cluster_id, identity.version) == (3, "c", 0)


@pytest.mark.parametrize("content", [b"version=7\n", b"broker.id=one\n", b"version=1\n", b"a=\\u00zz\n"])
def test_a_directory_with_unreadable_meta_properties_goes_offline(tmp_path: Path, content: bytes) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    managed.start()
    managed.stop()
    (tmp_path / "b" / "meta.properties").write_bytes(content)
    managed = Managed(tmp_path / "a", tmp_path / "b")
    managed.manager.open()
    assert managed.manager.identities().keys() == {str(tmp_path / "a")}
    assert managed.listener.failed == [(str(tmp_path / "b"), ())]
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


def test_temporary_files_of_a_dead_broker_are_removed(tmp_path: Path) -> None:
    unfinished = ("meta.properties.1.tmp", "recovery-point-offset-checkpoint.tmp")
    others = ("notes.tmp", "recovery-point-offset-checkpoint.old")
    (tmp_path / "a").mkdir()
    for name in (*unfinished, *others):
        (tmp_path / "a" / name).write_text("0")
    Managed(tmp_path / "a").start()
    left = os.listdir(tmp_path / "a")
    assert set(left) & {*unfinished, *others} == set(others)


@pytest.mark.parametrize("name", ["lost+found", "t-01", "notes"])
def test_a_directory_of_no_partition_keeps_the_broker_from_starting(tmp_path: Path, name: str) -> None:
    (tmp_path / "a" / name).mkdir(parents=True)
    with pytest.raises(UnknownDirectoryError, match=name.replace("+", r"\+")):
        Managed(tmp_path / "a").start()


def test_a_broker_that_may_not_start_leaves_its_other_directories_cleanly_stopped(tmp_path: Path) -> None:
    managed = Managed(tmp_path / "a")
    new_log(managed.start())
    managed.stop()
    (tmp_path / "b" / "lost+found").mkdir(parents=True)
    refused = Managed(tmp_path / "a", tmp_path / "b")
    with pytest.raises(UnknownDirectoryError):
        refused.start()
    refused.crash()
    (tmp_path / "b" / "lost+found").rmdir()
    again = Managed(tmp_path / "a", tmp_path / "b")
    again.start()
    assert [p.recovered for p in again.listener.progress] == [False]


def test_one_partition_in_two_directories_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    for name in ("a", "b"):
        managed = Managed(tmp_path / name)
        new_log(managed.start())
        managed.stop()
    with pytest.raises(UnknownDirectoryError, match="t-0"):
        Managed(tmp_path / "a", tmp_path / "b").start()


def break_writes(monkeypatch: pytest.MonkeyPatch, error: int = 28) -> None:
    def fails(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "pwrite", fails)


def test_a_full_disk_takes_its_directory_offline_with_one_clear_line_and_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    first, second, third = new_log(manager, 0), new_log(manager, 1), new_log(manager, 2)
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        break_writes(broken)
        with pytest.raises(OSError, match="No space left"):
            append(first, batch())
        managed.scheduler.run_due()
    assert managed.listener.failed == [(str(tmp_path / "a"), (partition(0), partition(2)))]
    (line,) = caplog.messages
    assert str(tmp_path / "a") in line
    assert "No space left on device" in line
    assert list(manager.offline) == [str(tmp_path / "a")]
    for log in (first, third):
        with pytest.raises(LogClosedError):
            append(log, batch())
    assert append(second, batch()).last_offset == 0
    assert manager.get(partition(0)) is None
    assert Path(new_log(manager, 7).directory).parent.name == "b"
    with pytest.raises(StorageError, match="offline"):
        manager.get_or_create(partition(0), TOPIC_ID, is_new=False)
    managed.stop()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not managed.listener.all_failed


def test_what_was_written_before_the_disk_failed_is_there_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a")
    log = new_log(managed.start())
    fill(log, 3)
    with monkeypatch.context() as broken:
        break_writes(broken)
        with pytest.raises(OSError, match="No space"):
            append(log, batch())
        managed.scheduler.run_due()
    assert managed.listener.all_failed
    managed.stop()
    assert len(stored(Managed(tmp_path / "a").start().get(partition(0)))) == 3


def test_a_directory_whose_failure_is_not_handled_yet_is_not_marked_as_cleanly_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a", tmp_path / "b")
    manager = managed.start()
    log, other = new_log(manager), new_log(manager, 1)
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
    assert [len(stored(again.get(partition(n)))) for n in range(2)] == [3, 3]
    # Its largest timestamp is what retention goes by.
    assert again.get(partition(0)).segments.active.max_timestamp.timestamp == NOW_MS


def test_a_directory_that_cannot_be_created_is_offline_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    managed = Managed(tmp_path / "file" / "a", tmp_path / "b")
    manager = managed.start()
    assert manager.online == (str(tmp_path / "b"),)
    assert list(manager.offline) == [str(tmp_path / "file" / "a")]
    with pytest.raises(StorageError, match="no log directory"):
        Managed(tmp_path / "file" / "a").start()


def test_a_directory_that_becomes_read_only_goes_offline_when_a_log_is_created(
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
    assert Path(new_log(manager).directory).parent.name == "b"
    managed.scheduler.run_due()
    assert list(manager.offline) == [str(tmp_path / "a")]


def test_a_damaged_topic_id_takes_its_directory_offline_for_it_cannot_be_rebuilt(tmp_path: Path) -> None:
    name = "t-0/partition.metadata"
    managed = Managed(tmp_path / "a")
    fill(new_log(managed.start()), 1)
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
    new_log(manager)

    def fails(*_: object) -> None:
        raise StorageError("cannot be written")

    monkeypatch.setattr("klog.storage.files.checkpoint_files.write_atomically", fails)
    manager.checkpoint()
    assert managed.listener.all_failed
