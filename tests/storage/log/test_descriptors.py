"""A log directory stays online if descriptors run out, and a start says which limit it needs."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.formats.errors import StorageError
from klog.storage.log import descriptors
from klog.storage.log.append_values import Origin
from klog.storage.log.descriptors import DescriptorsError
from klog.storage.log.disk_guard import NoSegmentError
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log import building
from tests.storage.log.building import Later, append, idempotent, marker, stored, transactional
from tests.storage.log.managing import Managed, new_log, partition


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (most, most))


def test_a_log_beyond_the_limit_is_refused_and_its_directory_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    log = new_log(manager, 0)
    limit(monkeypatch, 3)
    with pytest.raises(
        DescriptorsError, match=r"2 logs need 70 file descriptors.*3 are allowed.*ulimit -n 256"
    ):
        new_log(manager, 1)
    managed.pass_ms(0)
    assert manager.offline == {}
    assert not Path(log.directory).with_name(str(partition(1))).exists()
    append(log, idempotent(0, 4))
    monkeypatch.undo()
    assert new_log(manager, 1).log_end_offset == 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_descriptors_or_memory_that_run_out_while_a_log_is_created_are_no_failure_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()

    def fails(*_: object) -> None:
        try:
            raise OSError(number, "none left")
        except OSError as error:
            raise StorageError("cannot be opened") from error

    monkeypatch.setattr("klog.storage.log.log_factory.create_log", fails)
    with pytest.raises(DescriptorsError):
        new_log(manager, 0)
    managed.pass_ms(0)
    assert manager.offline == {}
    # Nothing is left that the next start would have to recover.
    assert not (tmp_path / "a" / str(partition(0))).exists()


def test_a_start_that_may_not_open_all_logs_says_so_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Managed(tmp_path / "a")
    manager = first.start()
    for number in range(50):
        new_log(manager, number)
    first.stop()
    limit(monkeypatch, 160)
    with pytest.raises(DescriptorsError, match=r"50 logs need 214 file descriptors.*ulimit -n 512"):
        Managed(tmp_path / "a").start()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    limit(monkeypatch, 4096)
    second = Managed(tmp_path / "a")
    assert len(second.start().logs()) == 50


def test_descriptors_that_run_out_during_the_start_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Managed(tmp_path / "a")
    new_log(first.start())
    first.stop()

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "none left")

    monkeypatch.setattr("klog.storage.log.log_manager.load_directory", fails)
    with pytest.raises(DescriptorsError, match="1 logs need 67"):
        Managed(tmp_path / "a").start()


@pytest.mark.parametrize(
    ("most", "used", "expected"),
    [
        (1_000_000, 100, (1_000_000 - 64 - 100) // 3),
        # An eighth of a low limit is spare.
        (400, 100, (400 - 50 - 100) // 3),
        (400, 350, 0),
        (400, 400, 0),
    ],
)
def test_the_room_is_what_the_limit_leaves(
    monkeypatch: pytest.MonkeyPatch, most: int, used: int, expected: int
) -> None:
    limit(monkeypatch, most)
    monkeypatch.setattr(descriptors.os, "listdir", lambda _: ["0"] * used)
    assert descriptors.room_for_logs() == expected


def test_without_a_limit_there_is_always_room(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, resource.RLIM_INFINITY)
    assert descriptors.room_for_logs() > 1 << 40
    assert not descriptors.only_spare_left()


class Exhausted:
    """The calls that need a descriptor or memory: from the one with this number on, so many of them fail."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, number: int, error: int, calls: int = 1 << 30
    ) -> None:
        self.calls = 0
        for module, name in ((os, "open"), (mmap, "mmap")):
            monkeypatch.setattr(module, name, self._failing(getattr(module, name), number, error, calls))

    def refuse(self, *_: object, **__: object) -> None:
        """Stands for the built-in `open`, which does not call `os.open`."""
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _failing(self, call: Callable[..., Any], number: int, error: int, calls: int) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if number <= self.calls < number + calls:
                raise OSError(error, os.strerror(error))
            return call(*arguments, **options)

        return called


@pytest.mark.parametrize("follows", [False, True], ids=["leader", "follower"])
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("number", range(1, 10))
def test_a_log_that_cannot_begin_a_segment_stays_as_it_is_and_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: int, follows: bool
) -> None:
    background = Later()
    log = building.new_log(tmp_path, {"segment.bytes": "200"}, background=background)
    for sequence in range(2):
        append(log, idempotent(sequence))

    def again() -> None:
        if follows:
            fetched = idempotent(2, base_offset=2)
            struct.pack_into(">i", fetched, 12, 0)
            log.append_as_follower(fetched, 0, building.NOW_MS)
        else:
            append(log, idempotent(2))

    segments, files = log.segments.bases, sorted(os.listdir(log.directory))
    with monkeypatch.context() as patch:
        # What is done after the new segment was made is undone, which needs what it had.
        Exhausted(patch, number, error, 1 if number > 7 else 1 << 30)
        with pytest.raises(NoSegmentError, match="no new segment can be begun"):
            again()
    assert (log.closed, background.failures, log.log_end_offset) == (False, [], 2)
    assert (log.segments.bases, sorted(os.listdir(log.directory))) == (segments, files)
    again()
    assert (log.log_end_offset, log.segments.bases) == (3, [0, 2])
    assert (Path(log.directory) / f"{2:020d}.snapshot").exists()
    loaded, _ = building.reload(log, tmp_path)
    assert loaded.log_end_offset == 3


