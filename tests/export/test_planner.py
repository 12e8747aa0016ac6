"""The planner makes splits that together hold each wanted offset once, and reports what cannot be read."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export.options import EARLIEST, LATEST, Edge, Isolation, ReadOptions, Subscription
from klog.export.planner import plan
from klog.export.reader import read_split
from klog.formats.errors import CorruptRecordError, StorageError, UsageError
from klog.formats.names import FileKind, TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.replicas import open_segment
from klog.replicas.remote import resolve
from klog.replicas.splits import LostRange, Plan, Split
from tests.corpora import FIXTURES, corpora, log_dirs, partitions, read_jsonl
from tests.export.logs import (
    ABORT,
    Log,
    batch,
    marker,
    replica,
    transactional,
    write_checkpoint,
    write_segment,
)
from tests.export.object_store import ROOT, counted_store, put_directory

BATCHES = (
    batch(0),
    batch(1, 3),
    batch(7, 2, at=50),
    batch(9)[:-3],
    marker(10, 3, ABORT),
    transactional(11, 2, 3),
    bytes(100),
)


def planned(*paths: object, **options: object) -> Plan:
    return plan(ReadOptions(tuple(map(str, paths)), **options))  # type: ignore[arg-type]


def in_order(made: Plan) -> list[Split]:
    return sorted(made.splits, key=lambda split: split.number)


def read(made: Plan) -> tuple[dict[TopicPartition, list[int]], list[LostRange]]:
    """The offsets that come of each partition, and what splits could not give."""
    found: dict[TopicPartition, list[int]] = {}
    lost: list[LostRange] = []
    for split in in_order(made):
        for rows in read_split(split, ReadOptions(()), columns=["offset"], on_lost=lost.append):
            found.setdefault(split.topic_partition, []).extend(rows.column("offset").to_pylist())
    return found, lost


@pytest.mark.parametrize("log_dir", log_dirs(corpora("k0", "k2", "k3", "k4", "up-")), ids=str)
def test_of_every_corpus_comes_what_kafkas_consumer_got(log_dir) -> None:
    expected = {
        (partition.name, isolation): [line["offset"] for line in lines if "offset" in line]
        for partition in log_dir.partitions()
        for isolation in Isolation
        if (lines := partition.expected_consumer(isolation)) is not None
    }
    for isolation in Isolation:
        made = planned(log_dir.path, isolation=isolation, target_split_bytes=2000)
        found, lost = read(made)
        assert not lost
        assert not made.lost
        for name in {name for name, level in expected if level == isolation}:
            topic, _, number = name.rpartition("-")
            assert found.get(TopicPartition(topic, int(number)), []) == expected[name, isolation]


@pytest.mark.parametrize("log_dir", log_dirs(corpora("corrupt-")), ids=str)
@pytest.mark.parametrize("target_bytes", [300, 1 << 20])
def test_of_damaged_segments_each_offset_comes_or_is_lost_once(log_dir, target_bytes: int) -> None:
    sets_of_old = "k08" in log_dir.corpus.name  # which offsets they hold is not in their headers
    made = planned(log_dir.path, target_split_bytes=target_bytes)
    found, lost = read(made)
    for partition in made.partitions:
        name = TopicPartition(partition.topic, partition.partition)
        offsets = found.get(name, [])
        gone: list[int] = []
        for one in [*lost, *made.lost]:
            if (one.topic, one.partition) == name and one.first_offset is not None:
                end = one.end_offset if one.end_offset is not None else one.first_offset
                gone += range(one.first_offset, end)
        assert offsets == sorted(set(offsets))
        told = sorted({*offsets, *gone} if sets_of_old else [*offsets, *gone])
        # Indexes prove records after the last one that is there.
        end = max([partition.end_offset, *(offset + 1 for offset in gone)])
        assert told == list(range(partition.log_start_offset, end))


def segment_bytes(made: Plan) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for split in in_order(made):
        spans.setdefault(split.file, []).append((split.start_bytes, split.end_bytes))
    return spans


@st.composite
def logs(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Segments of batches as (first offset, count), with a gap now and then."""
    offset = draw(st.integers(0, 50))
    log = []
    for _ in range(draw(st.integers(1, 4))):
        batches = []
        for _ in range(draw(st.integers(1, 8))):
            offset += draw(st.sampled_from((0, 0, 0, 1, 7)))
            count = draw(st.integers(1, 5))
            batches.append((offset, count))
            offset += count
        log.append(batches)
    return log


