"""`preallocate`: a new segment's file is as large as it may become, and nobody but the disk notices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.storage.files.sparse_files import CHUNK_BYTES, only_zeros_follow
from klog.storage.log.partition_log import PartitionLog
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import Cut, RecoverySettings, Trim
from tests.storage.log.building import append, batch, bytes_of, fill, new_log, reload, stored

SEGMENT_BYTES = 4000
CONFIGS = {"preallocate": "true", "segment.bytes": str(SEGMENT_BYTES)}


def sizes(log: PartitionLog) -> list[int]:
    """Of the files, whatever is written in them."""
    return [os.fstat(segment.file.descriptor).st_size for segment in log.segments]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return new_log(tmp_path, CONFIGS)


def test_the_active_segment_is_allocated_and_a_rolled_one_cut_to_its_batches(log: PartitionLog) -> None:
    assert sizes(log) == [SEGMENT_BYTES]
    assert log.size_bytes == 0
    while len(log.segments) < 3:
        append(log, batch([b"x" * 300] * 2))
    old = [segment.size for segment in log.segments]
    assert sizes(log) == [*old[:2], SEGMENT_BYTES]
    assert log.size_bytes == sum(old)


def test_a_topic_that_does_not_want_it_has_files_that_grow(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIGS | {"preallocate": "false"})
    assert sizes(log) == [0]


def test_reads_end_where_the_batches_do(log: PartitionLog) -> None:
    append(log, batch(3))
    size = log.size_bytes
    assert len(bytes_of(log.read(0, 10**6, 3))) == size
    assert bytes_of(log.read(3, 10**6, 3)) == b""


def test_a_clean_close_cuts_the_file_and_what_comes_then_is_written_behind(
    tmp_path: Path, log: PartitionLog
) -> None:
    fill(log, 3)
    size = log.size_bytes
    log.close()
    assert os.path.getsize(log.segments.active.file.path) == size
    again, loaded = reload(log, tmp_path, clean=True)
    assert loaded.findings == ()
    append(again, batch(1))
    assert again.log_end_offset == 4
    # As in Kafka, a file that was there already grows.
    assert sizes(again) == [again.size_bytes]


def test_after_a_crash_the_zeros_go_and_nothing_else_and_nobody_keeps_them(
    tmp_path: Path, log: PartitionLog
) -> None:
    fill(log, 5)
    before, size = stored(log), log.size_bytes
    log.release()
    plan = plan_recovery(log.directory, RecoverySettings(0))
    assert [step for step in plan.steps if isinstance(step, Cut | Trim)] == [
        Trim("00000000000000000000.log", size, SEGMENT_BYTES)
    ]
    # Nothing that anybody need be asked about.
    assert not plan.takes_away
    again, loaded = reload(log, tmp_path)
    assert loaded.quarantine is None
    assert stored(again) == before
    assert sizes(again) == [size]


def test_after_a_crash_bytes_among_the_zeros_are_kept_aside(tmp_path: Path, log: PartitionLog) -> None:
    fill(log, 5)
    before = stored(log)
    os.pwrite(log.segments.active.file.descriptor, b"x", SEGMENT_BYTES - 1)
    log.release()
    again, loaded = reload(log, tmp_path)
    assert loaded.quarantine is not None
    assert stored(again) == before


def test_a_segment_that_never_had_a_batch_is_empty_after_a_crash(tmp_path: Path, log: PartitionLog) -> None:
    log.release()
    again, loaded = reload(log, tmp_path)
    assert (again.log_end_offset, sizes(again), loaded.quarantine) == (0, [0], None)


def test_a_cut_ends_the_allocation_and_a_new_beginning_allocates_anew(log: PartitionLog) -> None:
    fill(log, 5)
    log.truncate_to(2)
    assert sizes(log) == [log.size_bytes]
    append(log, batch(1))
    assert log.log_end_offset == 3
    log.restart_at(100)
    assert sizes(log) == [SEGMENT_BYTES]
    append(log, batch(1))
    assert log.log_end_offset == 101


@pytest.mark.parametrize("hole", [False, True])
def test_zeros_are_told_from_bytes_wherever_they_stand(tmp_path: Path, hole: bool) -> None:
    path = tmp_path / "file"
    size = 3 * CHUNK_BYTES
    with open(path, "wb") as file:
        if hole:
            file.truncate(size)
        else:
            file.write(bytes(size))
    assert only_zeros_follow(str(path), 0)
    for at in (0, CHUNK_BYTES - 1, CHUNK_BYTES, size - 1):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"x")
        assert not only_zeros_follow(str(path), at)
        assert only_zeros_follow(str(path), at + 1)
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"\0")
