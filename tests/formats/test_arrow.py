"""Decoded records as Arrow hold the values of the JSON Lines records, with both implementations of
gathering.
"""

from __future__ import annotations

import base64
from array import array
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import compression
from klog.formats.constants import CODEC_MASK, INT32_MAX
from klog.formats.errors import KlogError, UsageError
from klog.kernel import _pygather as twin
from klog.kernel import arrow, kernel
from klog.kernel.arrow import COLUMNS, DEFAULT_COLUMNS, ArrowBuilder
from klog.kernel.columns import BatchTable, HeadersColumn, RecordTable, SpanColumn
from tests import corpora, strategies

SOUND = [
    partition
    for partition in corpora.partitions()
    if partition.has_expected and not partition.corpus.is_corrupt
]


@pytest.fixture(params=["_gather", "_pygather"])
def gathering(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"klog.kernel.{request.param}")


def append_all(builder: ArrowBuilder, data: bytes) -> None:
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    for row in range(len(table)):
        records = RecordTable()
        payload = data
        if kernel.decode(data, table, row, row + 1, records) == row:
            start, size = kernel.payload_span(data, table, row)
            codec, magic = table.attributes[row] & CODEC_MASK, table.magic[row]
            payload = compression.decompress(codec, data[start : start + size], magic=magic)
            kernel.decode_payload(payload, table, row, records)
        builder.append(payload, table, records)


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def expected_row(line: dict[str, Any]) -> dict[str, Any]:
    row = {name: line[name] for name in COLUMNS if name in line}
    row["timestamp"] = None if line["timestamp"] == -1 else line["timestamp"]
    row["headers"] = [
        {"key": base64.b64decode(key).decode(), "value": decoded(value)} for key, value in line["headers"]
    ]
    for name in ("key", "value"):
        row[name] = decoded(line[name]) if name in line else len
    return row


@pytest.mark.parametrize("partition", SOUND, ids=str)
def test_every_column_of_every_record_is_as_kafka_says(partition: corpora.PartitionDirectory) -> None:
    expected = [expected_row(line) for line in partition.expected_records()]
    files = sorted({line["file"] for line in partition.expected_batches()})
    builder = ArrowBuilder(COLUMNS)
    for name in files:
        append_all(builder, (partition.path / name).read_bytes())
    assert builder.rows == len(expected)
    batch = builder.finish()
    batch.validate(full=True)
    assert batch.schema == arrow.schema(COLUMNS)
    times = batch.schema.get_field_index("timestamp")
    found = batch.set_column(times, "timestamp", batch.column(times).cast(pa.int64())).to_pylist()
    for row, wanted in zip(found, expected, strict=True):
        assert row == {name: row[name] if value is len else value for name, value in wanted.items()}


def test_a_missing_timestamp_is_null_and_others_are_utc_times() -> None:
    builder = ArrowBuilder(["timestamp"])
    table, records = BatchTable(), RecordTable()
    for timestamp in (-1, 1_600_000_000_123):
        records.offset.append(0)
        records.timestamp.append(timestamp)
    for name in set(RecordTable.COLUMNS) - {"offset", "timestamp"}:
        getattr(records, name).extend((0, 0))
    builder.append(b"", table, records)
    assert builder.finish().to_pydict() == {
        "timestamp": [None, datetime(2020, 9, 13, 12, 26, 40, 123_000, tzinfo=UTC)]
    }


@given(strategies.segments(), st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1))
def test_chosen_columns_have_the_same_values_as_among_all(data: bytes, columns: list[str]) -> None:
    everything, chosen = ArrowBuilder(COLUMNS), ArrowBuilder(columns)
    append_all(everything, data)
    append_all(chosen, data)
    few = chosen.finish()
    few.validate(full=True)
    assert few == everything.finish().select(columns)


@given(strategies.segments(), st.data())
def test_rows_may_be_appended_piece_by_piece(data: bytes, draws: st.DataObject) -> None:
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    for row in range(len(table)):
        kernel.decode(data, table, row, row + 1, records)
    cut = draws.draw(st.integers(0, len(records)))
    whole, pieces = ArrowBuilder(COLUMNS), ArrowBuilder(COLUMNS)
    whole.append(data, table, records)
    pieces.append(data, table, records, 0, cut)
    pieces.append(data, table, records, cut)
    assert pieces.nbytes == whole.nbytes
    assert pieces.finish() == whole.finish()


def test_a_finished_builder_is_empty_and_its_batch_does_not_change(fixture_log: bytes) -> None:
    builder = ArrowBuilder(COLUMNS)
    append_all(builder, fixture_log)
    first = builder.finish()
    assert (builder.rows, builder.nbytes) == (0, 0)
    values = first.to_pydict()
    append_all(builder, fixture_log)
    assert builder.nbytes > 0
    assert builder.finish().to_pydict() == values
    assert first.to_pydict() == values
    assert builder.finish().num_rows == 0