def write(directory: Path, log: list[list[tuple[int, int]]], *, index: bool = True) -> list[int]:
    """The log on disk; returns its offsets."""
    for segment in log:
        write_segment(directory, [batch(first, count) for first, count in segment], index=index)
    return [first + n for segment in log for first, count in segment for n in range(count)]


@settings(max_examples=80)
@given(
    log=logs(),
    target_bytes=st.integers(1, 3000),
    min_partitions=st.none() | st.integers(1, 40),
    start=st.integers(0, 250),
    end=st.integers(0, 250),
    index=st.booleans(),
)
def test_splits_hold_each_wanted_offset_once_whatever_their_size(
    tmp_path_factory: pytest.TempPathFactory,
    log: list[list[tuple[int, int]]],
    target_bytes: int,
    min_partitions: int | None,
    start: int,
    end: int,
    index: bool,
) -> None:
    directory = tmp_path_factory.mktemp("log") / "t-0"
    offsets = write(directory, log, index=index)
    made = planned(
        directory,
        starting=Edge(EARLIEST, offsets={"t": {0: start}}),
        ending=Edge(LATEST, offsets={"t": {0: end}}),
        target_split_bytes=target_bytes,
        min_partitions=min_partitions,
    )
    found, lost = read(made)
    assert found.get(TopicPartition("t", 0), []) == [offset for offset in offsets if start <= offset < end]
    assert not lost
    splits = in_order(made)
    assert [split.number for split in splits] == list(range(len(splits)))
    for before, after in pairwise(splits):
        assert before.end_offset <= after.first_offset
        assert before.file != after.file or before.end_bytes == after.start_bytes
    assert all(split.first_offset < split.end_offset and split.length_bytes > 0 for split in splits)
    lengths = [split.length_bytes for split in made.splits]
    assert lengths == sorted(lengths, reverse=True)


def _damage(rng: random.Random, path: Path) -> None:
    """Change or remove bytes of a file, but not the offset of a batch, which no checksum covers."""
    data = bytearray(path.read_bytes())
    if path.suffix == ".log":
        table = BatchTable()
        kernel.scan(bytes(data), 0, True, table)
        row = rng.randrange(len(table))
        start, end = table.position[row] + 8, table.position[row] + table.size[row]
    else:
        start, end = 0, len(data)
    if start < end:
        at = rng.randrange(start, end)
        length = min(rng.choice((1, 4, 60, 400)), end - at)
        data[at : at + length] = rng.choice((bytes(length), rng.randbytes(length), b""))
        path.write_bytes(data)


@settings(max_examples=100)
@given(log=logs(), target_bytes=st.integers(1, 1500), seed=st.integers(0, 1 << 32), index=st.booleans())
def test_each_offset_lost_by_damage_is_reported(
    tmp_path_factory: pytest.TempPathFactory,
    log: list[list[tuple[int, int]]],
    target_bytes: int,
    seed: int,
    index: bool,
) -> None:
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("log") / "t-0"
    offsets = write(directory, log, index=index)
    _damage(rng, rng.choice(sorted(directory.iterdir())))
    made = planned(directory, target_split_bytes=target_bytes)
    found, lost = read(made)
    came = found.get(TopicPartition("t", 0), [])
    assert came == sorted(set(came))
    told: set[int] = set()
    for one in [*lost, *made.lost]:
        first = one.first_offset or 0
        told.update(range(first, offsets[-1] + 1 if one.end_offset is None else one.end_offset))
    end = made.partitions[0].end_offset
    missing = [offset for offset in offsets if offset not in told and offset not in set(came)]
    # A log that ends earlier on a batch boundary tells nobody that it once went on.
    assert [offset for offset in missing if offset < end] == []


