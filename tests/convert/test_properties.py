"""Any log keeps its records when it is converted, and the result depends on its batches alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.convert.batches import BatchConverter, EpochOfOffset
from klog.convert.options import ConvertOptions
from klog.formats.compression import ZSTD
from klog.formats.constants import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT
from klog.formats.names import FileKind, segment_file
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from tests import strategies
from tests.convert.logs import batches_of, contents, converted, log_bytes, records_of, with_codec
from tests.storage.cleaner.logs import index, random_log

OPTIONS = st.builds(
    with_codec,
    st.sampled_from([None, 0, 1, 2, 3, 4]),
    batch_bytes=st.sampled_from([0, 60, 400, 1 << 17]),
    segment_bytes=st.sampled_from([None, 1024, 1 << 20]),
)
LOGS = st.lists(strategies.joinable_batches, min_size=1, max_size=14)


@contextmanager
def directory_of(segments: Sequence[tuple[int, bytes]]) -> Iterator[Path]:
    """A partition directory with these segments, by base offset."""
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work) / "events-0"
        directory.mkdir()
        for base, data in segments:
            (directory / segment_file(FileKind.LOG, base)).write_bytes(data)
        index(directory)
        yield directory


def rolled(data: bytes, rolls: set[int]) -> list[tuple[int, bytes]]:
    """The log in segments: a new one begins with each of these batches."""
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    segments: list[tuple[int, bytes]] = []
    for row in range(len(table)):
        batch = data[table.position[row] : table.position[row] + table.size[row]]
        if not segments or row in rolls:
            segments.append((table.base_offset[row], batch))
        else:
            segments[-1] = (segments[-1][0], segments[-1][1] + batch)
    return segments


@given(LOGS, OPTIONS, st.sets(st.integers(1, 13), max_size=4), st.sampled_from([0, 4093, 10**12]))
def test_a_converted_log_has_the_records_that_it_had(
    drawn: list[Any], options: ConvertOptions, rolls: set[int], first_offset: int
) -> None:
    data = strategies.log_of(drawn, first_offset, compressed=True)
    with directory_of(rolled(data, rolls)) as directory:
        before, end = records_of(directory), batches_of(directory)[-1]
        converted(directory, options)
        assert records_of(directory) == before
        last = batches_of(directory)[-1]
        assert last[1].last_offset[last[2]] == end[1].last_offset[end[2]]


@given(strategies.segments(max_entries=8), OPTIONS)
def test_segments_of_all_formats_keep_their_records(data: bytes, options: ConvertOptions) -> None:
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    if not len(table) or len({*table.last_offset}) != len(table):
        return
    with directory_of([(0, data)]) as directory:
        before = records_of(directory)
        converted(directory, options)
        assert records_of(directory) == before


@given(LOGS, OPTIONS, st.sets(st.integers(1, 13), max_size=4), st.sets(st.integers(1, 13), max_size=4))
def test_replicas_that_roll_at_other_offsets_get_the_same_batches(
    drawn: list[Any], options: ConvertOptions, rolls: set[int], other_rolls: set[int]
) -> None:
    data = strategies.log_of(drawn, 4090, compressed=True)
    results = []
    for each in (rolls, other_rolls):
        with directory_of(rolled(data, each)) as directory:
            converted(directory, options)
            results.append(log_bytes(directory))
    assert results[0] == results[1]


@given(LOGS, OPTIONS)
def test_a_second_conversion_changes_nothing(drawn: list[Any], options: ConvertOptions) -> None:
    data = strategies.log_of(drawn, 4090, compressed=True)
    with directory_of([(4090, data)]) as directory:
        converted(directory, options)
        once = log_bytes(directory)
        converted(directory, options)
        assert log_bytes(directory) == once


@given(LOGS, OPTIONS, st.integers(1, 400))
def test_batches_do_not_depend_on_the_buffers_they_are_read_in(
    drawn: list[Any], options: ConvertOptions, rows: int
) -> None:
    data = strategies.log_of(drawn, 0, compressed=True)
    results = []
    for step in (len(drawn), 1 + rows % 3):
        converter = BatchConverter(options, EpochOfOffset(()))
        found = b""
        segments = rolled(data, set(range(0, len(drawn), step)))
        for _, part in segments:
            buffer = bytearray(part)
            table = BatchTable()
            kernel.scan(buffer, 0, True, table)
            found += b"".join(bytes(one.data) for one in converter.take(memoryview(buffer), table))
            buffer[:] = bytes(len(buffer))  # what was kept must have been copied
        results.append(found + b"".join(bytes(one.data) for one in converter.finish()))
    assert results[0] == results[1]


@given(LOGS, OPTIONS)
def test_the_rules_of_joining_hold(drawn: list[Any], options: ConvertOptions) -> None:
    data = strategies.log_of(drawn, 4090, compressed=True)
    originals = BatchTable()
    kernel.scan(data, 0, True, originals)
    with directory_of([(4090, data)]) as directory:
        converted(directory, options)
        made = batches_of(directory)
    row = 0
    for _, table, at in made:
        first = row
        while row < len(originals) and originals.last_offset[row] <= table.last_offset[at]:
            row += 1
        assert row > first
        assert originals.last_offset[row - 1] == table.last_offset[at]
        if row - first > 1:
            require_joinable(originals, range(first, row), options)
            assert table.size[at] <= options.max_message_bytes
    assert row == len(originals)


def require_joinable(table: BatchTable, rows: range, options: ConvertOptions) -> None:
    """Each rule by itself, as the documentation states it."""
    assert options.batch_bytes
    for name in ("leader_epoch", "producer_id", "producer_epoch"):
        assert len({getattr(table, name)[row] for row in rows}) == 1
    assert len({table.base_offset[row] // 4096 for row in rows}) == 1
    assert not any(table.attributes[row] & (CONTROL_BIT | DELETE_HORIZON_BIT) for row in rows)
    assert all(table.count[row] for row in rows)
    mask = 0xFF if options.codec is None else 0xFF & ~CODEC_MASK
    assert len({table.attributes[row] & mask for row in rows}) == 1
    if table.producer_id[rows[0]] >= 0:
        for row in rows[1:]:
            assert table.base_offset[row] == table.last_offset[row - 1] + 1
            before = table.base_sequence[row - 1] + table.last_offset[row - 1] - table.base_offset[row - 1]
            assert table.base_sequence[row] == before + 1


@pytest.mark.parametrize("seed", range(6))
def test_random_logs_with_transactions_keep_what_brokers_need(seed: int, tmp_path: Path) -> None:
    """Indexes of transactions and producer snapshots are those that a rebuild would make."""
    directory, rebuilt = tmp_path / "events-0", tmp_path / "rebuilt" / "events-0"
    random_log(directory, seed)
    before = records_of(directory)
    converted(directory, with_codec(ZSTD, batch_bytes=900, segment_bytes=4000))
    assert records_of(directory) == before
    shutil.copytree(directory, rebuilt)
    for path in [*rebuilt.glob("*index"), *rebuilt.glob("*.snapshot")]:
        path.unlink()
    index(rebuilt)
    kinds = (".index", ".timeindex", ".txnindex")
    ours = {name: data for name, data in contents(directory).items() if name.endswith(kinds)}
    assert ours == {name: data for name, data in contents(rebuilt).items() if name.endswith(kinds)}
    assert {path.name for path in directory.glob("*.snapshot")} == {
        path.name for path in rebuilt.glob("*.snapshot")
    }