@pytest.fixture
def fixture_log() -> bytes:
    path: Path = next(corpora.files(".log", chosen=corpora.corpora("k39-codecs")))
    return path.read_bytes()


def test_unknown_columns_and_rows_are_refused(fixture_log: bytes) -> None:
    for make in (ArrowBuilder, arrow.schema):
        with pytest.raises(UsageError, match="no column 'ofset'"):
            make(["ofset"])
    builder = ArrowBuilder(DEFAULT_COLUMNS)
    for first, last in ((-1, 0), (0, 1), (1, 0)):
        with pytest.raises(UsageError, match="of a table of 0"):
            builder.append(fixture_log, BatchTable(), RecordTable(), first, last)


def test_a_row_group_ends_before_arrows_offsets_overflow() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return INT32_MAX

    builder = ArrowBuilder(["value"])
    assert builder.has_room(Huge())
    builder._gathered.spans["value"].data += b"x"
    assert not builder.has_room(Huge())
    with pytest.raises(UsageError, match="more than 2 GiB"):
        builder.append(Huge(), BatchTable(), RecordTable())


def test_a_header_key_that_is_not_utf8_is_read_as_kafka_does(gathering: ModuleType) -> None:
    column = HeadersColumn()
    payload = b"\x04\xffa\x02v" + b"\x02k\x01"
    gathering.gather_headers(payload, array("q", [0]), array("q", [2]), 0, 1, column)
    lists = arrow._header_lists(column, arrow.schema(["headers"]).field(0).type)
    assert lists.to_pylist() == [[{"key": "\ufffda", "value": b"v"}, {"key": "k", "value": None}]]


# Gathering

int64s = st.integers(-3, 40) | st.integers(-(2**63), 2**63 - 1)
columns = st.lists(int64s, max_size=12).map(lambda values: array("q", values))


def outcome(call: Any, *arguments: Any) -> tuple[str | None, Any]:
    """The error that a call raised, and the state of its last argument, into which it writes."""
    try:
        call(*arguments)
        error = None
    except KlogError as raised:
        error = str(raised)
    out = arguments[-1]
    return error, (spans(out) if isinstance(out, SpanColumn) else headers(out))


def spans(column: SpanColumn) -> tuple[bytes, bytes, list[int]]:
    return bytes(column.data), bytes(column.valid), column.ends.tolist()


def headers(column: Any) -> Any:
    if isinstance(column, HeadersColumn):
        return column.ends.tolist(), spans(column.keys), spans(column.values)
    return column.tolist()


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    return pytest.importorskip("klog.kernel._gather", reason="klog was built without a compiler")


@given(st.binary(max_size=30), columns, columns, st.integers(-1, 12), st.integers(-1, 12), st.integers(0, 2))
def test_both_gather_the_same_spans_or_refuse_them(
    compiled: ModuleType,
    payload: bytes,
    starts: array[int],
    sizes: array[int],
    first: int,
    last: int,
    again: int,
) -> None:
    results = []
    for gather in (compiled.gather, twin.gather):
        out = SpanColumn()
        results.append([outcome(gather, payload, starts, sizes, first, last, out) for _ in range(again + 1)])
    assert results[0] == results[1]


@given(st.binary(max_size=30), columns, st.lists(st.integers(-1, 3), max_size=12), st.integers(0, 12))
def test_both_gather_the_same_headers_or_refuse_them(
    compiled: ModuleType, payload: bytes, starts: array[int], counts: list[int], last: int
) -> None:
    results = [
        outcome(gather, payload, starts, array("q", counts), 0, last, HeadersColumn())
        for gather in (compiled.gather_headers, twin.gather_headers)
    ]
    assert results[0] == results[1]


@given(columns, columns, st.integers(-1, 12), st.integers(-1, 12))
def test_both_take_the_same_fields_of_batches_or_refuse_them(
    compiled: ModuleType, source: array[int], rows: array[int], first: int, last: int
) -> None:
    results = [
        outcome(take, source, rows, first, last, array("q", [5])) for take in (compiled.take, twin.take)
    ]
    assert results[0] == results[1]


def test_gathered_values_are_the_bytes_of_their_spans(gathering: ModuleType) -> None:
    out = SpanColumn()
    gathering.gather(b"abcdef", array("q", [1, 0, 6, 2]), array("q", [2, -1, 0, 4]), 0, 4, out)
    assert (bytes(out.data), out.ends.tolist(), bytes(out.valid)) == (b"bccdef", [0, 2, 2, 2, 6], b"\x0d")


def test_a_column_of_more_than_2_gib_is_refused_before_anything_is_written(gathering: ModuleType) -> None:
    out = SpanColumn()
    payload = bytes(1 << 20)
    starts, sizes = array("q", [0] * 2049), array("q", [1 << 20] * 2049)
    with pytest.raises(UsageError, match="more than 2 GiB"):
        gathering.gather(payload, starts, sizes, 0, 2049, out)
    assert spans(out) == (b"", b"", [0])
