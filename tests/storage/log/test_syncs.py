"""How often a start, a stop and a creation force files to disk, and that what must be there is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from klog.storage.files import file_system_sync
from klog.storage.files.file_system_sync import can_sync_file_system, sync_file_system
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import append, idempotent
from tests.storage.log.managing import Managed, new_log, partition

MANY = 20


class Syncs:
    """The files that were forced to disk, by name, and how many were when each file system was."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.file_systems: list[str] = []

    def of(self, directory: str) -> list[str]:
        return [os.path.relpath(path, directory) for path in self.files if path.startswith(directory)]


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """All calls, which are carried out."""
    found = Syncs()
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        found.files.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def whole(path: str) -> None:
        found.file_systems.append(path)
        sync_file_system(path)

    monkeypatch.setattr(os, "fsync", recorded)
    for module in ("closing", "directory_loading"):
        monkeypatch.setattr(f"klog.storage.log.{module}.sync_file_system", whole)
    return found


def filled(work: Path, count: int = MANY) -> Managed:
    managed = Managed(work)
    manager = managed.start()
    for number in range(count):
        log = new_log(manager, number)
        log.assign_epoch(0, 0)
        append(log, idempotent(0, 4))
    return managed


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and syncfs are Linux's")


def test_many_logs_are_forced_to_disk_at_once_when_they_are_closed(tmp_path: Path, syncs: Syncs) -> None:
    managed = filled(tmp_path / "a")
    syncs.files.clear()
    managed.stop()
    assert syncs.file_systems == [str(tmp_path / "a")]
    assert {os.path.dirname(path) for path in syncs.files} == {str(tmp_path), str(tmp_path / "a")}
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    manager = Managed(tmp_path / "a").start()
    assert {(log.log_end_offset, log.recovery_point) for log in manager.logs()} == {(4, 4)}
    assert append(manager.get(partition(3)), idempotent(0, 4)).duplicate


def test_few_logs_are_forced_to_disk_one_by_one(tmp_path: Path, syncs: Syncs) -> None:
    managed = filled(tmp_path / "a", 2)
    syncs.files.clear()
    managed.stop()
    assert syncs.file_systems == []
    zero, four = f"{0:020d}", f"{4:020d}"
    # Each file once.
    assert sorted(syncs.of(str(tmp_path / "a" / "t-0"))) == [
        ".",
        f"{zero}.index",
        f"{zero}.log",
        f"{zero}.timeindex",
        f"{four}.snapshot",
        "leader-epoch-checkpoint",
    ]


def test_a_system_without_such_a_call_closes_each_log_by_itself(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system_sync, "_syncfs", lambda: None)
    assert not can_sync_file_system()
    managed = filled(tmp_path / "a")
    syncs.files.clear()
    managed.stop()
    assert syncs.file_systems == []
    assert len([path for path in syncs.files if path.endswith(".log")]) == MANY
    with pytest.raises(OSError, match="cannot force a whole file system"):
        sync_file_system(str(tmp_path))


def test_a_failure_of_the_call_leaves_no_marker_of_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = filled(tmp_path / "a")

    def fails(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr("klog.storage.log.closing.sync_file_system", fails)
    managed.stop()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert managed.listener.all_failed


def test_records_that_came_after_the_call_are_forced_to_disk_by_themselves(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = filled(tmp_path / "a")
    late = managed.manager.get(partition(7))

    def whole(path: str) -> None:
        append(late, idempotent(4, 4))

    monkeypatch.setattr("klog.storage.log.closing.sync_file_system", whole)
    syncs.files.clear()
    managed.stop()
    assert [path for path in syncs.files if path.endswith(".log")] == [f"{late.directory}/{0:020d}.log"]
    manager = Managed(tmp_path / "a").start()
    assert manager.get(partition(7)).log_end_offset == 8


def test_what_many_recoveries_make_is_forced_to_disk_once_before_the_start_ends(
    tmp_path: Path, syncs: Syncs
) -> None:
    filled(tmp_path / "a").crash()
    syncs.files.clear()
    again = Managed(tmp_path / "a")
    manager = again.start()
    assert syncs.file_systems == [str(tmp_path / "a")]
    assert [path for path in syncs.files if "/t-" in path] == []
    assert {log.log_end_offset for log in manager.logs()} == {4}
    assert all(progress.recovered for progress in again.listener.progress)


def test_a_cut_is_on_disk_before_the_next_step(tmp_path: Path, syncs: Syncs) -> None:
    filled(tmp_path / "a").crash()
    log = tmp_path / "a" / "t-3" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:30])
    syncs.files.clear()
    Managed(tmp_path / "a").start()
    assert str(log) in syncs.files
    assert log.read_bytes() == whole


def test_a_new_log_forces_only_its_topic_id_to_disk(tmp_path: Path, syncs: Syncs) -> None:
    manager = Managed(tmp_path / "a").start()
    syncs.files.clear()
    log = new_log(manager)
    log.assign_epoch(0, 0)
    names = [name.partition(".")[0] for name in syncs.of(log.directory)]
    assert names == ["partition", ""]
    append(log, idempotent(0, 4))
    log.flush()
    assert "leader-epoch-checkpoint" in syncs.of(log.directory)
    # A later epoch is on disk before records have it.
    syncs.files.clear()
    log.assign_epoch(1, 4)
    assert [name.partition(".")[0] for name in syncs.of(log.directory)] == ["leader-epoch-checkpoint", ""]


def mapping_flags(log: PartitionLog, suffix: str) -> set[str]:
    """The kernel's flags of the mapping of a file of the log."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if log.directory in line:
            found = line.endswith(suffix)
        elif found and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    raise AssertionError(f"{suffix} is not mapped")


def test_the_first_entry_of_an_index_does_not_read_the_hole_behind_it(tmp_path: Path) -> None:
    log = new_log(Managed(tmp_path / "a").start())
    # "Random read advise".
    assert "rr" in mapping_flags(log, ".timeindex")
    assert "rr" in mapping_flags(log, ".index")
