"""The public readers read what Kafka's own reader reads, in every file that real Kafka wrote."""

from __future__ import annotations

import base64
import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog
from tests import corpora

PARTITIONS = [partition for partition in corpora.partitions() if partition.has_expected]
# At bad bytes Kafka's reader throws and stops; klog reports the problem and continues.
SOUND = [partition for partition in PARTITIONS if not partition.corpus.is_corrupt]


def ignore(problem: klog.KlogError) -> None:
    """The tests that use this look at what is read, not at the problems."""


def bytes_in(name: str, expected: dict[str, Any], actual: bytes | None) -> bytes | str | None:
    """The expected key or value, in the form that can be compared with `actual`."""
    if f"{name}_sha256" in expected:
        assert actual is not None
        assert hashlib.sha256(actual).hexdigest() == expected[f"{name}_sha256"]
        return actual
    return None if expected[name] is None else base64.b64decode(expected[name])


def by_file(lines: list[dict[str, Any]], field: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(line["file"], [])
        if field in line:
            found[line["file"]].append(line)
    return found


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_batches_are_those_that_kafkas_reader_finds(partition: corpora.PartitionDirectory) -> None:
    lines = partition.expected_batches()
    ended_by_kafka = {line["file"] for line in lines if "scanError" in line}
    for name, expected in by_file(lines, "position").items():
        found = list(klog.Segment(partition.path / name).batches(on_problem=ignore))
        if name in ended_by_kafka:  # it threw; klog may continue
            found = found[: len(expected)]
        assert len(found) == len(expected)
        for batch, line in zip(found, expected, strict=True):
            assert (batch.position_bytes, batch.size_bytes) == (line["position"], line["size"])
            assert batch.last_offset == line["lastOffset"]
            assert batch.base_offset in (line["baseOffset"], None)
            assert (batch.magic, batch.count, batch.codec) == (line["magic"], line["count"], line["codec"])
            assert batch.max_timestamp_ms == line["maxTimestamp"]
            assert (batch.checksum, batch.valid) == (line["checksum"], line["valid"])
            assert (batch.producer_id, batch.producer_epoch) == (line["producerId"], line["producerEpoch"])
            assert (batch.base_sequence, batch.last_sequence) == (line["baseSequence"], line["lastSequence"])
            assert batch.partition_leader_epoch == line["partitionLeaderEpoch"]
            assert (batch.is_transactional, batch.is_control) == (line["isTransactional"], line["isControl"])
            assert batch.delete_horizon_ms == line["deleteHorizonMs"]


@pytest.mark.parametrize("partition", SOUND, ids=str)
def test_records_are_those_that_kafkas_reader_finds(partition: corpora.PartitionDirectory) -> None:
    for name, expected in by_file(partition.expected_records(), "offset").items():
        segment = klog.Segment(partition.path / name)
        found = list(segment.records(on_problem=ignore, control_records=True))
        assert len(found) == len(expected)
        for record, line in zip(found, expected, strict=True):
            assert (record.offset, record.timestamp_ms) == (line["offset"], line["timestamp"])
            assert record.timestamp_type == line["timestampType"]
            assert record.key == bytes_in("key", line, record.key)
            assert record.value == bytes_in("value", line, record.value)
            headers = [(key.encode("utf-8", "surrogateescape"), value) for key, value in record.headers]
            assert headers == [
                (base64.b64decode(key), None if value is None else base64.b64decode(value))
                for key, value in line["headers"]
            ]
            assert (record.is_control, record.control_type) == (line["isControl"], line.get("controlType"))
            assert (record.sequence, record.size_bytes) == (line["sequence"], line["recordSize"])
            assert record.batch.position_bytes == line["batchPosition"]
            assert record.batch.partition_leader_epoch == line["leaderEpoch"]


@pytest.mark.parametrize("partition", SOUND, ids=str)
def test_a_batch_decodes_to_its_own_records(partition: corpora.PartitionDirectory) -> None:
    for path in partition.files(".log"):
        segment = klog.Segment(path)
        one_by_one = [record for batch in segment.batches(on_problem=ignore) for record in batch.records()]
        assert [(r.offset, r.key, r.value) for r in one_by_one] == [
            (r.offset, r.key, r.value) for r in segment.records(on_problem=ignore, control_records=True)
        ]


@pytest.mark.parametrize("partition", SOUND[::7], ids=str)
def test_arrow_holds_the_same_records(partition: corpora.PartitionDirectory) -> None:
    directory = klog.PartitionDirectory(partition.path)
    records = list(directory.records(on_problem=ignore))
    tables = [
        segment.to_arrow(["offset", "key", "value"], on_problem=ignore) for segment in directory.segments
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    assert rows == [{"offset": r.offset, "key": r.key, "value": r.value} for r in records]


@pytest.mark.parametrize("partition", SOUND[::5], ids=str)
def test_a_gzipped_copy_reads_like_the_segment(partition: corpora.PartitionDirectory, tmp_path: Path) -> None:
    for path in partition.files(".log"):
        copy = tmp_path / f"{path.name}.gz"
        copy.write_bytes(gzip.compress(path.read_bytes()))
        plain, packed = klog.Segment(path), klog.Segment(copy)
        assert packed.base_offset == plain.base_offset
        assert [tuple(r)[:6] for r in packed.records(on_problem=ignore)] == [
            tuple(r)[:6] for r in plain.records(on_problem=ignore)
        ]


def test_a_gzipped_copy_that_ends_early_is_read_up_to_there(tmp_path: Path) -> None:
    source = corpora.Corpus("k39-codecs").log_dir().partition("t-none-0").files(".log")[0]
    copy = tmp_path / f"{source.name}.gz"
    packed = gzip.compress(source.read_bytes())
    copy.write_bytes(packed[: len(packed) // 2])
    problems: list[klog.KlogError] = []
    records = list(klog.Segment(copy).records(on_problem=problems.append))
    whole = list(klog.Segment(source).records())
    assert 0 < len(records) < len(whole)
    assert [r.offset for r in records] == [r.offset for r in whole[: len(records)]]
    assert isinstance(problems[0], klog.StorageError)
    assert "ends early" in str(problems[0])


def damaged(tmp_path: Path) -> tuple[Path, int]:
    """A segment with one flipped bit in its third batch, and that batch's position."""
    source = corpora.Corpus("k39-codecs").log_dir().partition("t-none-0").files(".log")[0]
    batch = list(klog.Segment(source).batches())[2]
    data = bytearray(source.read_bytes())
    data[batch.position_bytes + batch.size_bytes - 1] ^= 1
    path = tmp_path / source.name
    path.write_bytes(data)
    return path, batch.position_bytes


def test_reading_continues_after_a_damaged_batch_and_reports_it(tmp_path: Path) -> None:
    path, position = damaged(tmp_path)
    problems: list[klog.KlogError] = []
    offsets = [record.offset for record in klog.Segment(path).records(on_problem=problems.append)]
    assert offsets == list(range(offsets[-1] + 1))
    first = problems[0]
    assert isinstance(first, klog.CorruptRecordError)
    assert (first.file, first.position_bytes) == (str(path), position)
    assert "checksum" in first.what


def test_strict_reading_raises_at_the_first_problem(tmp_path: Path) -> None:
    path, position = damaged(tmp_path)
    with pytest.raises(klog.CorruptRecordError) as caught:
        list(klog.Segment(path).records(strict=True))
    assert caught.value.position_bytes == position


def test_a_problem_without_a_handler_becomes_a_warning(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path)
    with pytest.warns(klog.DamagedDataWarning, match="checksum"):
        list(klog.Segment(path).records())


def test_each_iteration_reads_the_segment_of_that_time(tmp_path: Path) -> None:
    source = corpora.Corpus("k39-codecs").log_dir().partition("t-none-0").files(".log")[0]
    data = source.read_bytes()
    batches = list(klog.Segment(source).batches())
    half = batches[len(batches) // 2].position_bytes
    path = tmp_path / source.name
    path.write_bytes(data[: half + 30])  # as if the broker were writing
    segment = klog.Segment(path)
    problems: list[klog.KlogError] = []
    before = list(segment.batches(on_problem=problems.append))
    assert [problem.position_bytes for problem in problems] == [half]
    with path.open("ab") as log:
        log.write(data[half + 30 :])
    after = list(segment.batches(strict=True))
    assert (len(before), len(after)) == (len(batches) // 2, len(batches))


def test_a_segment_that_shrinks_while_it_is_read_ends_there(tmp_path: Path) -> None:
    source = corpora.Corpus("k39-codecs").log_dir().partition("t-none-0").files(".log")[0]
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes() * 400)  # more than one chunk
    problems: list[klog.KlogError] = []
    batches = klog.Segment(path).batches(on_problem=problems.append)
    first = next(batches)
    path.write_bytes(source.read_bytes())
    assert first.position_bytes == 0
    assert sum(batch.size_bytes for batch in batches) <= 2 << 20


@pytest.mark.parametrize("content", [b"To whom it may concern, this is no log.\n" * 9, b"PK\x03\x04" * 40])
def test_a_file_that_is_not_kafkas_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(content)
    with pytest.raises(klog.FormatError) as caught:
        list(klog.Segment(path).records(strict=True))
    assert "does not start with a Kafka record batch" in str(caught.value)


def test_a_decompression_bomb_is_a_problem_and_the_rest_is_read() -> None:
    source = corpora.Corpus("k39-codecs").log_dir().partition("t-gzip-0").files(".log")[0]
    problems: list[klog.KlogError] = []
    segment = klog.Segment(source, max_decompressed_bytes=700)
    records = list(segment.records(on_problem=problems.append))
    assert problems
    assert all(isinstance(problem, klog.DecompressionLimitError) for problem in problems)
    assert 0 < len(records) < len(list(klog.Segment(source).records()))


def test_the_decompressed_size_of_a_batch_has_a_default_limit() -> None:
    from klog.formats.compression import DEFAULT_LIMIT_BYTES, GZIP, decompress

    assert 64 << 20 <= DEFAULT_LIMIT_BYTES <= 128 << 20
    with pytest.raises(klog.DecompressionLimitError):
        decompress(GZIP, gzip.compress(bytes(DEFAULT_LIMIT_BYTES + 1)))


SELECTABLE = [
    path
    for corpus in ("k39-times", "k39-codecs", "k08-codecs", "k010-codecs", "k39-compact")
    for partition in corpora.Corpus(corpus).log_dir().partitions()
    for path in partition.files(".log")
    if path.stat().st_size
]


@given(st.data())
def test_bounds_give_the_same_records_as_filtering_all(data: st.DataObject) -> None:
    segment = klog.Segment(data.draw(st.sampled_from(SELECTABLE)))
    everything = list(segment.records(on_problem=ignore))
    offsets = [record.offset for record in everything]
    times = sorted({record.timestamp_ms for record in everything})
    an_offset = st.none() | st.integers(offsets[0] - 3, offsets[-1] + 3)
    a_time = st.none() | st.builds(int.__add__, st.sampled_from(times), st.integers(-1, 1))
    start, end, since, until = (data.draw(bound) for bound in (an_offset, an_offset, a_time, a_time))
    found = segment.records(
        start_offset=start, end_offset=end, since_ms=since, until_ms=until, on_problem=ignore
    )
    assert [record.offset for record in found] == [
        record.offset
        for record in everything
        if (start is None or record.offset >= start)
        and (end is None or record.offset < end)
        and (since is None or record.timestamp_ms >= since)
        and (until is None or record.timestamp_ms < until)
    ]


@given(st.binary(min_size=8, max_size=200), st.binary(min_size=12, max_size=200), st.data())
def test_a_wrong_index_never_hides_a_record(
    tmp_path_factory: pytest.TempPathFactory, index: bytes, timeindex: bytes, data: st.DataObject
) -> None:
    source = corpora.Corpus("k39-times").log_dir().partition("w-inc-0").files(".log")[0]
    directory = tmp_path_factory.mktemp("lying")
    path = directory / source.name
    path.write_bytes(source.read_bytes())
    path.with_suffix(".index").write_bytes(index)
    path.with_suffix(".timeindex").write_bytes(timeindex)
    segment = klog.Segment(path)
    everything = list(segment.records())
    wanted = data.draw(st.sampled_from(everything))
    assert next(iter(segment.records(start_offset=wanted.offset))).offset == wanted.offset
    since = next(iter(segment.records(since_ms=wanted.timestamp_ms)))
    assert since.offset == next(r.offset for r in everything if r.timestamp_ms >= wanted.timestamp_ms)