NAMES = (
    *(f"t-0/{number:020d}{suffix}" for number in (0, 7) for suffix in (".log", ".index", ".timeindex")),
    *("t-0/00000000000000000000.txnindex", "t-0/00000000000000000007.snapshot", "t-0/0.log"),
    *("t-0/00000000000000000000.log.swap", "t-0/00000000000000000007.index.swap", "t-0/x.log.gz"),
    *("t-0/00000000000000000003.log.cleaned", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata"),
    *(FileKind.REPLICATION_CHECKPOINT, FileKind.LOG_START_CHECKPOINT, FileKind.META_PROPERTIES),
)


@settings(max_examples=100)
@given(
    files=st.dictionaries(
        st.sampled_from(NAMES),
        st.binary(max_size=150) | st.lists(st.sampled_from(BATCHES), max_size=4).map(b"".join),
        min_size=1,
    ),
    isolation=st.sampled_from(Isolation),
    timestamp=st.none() | st.integers(0, 100),
)
def test_any_bytes_in_any_file_give_a_plan_or_a_refusal(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, bytes],
    isolation: Isolation,
    timestamp: int | None,
) -> None:
    root = tmp_path_factory.mktemp("any")
    (root / "t-0").mkdir()
    for name, data in files.items():
        (root / name).write_bytes(data)
    (root / "u-0").mkdir()
    (root / "u-0" / "00000000000000000000.log").write_bytes(BATCHES[0])
    starting = Edge(EARLIEST, timestamp_ms=timestamp)
    made = planned(root, isolation=isolation, starting=starting, timestamp_latest=True, target_split_bytes=50)
    assert [(one.topic, one.end_offset) for one in made.partitions][-1] == ("u", 1)
    for partition in made.partitions:
        assert partition.start_offset <= partition.end_offset
    read(made)


def test_a_plan_is_the_same_each_time() -> None:
    path = FIXTURES / "k39-txn" / "logs"
    options = {"target_split_bytes": 1000, "isolation": Isolation.READ_COMMITTED}
    assert planned(path, **options) == planned(path, **options)


def test_cuts_are_where_batches_start(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", [batch(n * 3, 3) for n in range(100)])
    table = BatchTable()
    kernel.scan(log.read_bytes(), 0, True, table)
    splits = in_order(planned(tmp_path, target_split_bytes=1500))
    assert len(splits) == round(log.stat().st_size / 1500)
    assert {split.start_bytes for split in splits} <= set(table.position)


def test_more_splits_are_made_where_they_are_asked_for(tmp_path: Path) -> None:
    for topic in range(3):
        write_segment(tmp_path / f"t{topic}-0", [batch(n, size=100) for n in range(200)])
    assert len(planned(tmp_path).splits) == 3
    assert 16 <= len(planned(tmp_path, min_partitions=16).splits) <= 18


def test_only_the_part_of_a_segment_that_is_wanted_is_read(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", [batch(n, size=100) for n in range(200)])
    made = planned(
        tmp_path,
        starting=Edge(EARLIEST, offsets={"t": {0: 90}}),
        ending=Edge(LATEST, offsets={"t": {0: 110}}),
    )
    assert made.splits[0].length_bytes < log.stat().st_size / 9


def test_records_below_the_log_start_are_deleted(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", [batch(n * 5, 5) for n in range(6)])
    write_checkpoint(tmp_path, FileKind.LOG_START_CHECKPOINT, t_0=13)
    made = planned(tmp_path)
    assert (made.partitions[0].log_start_offset, made.partitions[0].start_offset) == (13, 13)
    assert read(made)[0][TopicPartition("t", 0)] == list(range(13, 30))


@pytest.mark.parametrize("partition", partitions(corpora("k39-times")), ids=str)
def test_a_time_is_the_offset_that_a_broker_answers(partition) -> None:
    queries = read_jsonl(partition.log_dir.expected_path / f"{partition.name}.times.jsonl")
    for query in queries:
        if not isinstance(query.get("query"), int) or query["query"] < 0:
            continue
        made = planned(
            partition.path, starting=Edge(EARLIEST, timestamp_ms=query["query"]), timestamp_latest=True
        )
        answer = query["offset"] if query["offset"] not in (None, -1) else made.partitions[0].log_end_offset
        assert made.partitions[0].start_offset == answer, query


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\x7f" * 24,
        bytes(24),
        (5).to_bytes(8, "big") + bytes(4),
        (40).to_bytes(8, "big") + (9).to_bytes(4, "big"),
    ],
    ids=["empty", "garbage", "zeros", "early", "late"],
)
def test_a_wrong_time_index_changes_no_result(tmp_path: Path, damage: bytes) -> None:
    log = Log(tmp_path / "t-0")
    log.append(*(batch(n, at=n * 10) for n in range(10))).roll()
    log.append(*(batch(n, at=n * 10) for n in range(10, 20)))
    log.write()
    for path in (tmp_path / "t-0").glob("*.timeindex"):
        path.write_bytes(damage)
    for timestamp in (0, 45, 90, 91, 150, 190):
        made = planned(tmp_path, starting=Edge(EARLIEST, timestamp_ms=timestamp))
        assert made.partitions[0].start_offset == -(-timestamp // 10)


def test_the_last_time_entry_of_a_log_that_is_written_to_is_not_its_largest(tmp_path: Path) -> None:
    large = {"size": 40_000}
    log = write_segment(
        tmp_path / "t-0",
        [batch(0, at=20), batch(1, at=500), *(batch(n, at=20, **large) for n in range(2, 6))],
    )
    log.with_suffix(".timeindex").write_bytes((20).to_bytes(8, "big") + bytes(4))
    made = planned(tmp_path, starting=Edge(EARLIEST, timestamp_ms=300))
    assert made.partitions[0].start_offset == 1


def test_no_record_late_enough_is_an_error_or_the_end(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", [batch(0, 5, at=100)])
    late = Edge(EARLIEST, timestamp_ms=1000)
    with pytest.raises(UsageError, match="t-0 has no record at or after timestamp 1000"):
        planned(tmp_path, starting=late)
    made = planned(tmp_path, starting=late, timestamp_latest=True)
    assert made.partitions[0].start_offset == made.partitions[0].end_offset == 5
    assert not made.splits
    assert planned(tmp_path, ending=late).partitions[0].end_offset == 5
    assert planned(tmp_path, ending=Edge(LATEST, timestamp_ms=103)).partitions[0].end_offset == 3


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(), ["a-0", "a-1", "ab-0", "b-0"]),
        (Subscription(topics=frozenset(("a", "none"))), ["a-0", "a-1"]),
        (Subscription(pattern="a.?"), ["a-0", "a-1", "ab-0"]),
        (Subscription(pattern="b"), ["b-0"]),
        (Subscription(partitions={"a": frozenset((1, 7)), "b": frozenset((0,))}), ["a-1", "b-0"]),
    ],
)
def test_partitions_are_chosen_by_topic_pattern_or_number(
    tmp_path: Path, subscription: Subscription, expected: list[str]
) -> None:
    for name in ("a-0", "a-1", "ab-0", "b-0"):
        write_segment(tmp_path / name, [batch(0)])
    made = planned(tmp_path, subscription=subscription)
    assert [f"{one.topic}-{one.partition}" for one in made.partitions] == expected


