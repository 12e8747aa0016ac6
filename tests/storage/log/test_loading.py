"""Loads every log that a real Kafka wrote, cleanly stopped or not: what is trusted, what is repaired."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, FileState, parse_directory, segment_file
from klog.kernel.columns import BatchTable
from klog.kernel.kernel import scan
from klog.storage.files.disk import Disk
from klog.storage.log.loading import Loaded, load_log
from klog.storage.log.partition_log import PartitionLog
from tests import corpora
from tests.storage.log.building import (
    SMALL_INDEXES,
    Clock,
    Later,
    append,
    batch,
    bytes_of,
    config,
    files,
    fill,
    idempotent,
    new_log,
    reload,
    settings,
)


def partitions() -> list[Path]:
    """Partition directories of the intact corpora that stand uncompressed in the fixtures."""
    found = []
    for corpus_path in sorted(corpora.FIXTURES.iterdir()):
        if not (corpus_path / "manifest.json").is_file() or corpora.Corpus(corpus_path.name).is_corrupt:
            continue
        for log_dir in corpora.Corpus(corpus_path.name).log_dirs():
            for path in sorted(log_dir.path.iterdir()):
                is_log = path.is_dir() and any(path.glob("*.log")) and not any(path.glob("*.swap"))
                if is_log and not path.name.endswith(("-delete", "-stray", "-future")):
                    found.append(path)
    return found


def opened(loaded: Loaded, directory: Path) -> PartitionLog:
    partition = parse_directory(directory.name).partition
    return PartitionLog(
        partition, str(directory), config(), loaded.state, clock_ms=Clock(), background=Later()
    )


def batches_of(directory: Path) -> dict[str, bytes]:
    """The whole batches of each segment, without the zeros of a pre-allocated one."""
    found = {}
    for name, data in files(directory).items():
        if name.endswith(".log"):
            scan(data, 0, True, table := BatchTable())
            found[name] = data[: table.consumed_bytes]
    return found


@pytest.mark.parametrize("source", partitions(), ids=corpora.fixture_id)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_log_that_kafka_wrote_is_served_whole(source: Path, clean: bool, tmp_path: Path) -> None:
    directory = shutil.copytree(source, tmp_path / source.name)
    logs = batches_of(directory)
    log = opened(load_log(str(directory), config(), settings(tmp_path, clean=clean)), directory)
    log.set_high_watermark(log.log_end_offset)
    served = b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 30, log.log_end_offset, at_least_one=True)
        if read.file is None:
            break
        served += bytes_of(read)
        offset = log.segments.end_of(log.segments.floor(read.segment_base), log.log_end_offset)
    assert served == b"".join(logs[name] for name in sorted(logs))
    assert batches_of(directory) == logs


def test_a_clean_log_is_opened_without_reading_its_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": "0"})
    fill(log, 5)
    log.roll()
    fill(log, 5)
    log.close()
    with open(log.segments[0].path(FileKind.LOG), "r+b") as file:
        file.seek(30)
        file.write(b"\xff\xff")
    again, loaded = reload(log, tmp_path, clean=True)
    assert (again.log_end_offset, loaded.findings) == (10, ())


def test_a_clean_log_that_ends_inside_a_batch_is_recovered(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    log.close()
    os.truncate(log.segments.active.path(FileKind.LOG), log.size_bytes - 1)
    again, loaded = reload(log, tmp_path, clean=True)
    assert again.log_end_offset == 2
    assert [finding.what for finding in loaded.findings] == ["last batch needs 71 bytes, 70 are left"]


@pytest.mark.parametrize("leftover", ["00000000000000000003.log.cleaned", "00000000000000000099.index"])
def test_leftovers_in_a_clean_log_are_removed_without_reading_records(tmp_path: Path, leftover: str) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": "0"})
    fill(log, 5)
    log.close()
    before = files(Path(log.directory))
    with open(log.segments.active.path(FileKind.LOG), "r+b") as file:
        file.seek(2 * 71 + 65)
        file.write(b"\xff")
    Path(log.directory, leftover).write_bytes(b"12345678")
    again, loaded = reload(log, tmp_path, clean=True)
    assert again.log_end_offset == 5
    assert [finding.name for finding in loaded.findings] == [leftover]
    again.close()
    after = files(Path(log.directory))
    assert {name for name in before.keys() | after if before.get(name) != after.get(name)} == {
        segment_file(FileKind.LOG, 0)
    }


def test_recovery_goes_on_as_kafka_s_if_nothing_can_be_kept(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3)
    log.release()
    os.truncate(log.segments.active.path(FileKind.LOG), log.size_bytes - 1)
    stale = Path(log.segments.active.path(FileKind.LOG) + FileState.CLEANED)
    stale.write_bytes(b"unfinished")
    (tmp_path / "quarantine").write_bytes(b"a file where a directory is wanted")
    again, loaded = reload(log, tmp_path)
    assert again.log_end_offset == 2
    assert again.size_bytes == Path(again.segments.active.path(FileKind.LOG)).stat().st_size
    assert not stale.exists()
    assert loaded.quarantine is None
    assert "quarantine" in str(loaded.why_lost)


def test_a_log_directory_that_fails_is_not_taken_for_a_quarantine_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(disk: Disk, path: str, size_bytes: int) -> None:
        raise StorageError("cannot be truncated", file=path)

    log = new_log(tmp_path)
    fill(log, 3)
    log.release()
    os.truncate(log.segments.active.path(FileKind.LOG), log.size_bytes - 1)
    monkeypatch.setattr(Disk, "truncate", fails)
    with pytest.raises(StorageError, match="cannot be truncated"):
        reload(log, tmp_path)


def test_a_swap_to_be_finished_costs_no_other_segment_its_indexes(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL_INDEXES)
    for _ in range(3):
        fill(log, 9)
        log.roll()
    log.release()
    swapped = log.segments[2]
    for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        os.rename(swapped.path(kind), swapped.path(kind) + FileState.SWAP)
    kept = [log.segments[1].path(kind) for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)]
    before = [Path(path).read_bytes() for path in kept]
    assert all(before)
    # The active segment went with the crash, so that the swapped one is the last that is not flushed.
    for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        os.unlink(log.segments[3].path(kind))
    again, _ = reload(log, tmp_path, recovery_point=27)
    assert (again.log_end_offset, len(again.segments)) == (27, 3)
    assert [Path(path).read_bytes() for path in kept] == before


def test_the_recovery_point_is_not_below_the_log_start(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 5)
    log.release()
    again, _ = reload(log, tmp_path, recovery_point=1, log_start_offset=3)
    assert (again.log_start_offset, again.recovery_point) == (3, 3)


def test_an_unclean_log_is_read_from_the_segment_of_its_recovery_point_on(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 5)
    log.roll()
    fill(log, 5)
    log.release()
    with open(log.segments[0].path(FileKind.LOG), "r+b") as file:
        file.seek(30)
        file.write(b"\xff\xff")
    again, _ = reload(log, tmp_path, recovery_point=5)
    assert (again.log_end_offset, again.recovery_point) == (10, 5)
    again.release()
    again, loaded = reload(log, tmp_path, recovery_point=0)
    assert (again.log_end_offset, again.recovery_point) == (0, 0)
    assert loaded.findings


@pytest.mark.parametrize("missing", ["index", "timeindex", "snapshot"])
def test_a_clean_log_does_without_what_can_be_rebuilt(tmp_path: Path, missing: str) -> None:
    log = new_log(tmp_path, {"index.interval.bytes": "0"})
    append(log, idempotent(0, 3))
    log.roll()
    append(log, idempotent(3, 3))
    log.close()
    for path in Path(log.directory).glob(f"*.{missing}"):
        path.unlink()
    again, _ = reload(log, tmp_path, clean=True)
    assert again.log_end_offset == 6
    assert append(again, idempotent(6)).last_offset == 6


def test_a_clean_log_without_an_index_knows_its_producers_from_the_records_behind_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, idempotent(0))
    log.roll()
    append(log, idempotent(1))
    append(log, idempotent(2))
    log.close()
    Path(log.segments[0].path(FileKind.OFFSET_INDEX)).unlink()
    again, _ = reload(log, tmp_path, clean=True)
    assert [append(again, idempotent(sequence)).duplicate for sequence in (0, 1, 2)] == [True] * 3


def test_if_a_segment_is_lost_the_producers_are_known_from_the_records_before_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(3):
        append(log, idempotent(sequence))
    log.roll()
    append(log, idempotent(3))
    log.release()
    with open(log.segments[0].path(FileKind.LOG), "ab") as file:
        file.write(bytes(20))
    again, _ = reload(log, tmp_path)
    assert again.log_end_offset == 3
    assert [append(again, idempotent(sequence)).duplicate for sequence in (0, 1, 2)] == [True] * 3


def test_a_clean_log_without_any_snapshot_has_no_producers(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, idempotent(0, 3))
    log.close()
    for path in Path(log.directory).glob("*.snapshot"):
        path.unlink()
    again, _ = reload(log, tmp_path, clean=True)
    assert len(again.producers) == 0
    assert Path(log.directory, f"{3:020d}.snapshot").exists()


def test_files_whose_deletion_was_pending_are_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2)
    log.roll()
    log.delete_oldest(1)
    log.close()
    assert any(name.endswith(".deleted") for name in os.listdir(log.directory))
    again, loaded = reload(log, tmp_path, clean=True)
    assert not any(name.endswith(".deleted") for name in os.listdir(log.directory))
    assert (again.log_start_offset, loaded.findings) == (2, ())


def test_a_log_start_beyond_the_end_starts_the_log_there_empty(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2)
    log.close()
    again, _ = reload(log, tmp_path, clean=True, log_start_offset=7)
    assert (again.log_start_offset, again.log_end_offset, list(again.segments.bases)) == (7, 7, [7])


def test_epochs_outside_of_the_log_are_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for epoch in range(3):
        append(log, batch(2), epoch=epoch)
    log.assign_epoch(9, 6)
    log.close()
    again, _ = reload(log, tmp_path, clean=True, log_start_offset=3)
    assert [tuple(entry) for entry in again.epochs.entries] == [(1, 3), (2, 4)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_records_are_all_deleted_knows_its_last_epoch(tmp_path: Path, clean: bool) -> None:
    log = new_log(tmp_path)
    append(log, batch(2), epoch=3)
    log.close()
    again, _ = reload(log, tmp_path, clean=clean, log_start_offset=2)
    assert [tuple(entry) for entry in again.epochs.entries] == [(3, 2)]


def test_an_epoch_file_that_cannot_be_read_is_a_finding_that_names_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.close()
    Path(log.directory, "leader-epoch-checkpoint").write_text("0\n1\n")
    loaded = load_log(log.directory, log.config, settings(tmp_path, clean=True))
    assert [finding.name for finding in loaded.findings] == ["leader-epoch-checkpoint"]
    assert [tuple(entry) for entry in loaded.state.epochs.entries] == []


def test_recovery_is_announced_before_it_reads(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.release()
    announced: list[str] = []
    load_log(log.directory, log.config, settings(tmp_path), announced.append)
    assert announced == [log.directory]
