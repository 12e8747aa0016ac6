"""Two replicas compared offset by offset, held against a plain comparison of their records."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.convert.options import ConvertOptions
from klog.formats.compression import GZIP, LZ4, NONE, ZSTD
from klog.formats.names import FileKind
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.replicas.compare_logs import OffsetRange, RangeState
from klog.replicas.compare_partitions import PartitionDiff, Selection, compare_pair, find_pairs
from tests import corpora
from tests.convert.logs import converted, records_of, with_codec
from tests.export.logs import (
    batch,
    marker,
    replica,
    transactional,
    write_checkpoint,
    write_epochs,
    write_topic_id,
)
from tests.storage.cleaner.logs import clean_directory, random_log

EPOCHS = corpora.Corpus("k39-epochs")
EVERYTHING = Selection(most_ranges=10**9, most_records=10**9)


def compared(a: Path, b: Path, selection: Selection = EVERYTHING) -> PartitionDiff:
    """The comparison of the one partition below two paths."""
    pairs, found = find_pairs(str(a), str(b), selection)
    assert not found.problems
    (pair,) = pairs
    return compare_pair(pair, selection)


def shown(diff: PartitionDiff) -> list[tuple[str, int, int]]:
    return [(str(one.state), one.first_offset, one.last_offset) for one in diff.ranges]


class Model(NamedTuple):
    """One record as it was written: its offset and all that is compared."""

    offset: int
    values: tuple[Any, ...]


class Made(NamedTuple):
    """A batch to write: its records, and the codec."""

    records: tuple[RecordData, ...]
    codec: int
    fields: tuple[int, int, int]  # leader epoch, producer, sequence of offset 0

    def build(self) -> bytes:
        epoch, producer, sequence = self.fields
        numbered = (
            {} if producer < 0 else {"producer_epoch": 0, "base_sequence": sequence + self.records[0].offset}
        )
        own = {} if producer < 0 else {"producer_id": producer, **numbered}
        return bytes(build_batch(self.records, BatchFields(codec=self.codec, leader_epoch=epoch, **own)))

    def models(self) -> Iterator[Model]:
        for record in self.records:
            yield Model(record.offset, (*record[1:], self.fields))


codecs = st.sampled_from([NONE, NONE, GZIP, LZ4])


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[Made], list[Made]]:
    """A log, and another one that differs in batches, in records, and in which ones are there."""
    count = draw(st.integers(1, 40))
    fields = draw(st.sampled_from([(0, -1, 0), (3, 7, 100)]))
    records = [RecordData(n, 1000 + n, b"k%d" % (n % 5), b"v%d" % n, ((b"h", None),)) for n in range(count)]
    return _log(draw, records, fields), _log(draw, records, fields)


def _log(draw: st.DrawFn, records: Sequence[RecordData], fields: tuple[int, int, int]) -> list[Made]:
    count = len(records)
    cuts = sorted(draw(st.sets(st.integers(1, count), max_size=8)) | {count})
    removed = draw(st.sets(st.integers(0, count - 1), max_size=6))
    changed = draw(st.sets(st.integers(0, count - 1), max_size=4))
    other_fields = draw(st.sets(st.sampled_from(cuts), max_size=1))
    first, end = draw(st.integers(0, 4)), draw(st.integers(max(0, count - 4), count))
    made = []
    for start, stop in pairwise([0, *cuts]):
        kept = [
            one._replace(value=b"other") if one.offset in changed else one
            for one in records[start:stop]
            if one.offset not in removed and first <= one.offset < end
        ]
        if kept:
            batch_fields = (fields[0] + 1, *fields[1:]) if stop in other_fields else fields
            made.append(Made(tuple(kept), draw(codecs), batch_fields))
    return made


@settings(deadline=None, max_examples=120)
@given(two_logs(), st.integers(1, 4), st.integers(1, 4))
def test_ranges_say_what_a_plain_comparison_of_the_records_says(
    logs: tuple[list[Made], list[Made]], per_segment_a: int, per_segment_b: int
) -> None:
    if not all(logs):
        return  # an empty directory is no partition
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch) / name / "t-0" for name in "ab"]
        for path, made, size in zip(paths, logs, (per_segment_a, per_segment_b), strict=True):
            replica(path, [one.build() for one in made], segment_batches=size)
        diff = compared(*paths)
        without_records = compared(*paths, Selection(most_ranges=10**9))
    assert without_records.ranges == diff.ranges
    a, b = ({one.offset: one.values for each in made for one in each.models()} for made in logs)
    check(diff, a, b)


@settings(deadline=None, max_examples=25)
@given(st.sets(st.integers(0, 699), max_size=12))
def test_long_runs_of_equal_batches_end_where_one_differs(changed: set[int]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch) / name / "t-0" for name in "ab"]
        replica(paths[0], ONE_BY_ONE, segment_batches=300)
        other = [OTHERS[offset] if offset in changed else one for offset, one in enumerate(ONE_BY_ONE)]
        replica(paths[1], other, segment_batches=450)
        diff = compared(*paths)
    found = [
        offset
        for one in diff.ranges
        if one.state is RangeState.DIFFERENT_RECORDS
        for offset in range(one.first_offset, one.last_offset + 1)
    ]
    assert found == [one.offset for one in diff.records] == sorted(changed)
    assert diff.states[RangeState.SAME] == 700 - len(changed)
    assert RangeState.OTHER_BATCHES not in diff.states


ONE_BY_ONE = [batch(offset) for offset in range(700)]
OTHERS = [batch(offset, at=1) for offset in range(700)]


def check(diff: PartitionDiff, a: dict[int, Any], b: dict[int, Any]) -> None:
    ranges = diff.ranges
    assert all(one.last_offset < following.first_offset for one, following in pairwise(ranges))
    different = sorted(offset for offset in a.keys() | b.keys() if a.get(offset) != b.get(offset))
    assert [one.offset for one in diff.records] == different
    for one in ranges:
        own = range(one.first_offset, one.last_offset + 1)
        both = [offset for offset in own if offset in a and offset in b]
        assert one.same_records == sum(a[offset] == b[offset] for offset in both)
        assert one.different_records == sum(a[offset] != b[offset] for offset in both)
        assert one.only_in_a == sum(offset in a and offset not in b for offset in own)
        assert one.only_in_b == sum(offset in b and offset not in a for offset in own)
        assert _fits(one), one
    covered = {offset for one in ranges for offset in range(one.first_offset, one.last_offset + 1)}
    assert a.keys() | b.keys() <= covered
    unlike = [one for one in ranges if one.state not in (RangeState.SAME, RangeState.OTHER_BATCHES)]
    assert diff.is_same == (a == b) == (not unlike)


def _fits(one: OffsetRange) -> bool:
    """Whether the counts of a range are those of its state."""
    counts = (bool(one.same_records), bool(one.different_records), bool(one.only_in_a), bool(one.only_in_b))
    return {
        RangeState.SAME: counts == (True, False, False, False),
        RangeState.OTHER_BATCHES: counts == (True, False, False, False),
        RangeState.DIFFERENT_RECORDS: counts == (False, True, False, False),
        RangeState.ONLY_IN_A: counts == (False, False, True, False),
        RangeState.ONLY_IN_B: counts == (False, False, False, True),
        RangeState.CLEANED: not one.different_records and (one.only_in_a or one.only_in_b),
    }[one.state] != 0


def test_replicas_of_real_brokers_that_agree_are_the_same() -> None:
    pairs, found = find_pairs(
        str(EPOCHS.log_dir("logs_0").path), str(EPOCHS.log_dir("logs_2").path), EVERYTHING
    )
    assert not found.problems
    assert [str(pair.partition) for pair in pairs if pair.a and pair.b] == ["ep-0", "ep-1"]
    for pair in pairs[:2]:
        diff = compare_pair(pair, EVERYTHING)
        assert diff.is_same
        assert {one.state for one in diff.ranges} == ({RangeState.SAME} if pair.size_bytes else set())
        assert diff.kept.truncation_offset in (None, min(pair.a.end_offset, pair.b.end_offset))  # type: ignore[union-attr]


def test_after_an_unclean_election_the_old_leader_truncates_to_where_they_part() -> None:
    a, b = (EPOCHS.log_dir(name).path / "ep-0" for name in ("logs_1", "logs_div0"))
    diff = compared(a, b)
    assert shown(diff) == [("same", 0, 94), ("different records", 95, 112), ("only in A", 113, 146)]
    assert diff.first_difference == 95
    assert (diff.kept.name, diff.kept.truncation_offset, diff.kept.last_common_epoch) == ("A", 95, 2)
    assert "leaderEpoch" in diff.records[0].fields
    other = compared(b, a)
    assert [state for state, _, _ in shown(other)] == ["same", "different records", "only in B"]
    assert (other.kept.name, other.kept.truncation_offset) == ("B", 95)


def test_without_checkpoints_the_epochs_of_the_batches_say_the_same(tmp_path: Path) -> None:
    for name in ("logs_1", "logs_div0"):
        directory = tmp_path / name / "ep-0"
        shutil.copytree(EPOCHS.log_dir(name).path / "ep-0", directory)
        (directory / FileKind.LEADER_EPOCH_CHECKPOINT).unlink()
    diff = compared(tmp_path / "logs_1", tmp_path / "logs_div0")
    assert (diff.kept.name, diff.kept.truncation_offset, diff.kept.last_common_epoch) == ("A", 95, 2)


PARTITIONS = [
    partition
    for name in ("k39-txn", "k39-edge", "k39-epochs", "k39-compact", "k28-codecs")
    for partition in corpora.Corpus(name).log_dirs()[0].partitions()
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_converted_logs_have_the_same_records_in_other_batches(
    partition: corpora.PartitionDirectory, tmp_path: Path
) -> None:
    copy = tmp_path / partition.name
    shutil.copytree(partition.path, copy)
    converted(copy)
    diff = compared(partition.path, copy)
    assert diff.is_same
    assert diff.first_difference is None
    assert not diff.records


@pytest.mark.parametrize("name", ["k08-codecs", "k010-codecs", "up-08-010-11-28-39"])
def test_converted_old_messages_have_the_same_records(name: str, tmp_path: Path) -> None:
    source = corpora.Corpus(name).log_dirs()[0]
    compared_records = 0
    for partition in source.partitions():
        copy = tmp_path / partition.name
        shutil.copytree(partition.path, copy)
        converted(copy)
        diff = compared(partition.path, copy)
        assert diff.is_same, partition
        compared_records += diff.states[RangeState.OTHER_BATCHES]
    assert compared_records


@pytest.mark.parametrize("seed", range(4))
def test_random_logs_converted_with_joined_batches(seed: int, tmp_path: Path) -> None:
    a, b = tmp_path / "a" / "events-0", tmp_path / "b" / "events-0"
    random_log(a, seed)
    shutil.copytree(a, b)
    options: ConvertOptions = with_codec(ZSTD, batch_bytes=2000, segment_bytes=3000)
    converted(b, options)
    diff = compared(a, b)
    assert diff.is_same
    assert RangeState.OTHER_BATCHES in diff.states


@pytest.mark.parametrize("seed", [0, 1, 2, 5, 6])
def test_cleaned_records_are_named_and_are_no_divergence(seed: int, tmp_path: Path) -> None:
    a, b = tmp_path / "a" / "events-0", tmp_path / "b" / "events-0"
    random_log(a, seed)
    shutil.copytree(a, b)
    clean_directory(b)
    removed_records = len(records_of(a)) - len(records_of(b))
    assert removed_records
    diff = compared(a, b)
    assert diff.first_difference is None
    assert diff.states.keys() <= {RangeState.SAME, RangeState.OTHER_BATCHES, RangeState.CLEANED}
    removed = [one for one in diff.ranges if one.state is RangeState.CLEANED]
    assert sum(one.only_in_a for one in removed) == removed_records
    assert {one.reason for one in removed} == {"cleaned in B"}
    assert not diff.is_same


def test_records_below_a_log_start_offset_are_in_one_only(tmp_path: Path) -> None:
    batches = [batch(first, 5, leader_epoch=0) for first in range(0, 40, 5)]
    for name in "ab":
        replica(tmp_path / name / "t-0", batches, (0, 0))
    write_checkpoint(tmp_path / "b", FileKind.LOG_START_CHECKPOINT, t_0=12)
    diff = compared(tmp_path / "a", tmp_path / "b")
    assert shown(diff) == [("only in A", 0, 11), ("same", 12, 39)]
    assert diff.ranges[0].reason == "below the log start of B"
    assert diff.pair.b is not None
    assert diff.pair.b.log_start_offset == 12


def test_a_lost_segment_is_not_taken_for_a_cleaned_one(tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 60, 5)]
    for name in "ab":
        replica(tmp_path / name / "t-0", batches)
    for path in (tmp_path / "b" / "t-0").glob("00000000000000000020.*"):
        path.unlink()
    diff = compared(tmp_path / "a", tmp_path / "b")
    assert shown(diff) == [("same", 0, 19), ("only in A", 20, 39), ("same", 40, 59)]
    assert diff.ranges[1].reason == "no segment of B holds these offsets"


def test_a_damaged_batch_is_named(tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 20, 5)]
    for name in "ab":
        replica(tmp_path / name / "t-0", batches)
    path = tmp_path / "b" / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(batches[0]) + 80] ^= 1
    path.write_bytes(data)
    diff = compared(tmp_path / "a", tmp_path / "b")
    assert shown(diff) == [("same", 0, 4), ("only in A", 5, 9), ("same", 10, 19)]
    assert diff.ranges[1].reason.startswith("B is damaged: batch fails its checksum")
    (lost,) = diff.damage[1]
    assert (lost.first_offset, lost.end_offset) == (5, 10)


def test_damage_at_the_same_place_is_not_the_same(tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 20, 5)]
    data = bytearray(b"".join(batches))
    data[len(batches[0]) + 80] ^= 1
    for name in "ab":
        directory = replica(tmp_path / name / "t-0", batches)
        (directory / "00000000000000000000.log").write_bytes(data)
    diff = compared(tmp_path / "a", tmp_path / "b")
    assert shown(diff) == [("same", 0, 19)]
    assert not diff.is_same


@pytest.mark.parametrize("torn_bytes", [1, 30, 100])
def test_a_torn_end_is_after_the_log(torn_bytes: int, tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 20, 5)]
    for name in "ab":
        replica(tmp_path / name / "t-0", batches)
    path = tmp_path / "b" / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + batch(20, 5)[:torn_bytes])
    assert compared(tmp_path / "a", tmp_path / "b").is_same
    path.write_bytes(b"".join(batches)[:-torn_bytes])
    diff = compared(tmp_path / "a", tmp_path / "b")
    assert shown(diff) == [("same", 0, 14), ("only in A", 15, 19)]
    assert diff.kept.name == "A"


def test_fields_of_producers_and_transactions_are_compared(tmp_path: Path) -> None:
    ours = [transactional(0, 2, 7, leader_epoch=0), marker(2, 7, 1), transactional(3, 2, 7, leader_epoch=0)]
    theirs = [batch(0, 2, leader_epoch=0), marker(2, 7, 0), transactional(3, 2, 8, leader_epoch=0)]
    replica(tmp_path / "a" / "t-0", ours)
    replica(tmp_path / "b" / "t-0", theirs)
    diff = compared(tmp_path / "a", tmp_path / "b")
    assert shown(diff) == [("different records", 0, 4)]
    fields = {one.offset: set(one.fields) for one in diff.records}
    assert {"producerId", "isTransactional"} <= fields[0]
    assert fields[2] == {"key"}
    assert fields[4] == {"producerId"}


def test_offsets_bound_the_comparison(tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 60, 5)]
    replica(tmp_path / "a" / "t-0", batches)
    replica(tmp_path / "b" / "t-0", [*batches[:4], batch(20, 5, size=3), *batches[5:]])
    assert shown(compared(tmp_path / "a", tmp_path / "b", Selection(first_offset=22, end_offset=33))) == [
        ("different records", 22, 24),
        ("same", 25, 32),
    ]
    assert shown(compared(tmp_path / "a", tmp_path / "b", Selection(first_offset=41))) == [("same", 41, 59)]
    assert shown(compared(tmp_path / "a", tmp_path / "b", Selection(end_offset=7))) == [("same", 0, 6)]


def test_a_segment_is_compared_with_a_whole_partition(tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 60, 5)]
    for name in "ab":
        replica(tmp_path / name / "t-0", batches)
    diff = compared(tmp_path / "a" / "t-0" / "00000000000000000020.log", tmp_path / "b")
    assert shown(diff) == [("same", 20, 39)]
    assert diff.kept.name is None


def test_an_epoch_without_records_makes_the_longer_log_truncate(tmp_path: Path) -> None:
    batches = [batch(first, 5, leader_epoch=0) for first in range(0, 60, 5)]
    replica(tmp_path / "a" / "t-0", batches[:8], (0, 0))
    replica(tmp_path / "b" / "t-0", batches, (0, 0))
    assert compared(tmp_path / "a", tmp_path / "b").kept.name == "B"
    write_epochs(tmp_path / "a" / "t-0", (0, 0), (1, 40))
    kept = compared(tmp_path / "a", tmp_path / "b").kept
    assert (kept.name, kept.truncation_offset, kept.last_common_epoch) == ("A", 40, 0)


def test_without_epochs_a_follower_truncates_to_its_high_watermark(tmp_path: Path) -> None:
    batches = [batch(first, 5) for first in range(0, 60, 5)]
    replica(tmp_path / "a" / "t-0", batches)
    replica(tmp_path / "b" / "t-0", batches[:8])
    assert compared(tmp_path / "a", tmp_path / "b").kept.truncation_offset is None
    write_checkpoint(tmp_path / "b", FileKind.REPLICATION_CHECKPOINT, t_0=35)
    assert compared(tmp_path / "a", tmp_path / "b").kept.truncation_offset == 35


def test_two_topics_of_one_name_are_not_replicas(tmp_path: Path) -> None:
    for name, topic_id in (("a", "C" * 21 + "A"), ("b", "B" * 21 + "A")):
        directory = replica(tmp_path / name / "t-0", [batch(0, 5)])
        write_topic_id(directory, topic_id)
    kept = compared(tmp_path / "a", tmp_path / "b").kept
    assert kept.name is None
    assert "two topics of the same name" in kept.reason
