"""`klog.replicas.fallbacks`: what is damaged in one replica is read from another that agrees."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export.options import Isolation, ReadOptions
from klog.export.plan_json import split_from_json, to_json
from klog.export.planner import plan
from klog.export.reader import read_split
from klog.formats.errors import CorruptRecordError
from klog.replicas.splits import LostRange
from tests.export.export_support import export, table_rows
from tests.export.logs import ABORT, Log, batch, marker, replica, transactional

BATCHES = [batch(n * 5, 5, leader_epoch=0) for n in range(12)]
SIZE = len(BATCHES[0])


def flip(directory: Path, base: int, row: int) -> Path:
    """Damage a batch of the segment with this base offset."""
    log = directory / f"{base:020d}.log"
    data = bytearray(log.read_bytes())
    data[row * SIZE + 70] ^= 0xFF
    log.write_bytes(data)
    return log


def read(*paths: Path, **options: object) -> tuple[list[int], list[LostRange], set[str]]:
    """The offsets that come, what is lost, and the files that were read."""
    chosen = ReadOptions(tuple(map(str, paths)), metadata_columns=("file",), **options)  # type: ignore[arg-type]
    offsets: list[int] = []
    lost: list[LostRange] = []
    files: set[str] = set()
    made = plan(chosen)
    for split in sorted(made.splits, key=lambda split: split.number):
        for rows in read_split(split, chosen, columns=["offset", "file"], on_lost=lost.append):
            offsets += rows.column("offset").to_pylist()
            files |= set(rows.column("file").to_pylist())
    return offsets, [*made.lost, *lost], {Path(file).parts[-3] for file in files}


@pytest.fixture
def brokers(tmp_path: Path) -> tuple[Path, Path]:
    return (
        replica(tmp_path / "a" / "t-0", BATCHES, (0, 0)),
        replica(tmp_path / "b" / "t-0", BATCHES, (0, 0), segment_batches=5),
    )


def test_a_damaged_batch_comes_from_the_other_replica(tmp_path: Path, brokers: tuple[Path, Path]) -> None:
    flip(brokers[0], 20, 1)
    offsets, lost, files = read(tmp_path)
    assert offsets == list(range(60))
    assert not lost
    assert files == {"a", "b"}
    assert read(tmp_path, fail_on_data_loss=True)[0] == offsets


def test_an_export_reports_the_damaged_disk_and_a_resumed_one_does_too(
    tmp_path: Path, brokers: tuple[Path, Path]
) -> None:
    bad = flip(brokers[0], 20, 1)
    flip(brokers[0], 20, 2)
    flip(brokers[1], 25, 0)  # the same offsets as the first of the two
    out = tmp_path / "out"
    for resume in (False, True):
        report = export([brokers[0].parent, brokers[1].parent], out, resume=resume)
        assert [(one.file, one.first_offset, one.end_offset) for one in report.lost] == [(str(bad), 25, 30)]
        assert [(one.file, one.first_offset, one.end_offset) for one in report.repaired] == [
            (str(bad), 25, 35)
        ]
    shutil.rmtree(out)
    flip(brokers[1], 25, 0)  # and back
    report = export([brokers[0].parent, brokers[1].parent], out, verify=True)
    assert (report.rows, report.clean, len(report.repaired)) == (60, True, 1)


def test_without_damage_nothing_is_read_of_the_others(tmp_path: Path, brokers: tuple[Path, Path]) -> None:
    flip(brokers[1], 0, 1)
    offsets, lost, files = read(tmp_path)
    assert (offsets, lost, files) == (list(range(60)), [], {"a"})


def test_what_is_damaged_in_all_replicas_is_lost_once(tmp_path: Path, brokers: tuple[Path, Path]) -> None:
    bad = flip(brokers[0], 20, 1)
    flip(brokers[0], 20, 2)
    flip(brokers[1], 25, 0)
    offsets, lost, _ = read(tmp_path)
    assert offsets == [*range(25), *range(30, 60)]
    assert [(one.first_offset, one.end_offset, one.file) for one in lost] == [(25, 30, str(bad))]
    with pytest.raises(CorruptRecordError, match="fails its checksum"):
        read(tmp_path, fail_on_data_loss=True)


def test_a_segment_that_vanishes_after_it_was_planned_comes_from_the_other_replica(
    tmp_path: Path, brokers: tuple[Path, Path]
) -> None:
    options = ReadOptions((str(tmp_path),))
    made = plan(options)
    (brokers[0] / "00000000000000000020.log").unlink()
    offsets = [
        offset
        for split in made.splits
        for rows in read_split(split, options, columns=["offset"], on_lost=pytest.fail)
        for offset in rows.column("offset").to_pylist()
    ]
    assert sorted(offsets) == list(range(60))


def test_a_replica_that_disagrees_is_no_fallback(tmp_path: Path) -> None:
    other = [*BATCHES[:6], *(batch(n * 5, 5, leader_epoch=0, size=11) for n in range(6, 9))]
    chosen = replica(tmp_path / "a" / "t-0", BATCHES, (0, 0), (1, 30))
    replica(tmp_path / "b" / "t-0", other, (0, 0))
    flip(chosen, 20, 1)
    flip(chosen, 20, 3)
    offsets, lost, _ = read(tmp_path)
    assert offsets == [*range(35), *range(40, 60)]
    assert [(one.first_offset, one.end_offset) for one in lost] == [(35, 40)]


def test_aborted_records_stay_hidden_in_a_fallback(tmp_path: Path) -> None:
    for name in ("a", "b"):
        log = Log(tmp_path / name / "t-0")
        log.append(batch(0, 5), transactional(5, 5, 1), batch(10, 5), marker(15, 1, ABORT), batch(16, 4))
        log.write()
        log.write_transaction_files()
    path = tmp_path / "a" / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    at = len(batch(0, 5)) + len(transactional(5, 5, 1)) + 70
    data[at] ^= 0xFF
    path.write_bytes(data)
    offsets, lost, files = read(tmp_path, isolation=Isolation.READ_COMMITTED)
    assert (offsets, lost, files) == ([*range(5), *range(10, 15), *range(16, 20)], [], {"a", "b"})


def test_fallbacks_are_kept_in_the_job_state(tmp_path: Path, brokers: tuple[Path, Path]) -> None:
    splits = plan(ReadOptions((str(tmp_path),))).splits
    assert all(split.fallbacks for split in splits)
    assert tuple(split_from_json(to_json(split)) for split in splits) == splits


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), target_bytes=st.integers(100, 2000), replicas=st.integers(2, 3))
def test_only_what_no_replica_has_is_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int, target_bytes: int, replicas: int
) -> None:
    rng = random.Random(seed)
    root = tmp_path_factory.mktemp("spares")
    damaged: list[set[int]] = []
    for number in range(replicas):
        size = rng.randrange(2, 6)
        directory = replica(root / str(number) / "t-0", BATCHES, (0, 0), segment_batches=size)
        rows = set(rng.sample(range(1, len(BATCHES) - 1), rng.randrange(6)))
        for row in rows:
            flip(directory, row // size * size * 5, row % size)
        damaged.append(rows)
    offsets, lost, _ = read(root, target_split_bytes=target_bytes)
    gone = {row * 5 + n for row in set.intersection(*damaged) for n in range(5)}
    assert offsets == sorted(set(range(60)) - gone)
    told = [offset for one in lost for offset in range(one.first_offset or 0, one.end_offset or 0)]
    assert sorted(told) == sorted(gone)


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 32), replicas=st.integers(2, 3))
def test_the_rows_of_files_in_the_order_of_their_names_are_in_the_order_of_offsets(
    tmp_path_factory: pytest.TempPathFactory, seed: int, replicas: int
) -> None:
    rng = random.Random(seed)
    root = tmp_path_factory.mktemp("order")
    for number in range(replicas):
        size = rng.randrange(3, 6)
        directory = replica(root / "in" / str(number) / "t-0", BATCHES, (0, 0), segment_batches=size)
        for row in rng.sample(range(len(BATCHES)), 4):
            flip(directory, row // size * size * 5, row % size)
    report = export(root / "in", root / "out", read={"target_split_bytes": 300})
    offsets = [row["offset"] for row in table_rows(root / "out")]
    lost = sum((one.end_offset or 60) - (one.first_offset or 0) for one in report.lost)
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 60 - lost


def test_columns_without_the_offset_come_in_the_same_order(
    tmp_path: Path, brokers: tuple[Path, Path]
) -> None:
    flip(brokers[0], 20, 1)
    options = ReadOptions((str(tmp_path),))
    keys = [
        key
        for split in sorted(plan(options).splits, key=lambda split: split.number)
        for rows in read_split(split, options, columns=["key"], on_lost=pytest.fail)
        for key in rows.column("key").to_pylist()
        if rows.schema.names == ["key"]
    ]
    assert keys == [b"k%d" % n for n in range(60)]
