"""What read_committed leaves out, from indexes and snapshots or without them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export.options import Isolation, ReadOptions
from klog.export.planner import plan
from klog.export.reader import read_split
from klog.formats.names import FileKind, segment_file
from klog.replicas.splits import AbortedRange, Plan
from tests.corpora import corpora, partitions
from tests.export.logs import (
    ABORT,
    COMMIT,
    Log,
    batch,
    marker,
    transactional,
    write_checkpoint,
    write_segment,
)

COMMITTED = Isolation.READ_COMMITTED


def planned(path: Path, **options: object) -> Plan:
    return plan(ReadOptions((str(path),), isolation=COMMITTED, **options))  # type: ignore[arg-type]


def offsets(made: Plan) -> list[int]:
    """The offsets of the records that come, as the reader gives them."""
    found: list[int] = []
    options = ReadOptions((), isolation=COMMITTED, fail_on_data_loss=True)
    for split in sorted(made.splits, key=lambda split: split.number):
        for rows in read_split(split, options, columns=["offset"], on_lost=pytest.fail):
            found += rows.column("offset").to_pylist()
    return found


def small_log(directory: Path) -> Log:
    """Producer 1 commits 0-4 and aborts 11-15; producer 2 aborts 5-9 and leaves 22-23 open."""
    log = Log(directory)
    log.append(transactional(0, 5, 1), transactional(5, 5, 2), marker(10, 1, COMMIT))
    log.append(transactional(11, 5, 1)).roll()
    log.append(marker(16, 2, ABORT), batch(17, 3), marker(20, 1, ABORT)).roll()
    log.append(batch(21), transactional(22, 2, 2), batch(24, 2))
    log.write()
    return log


ABORTED = (AbortedRange(2, 5, 16), AbortedRange(1, 11, 20))
KEPT = [0, 1, 2, 3, 4, 17, 18, 19, 21]


@pytest.mark.parametrize("indexes", [True, False])
@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("whole", [True, False], ids=["with indexes", "only segments"])
def test_the_rows_are_the_same_whatever_files_are_beside_the_segments(
    tmp_path: Path, indexes: bool, snapshots: bool, whole: bool
) -> None:
    directory = tmp_path / "t-0"
    small_log(directory).write_transaction_files(indexes=indexes or whole, snapshots=snapshots)
    if not whole:
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.unlink()
    made = planned(tmp_path, target_split_bytes=100)
    partition = made.partitions[0]
    assert (partition.log_end_offset, partition.last_stable_offset, partition.end_offset) == (26, 22, 22)
    assert {one for split in made.splits for one in split.aborted} == set(ABORTED)
    assert offsets(made) == KEPT


def test_a_split_has_only_the_transactions_that_overlap_it(tmp_path: Path) -> None:
    small_log(tmp_path / "t-0").write_transaction_files()
    splits = sorted(planned(tmp_path).splits, key=lambda split: split.number)
    assert [(split.first_offset, split.end_offset, split.aborted) for split in splits] == [
        (0, 16, ABORTED),
        (16, 21, ABORTED),
        (21, 22, ()),
    ]


@pytest.mark.parametrize("damage", [b"\x00" * 33, b"\x00\x01" + bytes(32), b"\x00\x00" + b"\xff" * 32])
def test_a_broken_index_is_a_problem_and_the_segment_is_read_instead(tmp_path: Path, damage: bytes) -> None:
    directory = tmp_path / "t-0"
    small_log(directory).write_transaction_files()
    index = directory / segment_file(FileKind.TXN_INDEX, 16)
    index.write_bytes(damage)
    made = planned(tmp_path)
    assert [problem.file for problem in made.problems] == [str(index)]
    assert offsets(made) == KEPT


def test_a_broken_snapshot_is_a_problem_and_an_older_one_is_used(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    small_log(directory).write_transaction_files()
    snapshot = directory / segment_file(FileKind.PRODUCER_SNAPSHOT, 26)
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    made = planned(tmp_path)
    assert [problem.file for problem in made.problems] == [str(snapshot)]
    assert made.partitions[0].last_stable_offset == 22


def test_an_index_entry_after_the_end_of_a_truncated_log_does_not_count(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    small_log(directory).write_transaction_files()
    for path in directory.glob("*26.snapshot"):
        path.unlink()
    for path in directory.glob("*21.*"):
        path.unlink()
    log = directory / segment_file(FileKind.LOG, 16)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 5)
    made = planned(tmp_path)
    assert made.partitions[0].last_stable_offset == 11
    assert {one for split in made.splits for one in split.aborted} == {ABORTED[0]}


def test_a_damaged_batch_that_seems_to_begin_a_transaction_hides_no_record(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    liar = bytearray(transactional(5, 2, 77))
    liar[17] ^= 1  # its checksum is bad now
    write_segment(directory, [batch(0, 5), bytes(liar), batch(7, 3)])
    made = planned(tmp_path)
    assert made.partitions[0].last_stable_offset == 10


def test_a_damaged_marker_closes_no_transaction(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    commit = bytearray(marker(7, 1, COMMIT))
    commit[-1] ^= 1
    write_segment(directory, [batch(0, 5), transactional(5, 2, 1), bytes(commit), batch(8, 3)])
    assert planned(tmp_path).partitions[0].last_stable_offset == 5


def test_a_transaction_left_open_below_the_log_start_leaves_nothing_to_read(tmp_path: Path) -> None:
    small_log(tmp_path / "t-0").write_transaction_files()
    write_checkpoint(tmp_path, FileKind.LOG_START_CHECKPOINT, t_0=24)
    made = planned(tmp_path)
    assert (made.partitions[0].start_offset, made.partitions[0].end_offset) == (24, 24)
    assert not made.splits


def test_without_transactions_everything_is_stable(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", [batch(0, 5), batch(5, 5)])
    assert planned(tmp_path).partitions[0].last_stable_offset == 10


def test_read_uncommitted_asks_for_no_transactions(tmp_path: Path) -> None:
    small_log(tmp_path / "t-0").write_transaction_files()
    made = plan(ReadOptions((str(tmp_path),)))
    assert made.partitions[0].last_stable_offset is None
    assert made.partitions[0].end_offset == 26
    assert all(not split.aborted for split in made.splits)


def test_an_open_transaction_that_a_snapshot_knows_is_not_looked_for_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klog.replicas import transactions

    small_log(tmp_path / "t-0").write_transaction_files()
    monkeypatch.setattr(transactions, "_follow", lambda *_: pytest.fail("a segment was read"))
    assert planned(tmp_path).partitions[0].last_stable_offset == 22


@pytest.mark.parametrize(
    "partition",
    [
        one
        for one in partitions(corpora("k39-txn", "k011-txn", "k4-txn"))
        if one.expected_consumer("read_committed")
    ],
    ids=str,
)
@pytest.mark.parametrize("only_segments", [False, True])
def test_what_comes_is_what_kafkas_consumer_got(partition, only_segments: bool, tmp_path: Path) -> None:
    path = partition.path
    if only_segments:
        path = tmp_path / partition.name
        path.mkdir()
        for log in partition.files(".log"):
            (path / log.name).write_bytes(log.read_bytes())
    expected = [line["offset"] for line in partition.expected_consumer("read_committed") if "offset" in line]
    for target_bytes in (700, 1 << 20):
        assert offsets(planned(path, target_split_bytes=target_bytes)) == expected


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), target_bytes=st.sampled_from((150, 600, 1 << 20)), indexed=st.booleans())
def test_transactions_of_several_producers_any_way_they_mix(
    tmp_path_factory: pytest.TempPathFactory, seed: int, target_bytes: int, indexed: bool
) -> None:
    rng = random.Random(seed)
    log = Log(tmp_path_factory.mktemp("mixed") / "t-0")
    started: dict[int, list[int]] = {}
    committed: list[int] = []
    first_of: dict[int, int] = {}
    offset = 0
    for _ in range(rng.randrange(1, 40)):
        producer = rng.randrange(4)
        action = rng.random()
        if action < 0.5:
            count = rng.randrange(1, 4)
            log.append(transactional(offset, count, producer))
            started.setdefault(producer, []).extend(range(offset, offset + count))
            first_of.setdefault(producer, offset)
            offset += count
        elif action < 0.8 and producer in started:
            kind = rng.choice((ABORT, COMMIT))
            log.append(marker(offset, producer, kind))
            data = started.pop(producer)
            del first_of[producer]
            committed += data if kind == COMMIT else []
            offset += 1
        elif action < 0.9:
            log.append(batch(offset))
            committed.append(offset)
            offset += 1
        elif log.segments[-1]:
            log.roll()
    if not offset:
        return
    log.write(index=indexed)
    log.write_transaction_files(indexes=indexed, snapshots=rng.random() < 0.5)
    stable = min(first_of.values(), default=offset)
    made = planned(log.directory, target_split_bytes=target_bytes)
    assert made.partitions[0].last_stable_offset == stable
    assert offsets(made) == sorted(one for one in committed if one < stable)
