"""Every file that real Kafka wrote can be parsed and built again, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.formats import catalogue, message_set, names, offset_index, record_batch, segment
from klog.formats.errors import CorruptRecordError, FormatError, UnsupportedFormatError
from tests import corpora


def _files(log_dir: corpora.LogDirectory) -> Iterator[Path]:
    return (path for path in sorted(log_dir.path.rglob("*")) if path.is_file())


def _is_damaged(path: Path) -> bool:
    """Whether the file may have been damaged, on purpose or by a crash."""
    top = path.relative_to(corpora.FIXTURES).parts[0]
    return top.startswith("corrupt-") or top == "k39-unclean"


def _opened(entry: segment.Located) -> None:
    """Build the records of a compressed entry again from their parsed values."""
    if entry.magic == 2:
        found = record_batch.records(entry.value, position_bytes=entry.position_bytes)
        assert len(found) == entry.value.recordCount
        if entry.value.attributes.codec != "none" and found:
            assert record_batch.build_records(found) == record_batch.open_block(entry.value)
    elif entry.value.body.attributes.codec != "none":
        assert b"".join(map(message_set.build, message_set.inner(entry.value))) == message_set.open_block(
            entry.value
        )


def _parsed(entry: catalogue.Format, data: bytes) -> tuple[Any, FormatError | None]:
    try:
        return entry.parse(data), None
    except FormatError as error:
        return None, error


def _entries(data: bytes) -> tuple[list[segment.Located], FormatError | None]:
    """The entries before the damage, and the damage."""
    whole: list[segment.Located] = []
    try:
        whole.extend(segment.entries(data))
    except FormatError as error:
        return whole, error
    return whole, None


@pytest.mark.parametrize("log_dir", corpora.log_dirs(), ids=str)
def test_every_file_of_a_log_directory_builds_the_bytes_that_it_parsed(log_dir: corpora.LogDirectory) -> None:
    seen: Counter[str] = Counter()
    for path in _files(log_dir):
        assert str(names.parse_file(path.name)) == path.name
        entry = catalogue.of_file(path.name)
        assert entry is not None, path
        data = path.read_bytes()
        if entry.name == "segment":
            _segment_round_trip(path, data, seen)
            continue
        value, error = _parsed(entry, data)
        if error is None:
            assert entry.build(value) == data, path
        else:
            assert _is_damaged(path), error
            assert error.position_bytes is not None
        seen[entry.name] += 1
    # The directory was read: a log directory has segments, with indexes that Kafka wrote.
    assert seen["segment"]
    assert seen["offset-index"]


def _segment_round_trip(path: Path, data: bytes, seen: Counter[str]) -> None:
    whole, error = _entries(data)
    if error is not None:
        assert _is_damaged(path), error
        assert isinstance(error, CorruptRecordError | UnsupportedFormatError)
        assert error.position_bytes is not None
    end = whole[-1].position_bytes + whole[-1].size_bytes if whole else 0
    assert end == len(data) or error is not None
    assert segment.build(whole) == data[:end], path
    for entry in whole:
        _opened(entry)
    seen["segment"] += 1


@pytest.mark.parametrize(
    "partition", corpora.partitions(corpora.corpora("k0", "k2", "k3", "k4", "up-")), ids=str
)
def test_batches_have_the_positions_that_kafkas_reader_finds(partition: corpora.PartitionDirectory) -> None:
    if not partition.has_expected:
        assert not partition.files(".log")
        return
    expected: dict[str, list[tuple[int, int, int, int]]] = {}
    for line in partition.expected_batches():
        if "position" in line:
            place = (line["position"], line["size"], line["magic"], line["checksum"])
            expected.setdefault(line["file"], []).append(place)
    for path in partition.files(".log"):
        whole, error = _entries(path.read_bytes())
        assert error is None or _is_damaged(path)
        found = [
            (
                entry.position_bytes,
                entry.size_bytes,
                entry.magic,
                (entry.value.get("body") or entry.value).crc,
            )
            for entry in whole
        ]
        assert found == expected.get(path.name, [])


def test_the_corpora_have_every_magic_codec_and_format() -> None:
    magics: Counter[tuple[int, str]] = Counter()
    for path in corpora.files(".log"):
        for entry in _entries(path.read_bytes())[0]:
            header = entry.value.get("body") or entry.value
            magics[entry.magic, str(header.attributes.codec)] += 1
    legacy = {(magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")}
    assert set(magics) == legacy | {(2, codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")}
    kinds = {
        found.name
        for log_dir in corpora.log_dirs()
        for path in _files(log_dir)
        if (found := catalogue.of_file(path.name)) is not None
    }
    of_logs = (entry.name for entry in catalogue.FORMATS if not entry.name.startswith("zookeeper-"))
    assert kinds == {name for name in of_logs if catalogue.find(name).kind == "file"}


def test_a_preallocated_index_ends_at_its_zero_tail() -> None:
    tails = [
        (path, offset_index.parse(path.read_bytes()))
        for path in corpora.files(".index")
        if not _is_damaged(path) or "k39-unclean" in path.as_posix()
    ]
    with_tail = [(path, index) for path, index in tails if index.tail]
    assert with_tail
    for path, index in with_tail:
        assert len(index.entries) * 8 + len(index.tail) == path.stat().st_size
        assert not any(index.tail)
