"""Losses that the files beside the segments prove are told, with the offsets that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.export.options import ReadOptions
from klog.export.planner import plan
from klog.formats.names import FileKind, segment_file
from klog.replicas.splits import LostRange
from tests.export.export_support import export, table_rows
from tests.export.logs import batch, replica, write_checkpoint, write_epochs, write_segment

BATCHES = [batch(n * 5, 5, leader_epoch=0, at=n * 5) for n in range(12)]
"""Offsets 0 to 59; four batches are a segment."""
TWO_BATCHES_BYTES = len(BATCHES[8]) + len(BATCHES[9])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return replica(tmp_path / "logs" / "t-0", BATCHES, (0, 0))


def lost_of(*paths: Path) -> tuple[LostRange, ...]:
    return plan(ReadOptions(tuple(map(str, paths)))).lost


def ranges(lost: tuple[LostRange, ...]) -> list[tuple[int | None, int | None]]:
    return [(one.first_offset, one.end_offset) for one in lost]


def log(directory: Path, base: int) -> Path:
    return directory / segment_file(FileKind.LOG, base)


def test_a_whole_directory_has_lost_nothing(directory: Path) -> None:
    assert not lost_of(directory)


@pytest.mark.parametrize(("base", "lost"), [(0, (0, 20)), (20, (20, 40)), (40, (40, None))])
def test_an_index_without_its_log_is_a_lost_segment(
    tmp_path: Path, directory: Path, base: int, lost: tuple[int, int | None]
) -> None:
    log(directory, base).unlink()
    report = export(directory, tmp_path / "out", verify=True)
    assert ranges(report.lost) == [lost]
    assert report.lost[0].reason == f"a file is missing: {base:020}.index has no .log beside it"
    assert not report.clean
    assert report.rows == len(table_rows(tmp_path / "out")) == 40


def test_several_segments_at_the_end_without_their_logs_are_lost(directory: Path) -> None:
    for base in (20, 40):
        log(directory, base).unlink()
    assert ranges(lost_of(directory)) == [(20, 40), (40, None)]


def test_a_missing_log_between_compacted_segments_is_lost(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    for base in (0, 20, 40):
        write_segment(directory, [batch(base, 2), batch(base + 7, 3)], base)
    log(directory, 20).unlink()
    assert ranges(lost_of(directory)) == [(20, 40)]


@pytest.mark.parametrize(("base", "lost"), [(0, (0, 20)), (20, (20, 40)), (40, (40, 60))])
def test_an_empty_log_beside_filled_indexes_is_a_loss(
    directory: Path, base: int, lost: tuple[int, int]
) -> None:
    log(directory, base).write_bytes(b"")
    found = lost_of(directory)
    assert ranges(found) == [lost]
    assert found[0].reason == (
        f"the segment is empty, but its index goes on to offset {lost[1] - 1}: it was cut off"
    )


def test_a_last_segment_that_was_cut_between_two_batches_is_a_loss(directory: Path) -> None:
    path = log(directory, 40)
    path.write_bytes(path.read_bytes()[:TWO_BATCHES_BYTES])
    found = lost_of(directory)
    assert ranges(found) == [(50, 60)]
    assert "ends at offset 49, but its index goes on to offset 59" in found[0].reason


def test_a_time_index_proves_it_alone(directory: Path) -> None:
    path = log(directory, 40)
    path.write_bytes(path.read_bytes()[: len(BATCHES[8])])
    path.with_suffix(".index").unlink()
    assert ranges(lost_of(directory)) == [(45, 60)]


@pytest.mark.parametrize("content", [bytes(10 << 10), b"", b"\xff" * 16, bytes(range(24, 0, -1))])
def test_a_preallocated_or_damaged_index_proves_nothing(directory: Path, content: bytes) -> None:
    path = log(directory, 40)
    path.write_bytes(path.read_bytes()[:TWO_BATCHES_BYTES])
    path.with_suffix(".timeindex").unlink()
    path.with_suffix(".index").write_bytes(content)
    assert not lost_of(directory)


def test_of_segments_that_overlap_nothing_is_lost(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_segment(directory, BATCHES[:4])
    write_segment(directory, BATCHES[3:6])
    write_segment(directory, [*BATCHES[6:8], batch(40, 1, leader_epoch=0, at=40)])
    write_segment(directory, BATCHES[8:])
    assert not lost_of(directory)


RECORDS = {
    "the broker's checkpoint has a high watermark of 70": (FileKind.REPLICATION_CHECKPOINT, 70),
    "the broker's checkpoint says that it was flushed up to 70": (FileKind.RECOVERY_POINT_CHECKPOINT, 70),
    "the checkpoint of the cleaner is at 70": (FileKind.CLEANER_CHECKPOINT, 70),
}


@pytest.mark.parametrize("reason", RECORDS)
def test_a_checkpoint_beyond_the_end_is_a_loss(directory: Path, reason: str) -> None:
    kind, offset = RECORDS[reason]
    write_checkpoint(directory.parent, kind, t_0=offset)
    found = lost_of(directory.parent)
    assert ranges(found) == [(60, 70)]
    assert found[0].reason == f"the log ends at 60, but {reason}"


def test_a_producer_snapshot_beyond_the_end_is_a_loss(directory: Path) -> None:
    (directory / segment_file(FileKind.PRODUCER_SNAPSHOT, 65)).write_bytes(b"")
    found = lost_of(directory)
    assert ranges(found) == [(60, 65)]
    assert found[0].reason == "the log ends at 60, but a producer snapshot is of offset 65"


def test_a_leader_epoch_that_begins_beyond_the_end_is_a_loss(directory: Path) -> None:
    write_epochs(directory, (0, 0), (3, 64))
    found = lost_of(directory)
    assert ranges(found) == [(60, 64)]
    assert found[0].reason == "the log ends at 60, but leader epoch 3 begins at 64"


def test_what_another_replica_has_is_no_loss(tmp_path: Path, directory: Path) -> None:
    replica(tmp_path / "other" / "t-0", BATCHES, (0, 0))
    for base in (0, 40):
        log(directory, base).unlink()
    report = export([directory, tmp_path / "other"], tmp_path / "out", verify=True)
    assert report.clean
    assert [row["offset"] for row in table_rows(tmp_path / "out")] == list(range(60))


def test_of_a_segment_that_retention_was_removing_nothing_is_lost(directory: Path) -> None:
    path = log(directory, 0)
    path.rename(path.with_name(f"{path.name}.deleted"))
    assert not lost_of(directory)


def test_below_the_log_start_offset_nothing_is_lost(directory: Path) -> None:
    log(directory, 0).unlink()
    write_checkpoint(directory.parent, FileKind.LOG_START_CHECKPOINT, t_0=20)
    assert not lost_of(directory.parent)


def test_segments_that_were_not_named_are_not_lost(directory: Path) -> None:
    write_checkpoint(directory.parent, FileKind.REPLICATION_CHECKPOINT, t_0=60)
    assert not lost_of(log(directory, 20))


def test_what_a_broker_appends_meanwhile_is_not_lost(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments are listed before the indexes are read, so these may name later records."""
    path = log(directory, 40)
    whole = path.read_bytes()
    path.write_bytes(whole[:TWO_BATCHES_BYTES])
    from klog.replicas import replicas

    read_contents = replicas.read_contents

    def append_first(*arguments, **options):
        path.write_bytes(whole)
        return read_contents(*arguments, **options)

    monkeypatch.setattr(replicas, "read_contents", append_first)
    assert not lost_of(directory)


def test_a_log_that_rolled_meanwhile_is_not_lost(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(directory.parent, FileKind.REPLICATION_CHECKPOINT, t_0=65)
    from klog.replicas import replicas

    read_contents = replicas.read_contents

    def roll_first(*arguments, **options):
        write_segment(directory, [batch(60, 5, leader_epoch=0)])
        return read_contents(*arguments, **options)

    monkeypatch.setattr(replicas, "read_contents", roll_first)
    assert not lost_of(directory.parent)
