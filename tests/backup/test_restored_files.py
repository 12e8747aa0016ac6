"""A restore reads each object once, and what it writes follows from the batches while they are written."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import pytest

from klog.backup.model import Piece
from klog.backup.moment.view import PartitionView
from klog.backup.reading import open_piece
from klog.backup.repository import Repository
from klog.backup.restoring import selection
from klog.backup.restoring.batches import Rows
from klog.backup.restoring.partition_files import PartitionWriter
from klog.export import outputs
from klog.formats.errors import CorruptRecordError, StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.reading.producer_state import producers_in
from klog.storage.repair.segment_scan import IndexSettings
from tests.backup.repositories import Backups, log_files
from tests.commands.running import Run, runner
from tests.export.logs import (
    COMMIT,
    batch,
    marker,
    replica,
    transactional,
    write_checkpoint,
    write_epochs,
)


@pytest.fixture
def klog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capfd, monkeypatch)


@pytest.fixture
def writer(tmp_path: Path) -> PartitionWriter:
    view = PartitionView(TopicPartition("orders", 0), None, (), 0, None, None, (), None, 0, (), ())
    return PartitionWriter(str(tmp_path), view, IndexSettings(), None)


def rows(data: bytes, segment_base_offset: int = 0) -> Rows:
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    return Rows(segment_base_offset, memoryview(data), table, 0, len(table))


def test_each_object_is_read_once(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica(logs / "orders-0", [batch(5 * each, 5, size=300) for each in range(12)])
    backups.run(logs)
    opened: list[str] = []

    def counted(repository: Repository, piece: Piece) -> BinaryIO:
        opened.append(piece.name)
        return open_piece(repository, piece)

    monkeypatch.setattr(selection, "open_piece", counted)
    assert klog("restore", backups.place, "--to", tmp_path / "new", "-q").code == 0
    assert sorted(opened) == sorted(name for name in backups.objects() if name.endswith(".log"))


def test_a_batch_that_fails_its_checksum_is_an_error_with_its_place(
    writer: PartitionWriter, tmp_path: Path
) -> None:
    first, second = batch(0, 5), bytearray(batch(5, 5))
    second[-1] ^= 1
    writer.copy(rows(first + bytes(second)))
    with pytest.raises(CorruptRecordError, match="offsets 5 to 9 fails its checksum") as raised:
        writer.finish()
    assert raised.value.file == str(tmp_path / "00000000000000000000.log")
    assert raised.value.position_bytes == len(first)


def test_a_batch_below_its_segment_is_an_error(writer: PartitionWriter) -> None:
    writer.copy(rows(batch(0, 5), segment_base_offset=100))
    with pytest.raises(CorruptRecordError, match="does not belong into the segment that starts at 100"):
        writer.finish()


def test_a_disk_that_loses_what_was_written_is_an_error(
    writer: PartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells it once only, to the thread that sends a large segment to the disk meanwhile."""

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(outputs, "_STEP_BYTES", 1)
    monkeypatch.setattr(os, "fsync", fail)
    writer.copy(rows(batch(0, 5)))
    with pytest.raises(StorageError, match="cannot be written: Input/output error"):
        writer.finish()


@pytest.mark.parametrize(
    ("epochs", "known", "epochs_of_batches"),
    [
        pytest.param((0, 0, 1, 1), (1, 15), "0\n2\n0 0\n1 10\n", id="begins later than its batches"),
        pytest.param((0, 1, 2, 2), (2, 10), "0\n3\n0 0\n1 5\n2 10\n", id="was found by no run"),
    ],
)
def test_an_epoch_whose_beginning_was_deleted_before_a_later_run_is_that_of_its_batches(
    klog: Run,
    backups: Backups,
    logs: Path,
    tmp_path: Path,
    epochs: tuple[int, ...],
    known: tuple[int, int],
    epochs_of_batches: str,
) -> None:
    batches = [batch(5 * number, 5, leader_epoch=each) for number, each in enumerate(epochs)]
    directory = replica(logs / "orders-0", batches[:1], (0, 0))
    backups.run(logs)
    at_ms = backups.now_ms + 500
    replica(directory, batches)
    write_epochs(directory, known)
    write_checkpoint(logs, FileKind.LOG_START_CHECKPOINT, orders_0=known[1])
    backups.now_ms += 60_000
    backups.run(logs)
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()

    klog("restore", backups.place, "--at", at, "--to", tmp_path / "new", "-q")

    restored = (tmp_path / "new" / "orders-0" / FileKind.LEADER_EPOCH_CHECKPOINT).read_text()
    assert restored == epochs_of_batches


def test_what_a_restore_adds_is_in_the_epoch_of_a_leader_that_had_written_nothing(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    replica(logs / "orders-0", [transactional(0, 2, 201, leader_epoch=0)], (0, 0), (1, 2))
    backups.run(logs)

    klog("restore", backups.place, "--to", tmp_path / "new", "-q")

    [data] = log_files(tmp_path / "new" / "orders-0").values()
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    assert list(table.leader_epoch) == [0, 1]
    restored = (tmp_path / "new" / "orders-0" / FileKind.LEADER_EPOCH_CHECKPOINT).read_text()
    assert restored == "0\n2\n0 0\n1 2\n"


def test_a_log_goes_on_at_its_start_if_all_of_the_moment_was_deleted_before_the_first_run(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    late_ms = 60_000
    replica(logs / "orders-0", [batch(0, 5), batch(5, 5, at=late_ms)], (0, 0))
    write_checkpoint(logs, FileKind.LOG_START_CHECKPOINT, orders_0=7)
    backups.run(logs)
    at = datetime.fromtimestamp(late_ms / 2000, UTC).isoformat()

    klog("restore", backups.place, "--at", at, "--to", tmp_path / "new", "-q")

    assert (tmp_path / "new" / FileKind.REPLICATION_CHECKPOINT).read_text() == "0\n1\norders 0 7\n"
    assert log_files(tmp_path / "new" / "orders-0") == {
        "00000000000000000000.log": batch(0, 5),
        "00000000000000000007.log": b"",
    }
    checked = klog("verify", tmp_path / "new")
    assert checked.code == 0
    assert "0 errors" in checked.out


def test_a_snapshot_from_behind_the_moment_says_nothing_of_the_restored_log(
    klog: Run, backups: Backups, logs: Path, tmp_path: Path
) -> None:
    late_ms = 60_000
    directory = replica(
        logs / "orders-0",
        [
            transactional(0, 2, 201, leader_epoch=0),
            transactional(2, 2, 202, leader_epoch=0),
            marker(4, 202, COMMIT, at=late_ms),
            batch(5, 1, at=late_ms),
        ],
        (0, 0),
        segment_batches=3,
    )
    assert klog("rebuild-index", "--snapshots", directory).code == 0
    (directory / "00000000000000000006.snapshot").unlink()
    backups.run(logs)
    at = datetime.fromtimestamp(late_ms / 2000, UTC).isoformat()

    klog("restore", backups.place, "--at", at, "--to", tmp_path / "new", "-q")

    restored = tmp_path / "new" / "orders-0"
    assert producers_in((restored / "00000000000000000006.snapshot").read_bytes()).keys() == {201, 202}
    assert klog("verify", tmp_path / "new").code == 0
    aborted = klog("dump-segment", restored / "00000000000000000000.txnindex").out
    assert aborted.count('"producerId"') == 2