def state_of(log: PartitionLog) -> tuple[object, ...]:
    """What must be as it was if a change is refused."""
    return (
        log.directory,
        log.log_start_offset,
        log.log_end_offset,
        log.epochs.entries,
        log.epochs.latest,
        log.segments.bases,
        {pid: [*each.batches] for pid, each in log.producers.by_id.items()},
        sorted(os.listdir(log.directory)),
        [segment.offset_index.entries for segment in log.segments],
        (Path(log.directory) / "leader-epoch-checkpoint").read_bytes(),
    )


CHANGES: dict[str, Callable[[PartitionLog], object]] = {
    "a leader of a new epoch": lambda log: log.assign_epoch(7, log.log_end_offset),
    "a record in a new epoch": lambda log: append(log, idempotent(3), epoch=7),
    "an index entry": lambda log: append(log, idempotent(3)),
    "a marker that aborts": lambda log: append(
        log, marker(commit=False, producer=2), origin=Origin.COORDINATOR
    ),
    "a log start": lambda log: log.advance_log_start(2),
    "retention": lambda log: log.delete_oldest(1),
    "a truncation": lambda log: log.truncate_to(1),
    "a new start": lambda log: log.restart_at(10),
    "another directory": lambda log: log.rename_directory(f"{log.directory}.x"),
    "a flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_lacks_descriptors_leaves_the_log_as_it_was_and_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: str, error: int
) -> None:
    background = Later()
    log = building.new_log(tmp_path, {"index.interval.bytes": "0"}, background=background)
    log.assign_epoch(0, 0)
    for sequence in range(2):
        append(log, idempotent(sequence))
    log.roll()
    append(log, idempotent(2))
    append(log, transactional(0, producer=2))
    log.set_high_watermark(4)
    for segment in log.segments:
        segment.offset_index._allocated_bytes = 0  # the next entry is on a page of its own
    before = state_of(log)
    with monkeypatch.context() as patch:
        Exhausted(patch, 1, error)
        with pytest.raises((OSError, StorageError)):
            CHANGES[change](log)
    assert (log.closed, background.failures) == (False, [])
    assert "the log directory stays online" in caplog.text
    assert state_of(log) == before
    CHANGES[change](log)
    assert state_of(log) != before or change == "a flush"
    loaded, _ = building.reload(log, Path(log.directory).parent)
    assert (loaded.log_end_offset, stored(loaded)) == (log.log_end_offset, stored(log))


def test_a_truncation_that_stops_half_way_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others took the descriptors that were there when it began: what is in memory cannot be trusted."""
    background = Later()
    log = building.new_log(tmp_path, background=background)
    for sequence in range(2):
        append(log, idempotent(sequence))
    Exhausted(monkeypatch, 6, errno.EMFILE)
    with pytest.raises(StorageError, match="half-way"):
        log.truncate_to(1)
    assert log.closed
    assert len(background.failures) == 1


def test_a_checkpoint_that_lacks_descriptors_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    managed = Managed(tmp_path / "a")
    manager = managed.start()
    log = new_log(manager, 0)
    append(log, idempotent(0))
    log.flush()
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", Exhausted(patch, 1, errno.EMFILE).refuse)
        manager.checkpoint()
    assert (manager.offline, log.closed) == ({}, False)
    assert "stays online" in caplog.text
    manager.checkpoint()
    text = (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text()
    assert f"{partition(0).topic} 0 1" in text


def test_a_reader_that_lacks_descriptors_closes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = Later()
    log = building.new_log(tmp_path, {"index.interval.bytes": "0"}, background=background)
    for sequence in range(3):
        append(log, idempotent(sequence))
    log.roll()
    with monkeypatch.context() as patch:
        Exhausted(patch, 1, errno.EMFILE)
        with pytest.raises((OSError, StorageError)):
            log.read(1, 100, 3)
    assert (log.closed, background.failures) == (False, [])
    assert log.read(1, 100, 3).size


def test_an_error_of_the_disk_while_a_segment_is_begun_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = Later()
    log = building.new_log(tmp_path, {"segment.bytes": "200"}, background=background)
    for sequence in range(2):
        append(log, idempotent(sequence))
    Exhausted(monkeypatch, 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        append(log, idempotent(2))
    assert log.closed
    assert len(background.failures) == 1
