"""What recovery keeps: records, for a while, and nothing that follows from them."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.storage.files.disk import Disk
from klog.storage.files.quarantine import MAX_AGE_MS, prune
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_run import run_recovery
from tests.corpora import Corpus
from tests.storage.log.managing import Managed
from tests.storage.partition_copies import NOW_MS, SETTINGS, contents, copied

DAY_MS = 86_400_000


def killed_broker(tmp_path: Path) -> Path:
    """A log directory without the marker of a clean stop, whose partition is valid."""
    directory = tmp_path / "logs" / "b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, directory)
    return directory


def started(log_dir: Path, now_ms: int = NOW_MS) -> Managed:
    managed = Managed(log_dir)
    managed.clock.now_ms = now_ms
    managed.start()
    return managed


def test_a_stale_snapshot_is_removed_at_each_crash_without_a_quarantine_or_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = killed_broker(tmp_path)
    for _ in range(2):
        (directory / "00000000000000000003.snapshot").write_bytes(b"\0\1\x48\x67\x4b\xc7\0\0\0\0")
        with caplog.at_level(logging.INFO, "klog"):
            started(tmp_path / "logs").crash()
    assert not (tmp_path / "klog-quarantine").exists()
    assert not (directory / "00000000000000000003.snapshot").exists()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    told = [record.getMessage() for record in caplog.records if "3.snapshot" in record.getMessage()]
    assert len(told) == 2


def test_a_broker_keeps_the_records_that_recovery_removes_and_no_indexes(tmp_path: Path) -> None:
    directory = killed_broker(tmp_path)
    log = directory / "00000000000000000000.log"
    os.truncate(log, log.stat().st_size - 1)
    later = (directory / "00000000000000000025.log").read_bytes()
    started(tmp_path / "logs").crash()
    (kept,) = (tmp_path / "klog-quarantine" / "logs" / "b-0").iterdir()
    assert {path.name for path in kept.iterdir()} == {
        "00000000000000000000.log.tail",
        "00000000000000000025.log",
        "manifest.json",
    }
    assert (kept / "00000000000000000025.log").read_bytes() == later


def past(root: Path, name: str, created_ms: int, size_bytes: int = 10) -> Path:
    directory = root / "t-0" / name
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text(json.dumps({"version": 1, "createdMs": created_ms}))
    (directory / "0.log.tail").write_bytes(bytes(size_bytes))
    return directory


def test_the_quarantine_forgets_what_is_older_than_its_limit(tmp_path: Path) -> None:
    old, young = past(tmp_path, "old", NOW_MS - 31 * DAY_MS), past(tmp_path, "young", NOW_MS - 29 * DAY_MS)
    foreign = tmp_path / "t-0" / "notes"
    foreign.mkdir()
    assert [one.path for one in prune(str(tmp_path), NOW_MS)] == [str(old)]
    assert (old.exists(), young.exists(), foreign.exists()) == (False, True, True)


def test_the_quarantine_forgets_the_oldest_above_its_size(tmp_path: Path) -> None:
    made = [past(tmp_path, str(day), NOW_MS - day * DAY_MS, 1000) for day in (3, 2, 1)]
    now = past(tmp_path, "now", NOW_MS, 5000)
    prune(str(tmp_path), NOW_MS, max_bytes=7500)
    assert [directory.exists() for directory in (*made, now)] == [False, True, True, True]
    prune(str(tmp_path), NOW_MS, max_bytes=0)
    assert [directory.exists() for directory in (*made, now)] == [False, False, False, True]


def test_a_broker_that_starts_applies_the_limits(tmp_path: Path) -> None:
    killed_broker(tmp_path)
    root = tmp_path / "klog-quarantine" / "logs"
    old = past(root, "old", NOW_MS - MAX_AGE_MS - 1)
    young = past(root, "young", NOW_MS - MAX_AGE_MS + DAY_MS)
    started(tmp_path / "logs").stop()
    assert (old.exists(), young.exists()) == (False, True)


def test_what_a_killed_recovery_was_writing_goes_at_the_next_one(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.flip-last-0"), tmp_path)
    root = tmp_path / "quarantine"
    half = root / directory.name / "20260101T000000Z" / "00000000000000000000.log.tail.4711.tmp"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half a tail")
    (directory / "00000000000000000000.index.4711.tmp").write_bytes(b"half an index")
    run_recovery(plan_recovery(str(directory), SETTINGS), SETTINGS, str(root))
    assert list(tmp_path.rglob("*.4711.tmp")) == []
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(b"the last thing that was written")
    run_recovery(plan_recovery(str(directory), SETTINGS), SETTINGS, str(root))
    assert not half.exists()


class FullDisk(Disk):
    """A disk with little space."""

    def space_below(self, path: str, other: str) -> tuple[int, bool]:
        return 3, True


def test_a_full_quarantine_is_one_message_before_anything_changes(tmp_path: Path) -> None:
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.flip-last-0"), tmp_path)
    before = contents(directory)
    root = tmp_path / "quarantine"
    with pytest.raises(StorageError, match=r"needs \d+ bytes, but 3 are free on its disk") as caught:
        run_recovery(plan_recovery(str(directory), SETTINGS), SETTINGS, str(root), FullDisk())
    assert "nothing was changed" in str(caught.value)
    assert contents(directory) == before
    assert not root.exists()


def test_a_broker_says_once_that_a_full_quarantine_loses_what_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = killed_broker(tmp_path)
    log = directory / "00000000000000000025.log"
    os.truncate(log, log.stat().st_size - 1)
    monkeypatch.setattr(Disk, "space_below", FullDisk.space_below)
    started(tmp_path / "logs").stop()
    lost = [record for record in caplog.records if "is lost" in record.getMessage()]
    assert len(lost) == 1
    assert "the quarantine needs" in lost[0].getMessage()
