"""Writers of tables: bounded memory, good encodings, the same bytes for the same rows."""

from __future__ import annotations

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from klog.export import writers
from klog.export.json_lines import lines_of
from klog.export.outputs import Sink
from klog.export.writers import Format, compression_of, row_writer, suffix
from klog.formats.errors import UsageError

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)


def rows(count: int, first: int = 0, value: bytes = b"value") -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = {
        "key": [b"%d" % number for number in numbers],
        "value": [None if number % 5 == 0 else value for number in numbers],
        "topic": ["orders"] * count,
        "offset": list(numbers),
        "timestamp": [1_600_000_000_000_000 + number * 1000 for number in numbers],
        "headers": [[{"key": "a", "value": b"1"}] if number % 2 else None for number in numbers],
    }
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def written(wanted: Format, compression: str, *batches: pa.RecordBatch) -> bytes:
    file = io.BytesIO()
    writer = row_writer(wanted, compression, batches[0].schema, Sink(file))
    for batch in batches:
        writer.write(batch)
    writer.close()
    return file.getvalue()


ALL = [(wanted, name) for wanted in Format for name in writers._SUFFIXES[wanted]]


@pytest.mark.parametrize(("wanted", "compression"), ALL)
def test_the_same_rows_give_the_same_bytes(wanted, compression) -> None:
    assert written(wanted, compression, rows(1000)) == written(wanted, compression, rows(1000))


@pytest.mark.parametrize("compression", writers._SUFFIXES[Format.PARQUET])
def test_parquet_holds_the_rows_in_every_compression(compression) -> None:
    file = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, compression, rows(10), rows(5, 10))))
    assert file.read().equals(pa.Table.from_batches([rows(15)]))
    used = file.metadata.row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


@pytest.mark.parametrize("compression", writers._SUFFIXES[Format.ORC])
def test_orc_holds_the_rows_in_every_compression(compression) -> None:
    file = orc.ORCFile(io.BytesIO(written(Format.ORC, compression, rows(10), rows(5, 10))))
    table = file.read()
    assert table.drop_columns(["timestamp"]).equals(
        pa.Table.from_batches([rows(15)]).drop_columns(["timestamp"])
    )
    assert (
        table.column("timestamp").cast(SCHEMA.field("timestamp").type).to_pylist()
        == rows(15).column("timestamp").to_pylist()
    )
    assert file.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_row_groups_are_bounded_in_bytes_whatever_the_batches(monkeypatch) -> None:
    monkeypatch.setattr(writers, "ROW_GROUP_BYTES", 100_000)
    batches = [rows(100, first, bytes(1000)) for first in range(0, 1000, 100)]
    metadata = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "zstd", *batches))).metadata
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [200] * 5


def test_small_batches_are_gathered_to_one_row_group() -> None:
    batches = [rows(10, first) for first in range(0, 1000, 10)]
    assert pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "zstd", *batches))).metadata.num_row_groups == 1


def test_counting_columns_are_written_as_differences_and_payloads_without_dictionary() -> None:
    file = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "zstd", rows(100))))
    group = file.metadata.row_group(0)
    encodings = {
        group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)
    }
    assert "DELTA_BINARY_PACKED" in encodings["offset"]
    assert "DELTA_BINARY_PACKED" in encodings["timestamp"]
    for plain in ("key", "value", "headers.list.element.value"):
        assert not any("DICTIONARY" in name for name in encodings[plain])
    for repeating in ("topic", "headers.list.element.key"):
        assert "RLE_DICTIONARY" in encodings[repeating]


def test_statistics_are_written_for_numbers_and_keys_and_not_for_values() -> None:
    """Readers find offsets and times by them; of a large value they would cost several copies."""
    group = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "zstd", rows(100)))).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 99)
    assert columns["timestamp"].statistics.has_min_max
    assert (columns["key"].statistics.min, columns["key"].statistics.max) == (b"0", b"99")
    assert columns["value"].statistics is None


def test_leaves_of_nested_columns_get_a_dictionary_of_their_own() -> None:
    kind = pa.struct(
        [("city", pa.string()), ("tags", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.int64()))]
    )
    batch = pa.RecordBatch.from_pydict(
        {"value": [{"city": "Bonn", "tags": ["a"], "map": [("x", 1)]}]}, pa.schema([("value", kind)])
    )
    group = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "zstd", batch))).metadata.row_group(0)
    for at in range(group.num_columns):
        assert "RLE_DICTIONARY" in group.column(at).encodings, group.column(at).path_in_schema


def test_a_column_called_offset_that_is_no_number_is_written_too() -> None:
    batch = pa.RecordBatch.from_pydict({"offset": ["a", "b"]})
    assert pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "zstd", batch))).read().to_pydict() == {
        "offset": ["a", "b"]
    }


@pytest.mark.parametrize("wanted", Format)
def test_an_abandoned_writer_writes_nothing_more(wanted) -> None:
    file = io.BytesIO()
    sink = Sink(file)
    writer = row_writer(wanted, "zstd", SCHEMA, sink)
    writer.write(rows(10))
    said = file.getvalue()
    sink.discard_writes()
    writer.abandon()
    assert file.getvalue() == said


def test_compressions_that_a_format_does_not_have_are_refused() -> None:
    assert compression_of(Format.PARQUET, None) == compression_of(Format.JSONL, None) == "zstd"
    assert compression_of(Format.ORC, "ZLIB") == "zlib"
    with pytest.raises(UsageError, match="orc has no compression 'brotli'"):
        compression_of(Format.ORC, "brotli")


def test_suffixes_show_readers_how_to_open_a_file() -> None:
    assert suffix(Format.PARQUET, "snappy") == ".parquet"
    assert suffix(Format.ORC, "zstd") == ".orc"
    assert [suffix(Format.JSONL, name) for name in ("zstd", "gzip", "none")] == [
        ".jsonl.zst",
        ".jsonl.gz",
        ".jsonl",
    ]


def test_json_lines_are_one_object_a_row() -> None:
    lines = gzip.decompress(written(Format.JSONL, "gzip", rows(2))).decode().splitlines()
    common = '"topic":"orders","offset":%d,"timestamp":"2020-09-13T12:26:40.%06dZ","headers":%s}'
    first = '{"key":"MA==","value":null,' + common % (0, 0, "null")
    second = '{"key":"MQ==","value":"dmFsdWU=",' + common % (1, 1000, '[{"key":"a","value":"MQ=="}]')
    assert lines == [first, second]


def test_json_lines_have_strings_for_numbers_that_json_does_not_have() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "50%": [float("nan"), float("-inf"), 1.5, None],
            "text": ['a"b\n', "ü", "\u2028", None],
            "flag": [True, False, None, True],
        }
    )
    assert [json.loads(line) for line in lines_of(batch).split(b"\n")[:-1]] == [
        {"50%": "NaN", "text": 'a"b\n', "flag": True},
        {"50%": "-Infinity", "text": "ü", "flag": False},
        {"50%": 1.5, "text": "\u2028", "flag": None},
        {"50%": None, "text": None, "flag": True},
    ]


def test_json_lines_have_times_of_any_year() -> None:
    times = pa.array([-1000, -62_135_596_800_000_000, 2**62], pa.timestamp("us", "UTC"))
    lines = lines_of(pa.RecordBatch.from_arrays([times], ["t"])).decode().splitlines()
    assert [json.loads(line)["t"] for line in lines[:2]] == [
        "1969-12-31T23:59:59.999000Z",
        "0001-01-01T00:00:00.000000Z",
    ]
    assert json.loads(lines[2])["t"].endswith("Z")