def test_nothing_found_says_what_is_there(tmp_path: Path) -> None:
    write_segment(tmp_path / "a-0", [batch(0)])
    with pytest.raises(UsageError) as caught:
        planned(tmp_path, subscription=Subscription(topics=frozenset(("orders",))))
    assert caught.value.cure == "topics found are a"
    with pytest.raises(UsageError, match="no partition is found in"):
        planned(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no partition is found in"):
        planned(tmp_path / "empty")


def test_a_loss_that_the_planner_finds_stops_a_job_with_fail_on_data_loss(tmp_path: Path) -> None:
    directory = replica(tmp_path / "t-0", [batch(n, leader_epoch=0) for n in range(12)])
    assert planned(tmp_path, fail_on_data_loss=True).splits
    (directory / "00000000000000000004.log").unlink()
    with pytest.raises(CorruptRecordError, match="a file is missing"):
        planned(tmp_path, fail_on_data_loss=True)
    behind = planned(tmp_path, starting=Edge(EARLIEST, offsets={"t": {0: 8}}), fail_on_data_loss=True)
    assert [split.first_offset for split in behind.splits] == [8]


def test_segments_below_the_start_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = replica(tmp_path / "t-0", [batch(n, leader_epoch=0) for n in range(40)])
    opened = []
    really = open_segment.open_input

    def noting(path: str) -> BinaryIO:
        opened.append(Path(path).name)
        return really(path)

    monkeypatch.setattr(open_segment, "open_input", noting)
    made = planned(directory, starting=Edge(EARLIEST, offsets={"t": {0: 30}}))
    assert [(split.first_offset, split.end_offset) for split in in_order(made)] == [
        (30, 32),
        (32, 36),
        (36, 40),
    ]
    assert {int(name.partition(".")[0]) for name in opened} == {28, 32, 36}


def test_a_broken_checkpoint_or_index_is_no_loss(tmp_path: Path) -> None:
    directory = replica(tmp_path / "t-0", [batch(n, leader_epoch=0) for n in range(12)], (0, 0))
    (directory / "leader-epoch-checkpoint").write_text("nonsense")
    (directory / "00000000000000000004.index").write_bytes(b"\xff" * 16)
    (directory / "00000000000000000004.txnindex").write_bytes(b"\xff")
    made = planned(tmp_path, fail_on_data_loss=True, isolation=Isolation.READ_COMMITTED)
    assert made.partitions[0].end_offset == 12
    assert len(made.problems) == 2
    with pytest.raises(StorageError, match="does not exist"):
        planned(tmp_path, tmp_path / "nowhere", fail_on_data_loss=True)


def test_a_start_outside_of_the_log_is_an_error_with_fail_on_data_loss(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", [batch(10, 5)])
    for start in (5, 16):
        starting = Edge(EARLIEST, offsets={"t": {0: start}})
        assert planned(tmp_path, starting=starting).partitions[0].start_offset == min(max(start, 10), 15)
        with pytest.raises(UsageError, match=f"t-0 is requested from offset {start}, but has 10 to 15"):
            planned(tmp_path, starting=starting, fail_on_data_loss=True)


def test_of_many_segments_only_the_ends_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "t-0"
    proto = write_segment(tmp_path / "proto" / "t-0", [batch(n, size=5000) for n in range(30)])
    data, index = proto.read_bytes(), proto.with_suffix(".index").read_bytes()
    directory.mkdir()
    count = 300
    for number in range(count):
        moved = bytearray(data)
        at = 0
        while at < len(moved):  # the checksum of magic 2 does not cover the base offset
            base = int.from_bytes(moved[at : at + 8], "big") + number * 30
            moved[at : at + 8] = base.to_bytes(8, "big")
            at += 12 + int.from_bytes(moved[at + 8 : at + 12], "big")
        (directory / f"{number * 30:020d}.log").write_bytes(moved)
        (directory / f"{number * 30:020d}.index").write_bytes(index)
    read_bytes = []
    really = open_segment.open_input

    def counting(path: str) -> BinaryIO:
        file = really(path)
        read = file.read

        def counted(size: int = -1) -> bytes:
            part = read(size)
            read_bytes.append(len(part))
            return part

        monkeypatch.setattr(file, "read", counted, raising=False)
        return file

    monkeypatch.setattr(open_segment, "open_input", counting)
    made = planned(directory)
    assert len(made.splits) == count
    assert made.partitions[0].end_offset == count * 30
    assert not made.lost
    assert sum(read_bytes) <= count * (64 << 10) < count * len(data) / 2


def test_an_object_store_gets_few_requests(tmp_path: Path) -> None:
    log = Log(tmp_path / "t-0")
    for number in range(20):
        log.append(*(batch(number * 1000 + n, size=2000) for n in range(200))).roll()
    log.write()
    with counted_store() as store:
        put_directory(store, tmp_path)
        whole = planned(ROOT)
        assert len(whole.splits) == 20
        assert len(store.requests) <= 20
        store.requests.clear()
        cut = planned(ROOT, target_split_bytes=100_000)
        assert len(cut.splits) == 80
        assert len(store.requests) <= 20 * (1 + 1 + 3)
        local = planned(tmp_path, target_split_bytes=100_000)
        found, lost = read(cut)
    assert not lost
    assert found == read(local)[0]
    assert [(split.start_bytes, split.first_offset) for split in cut.splits] == [
        (split.start_bytes, split.first_offset) for split in local.splits
    ]


def test_segments_without_an_index_in_an_object_store_are_not_read_to_cut_them(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", [batch(n, size=20_000) for n in range(300)], index=False)
    assert len(planned(tmp_path, target_split_bytes=1 << 20).splits) > 3
    with counted_store() as store:
        put_directory(store, tmp_path)
        assert len(planned(ROOT, target_split_bytes=1 << 20).splits) == 1
        assert len(store.requests) == 1


def test_a_broker_in_an_object_store_is_planned_as_on_disk() -> None:
    corpus = FIXTURES / "k39-txn" / "logs"
    options = {"isolation": Isolation.READ_COMMITTED, "target_split_bytes": 1500}
    local = planned(corpus, **options)
    with counted_store() as store:
        put_directory(store, corpus)
        remote = planned(ROOT, **options)
        assert read(remote) == read(local)
    assert [replace(one, directories=()) for one in remote.partitions] == [
        replace(one, directories=()) for one in local.partitions
    ]
    assert [replace(one, file="") for one in remote.splits] == [replace(one, file="") for one in local.splits]


def test_pyarrows_own_file_systems_serve_too(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", [batch(0, 5), batch(5, 5)])
    system, place = resolve("mock:///logs/t-0")
    system.create_dir(place, recursive=True)
    with system.open_output_stream(f"{place}/{log.name}") as file:
        file.write(log.read_bytes())
    made = planned("mock:///logs")
    assert [split.file for split in made.splits] == [f"mock:///logs/t-0/{log.name}"]
    assert read(made)[0] == {TopicPartition("t", 0): list(range(10))}
