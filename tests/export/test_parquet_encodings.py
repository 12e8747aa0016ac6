"""Encodings of Parquet columns follow what the first rows hold: files are no larger than pyarrow's own."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.export import parquet_encodings, writers
from klog.export.outputs import Sink
from klog.export.parquet_encodings import choose
from klog.export.writers import Format, row_writer

LIMIT_BYTES = 16 << 20


def table(**columns: pa.Array) -> pa.Table:
    return pa.table(columns)


def drawn(distinct: int, rows: int, size: int, seed: int = 7) -> pa.Array:
    """`rows` values of `size` bytes, drawn from so many."""
    rng = random.Random(seed)
    values = pa.array([rng.randbytes(size) for _ in range(distinct)], pa.binary())
    return values.take(pa.array([rng.randrange(distinct) for _ in range(rows)]))


def written(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    writer = row_writer(Format.PARQUET, "zstd", rows.schema, Sink(file))
    for batch in rows.to_batches(max_chunksize=5_000):
        writer.write(batch)
    writer.close()
    return file.getvalue()


def by_pyarrow(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(rows, file, compression="zstd")
    return file.getvalue()


@pytest.mark.parametrize(
    ("values", "repeats"),
    [
        (drawn(100, 20_000, 50), True),
        (drawn(9_000, 20_000, 50), True),
        (drawn(20_000, 20_000, 500), False),
        (drawn(20_000, 20_000, 20), False),
        (pa.array([None] * 20_000 + [b"x" * 99] * 20_000, pa.binary()), True),
        (drawn(10, 100, 5), False),
    ],
    ids=["few", "many", "large and almost all different", "small", "nulls", "hardly any bytes"],
)
def test_values_get_a_dictionary_if_they_repeat(values: pa.Array, repeats: bool) -> None:
    assert (choose(table(value=values), LIMIT_BYTES).dictionary == ("value",)) == repeats


def test_a_dictionary_that_would_not_fit_its_page_is_not_begun() -> None:
    values = drawn(2_000, 20_000, 500)
    assert choose(table(value=values), 2 << 20).dictionary == ("value",)
    assert choose(table(value=values), 500 << 10).dictionary == ()


def test_large_values_are_not_copied_into_a_dictionary() -> None:
    values = pa.chunked_array([drawn(100, 20_000, 50), drawn(1, 1, 300 << 10)])
    assert choose(table(value=values), LIMIT_BYTES).dictionary == ()


def test_texts_get_a_dictionary_unless_they_are_all_different() -> None:
    same = pa.array(["the same text"] * 20_000)
    different = pa.array([f"the text {number}" for number in range(20_000)])
    assert choose(table(value=same), LIMIT_BYTES).dictionary == ("value",)
    assert choose(table(value=different), LIMIT_BYTES).dictionary == ()


@settings(max_examples=40)
@given(distinct=st.integers(1, 60_000), rows=st.integers(1, 60_000))
def test_the_number_of_distinct_values_is_estimated_from_a_sample(distinct: int, rows: int) -> None:
    rng = random.Random(distinct)
    numbers = pa.array([rng.randrange(distinct) for _ in range(rows)])
    found = parquet_encodings._distinct([numbers], rows)
    assert found == pytest.approx(len(set(numbers.to_pylist())), rel=0.2, abs=20)


def test_keys_have_statistics_unless_one_is_large() -> None:
    keys = [b"a", None, b"zz", b""]
    for large, columns in ((b"k" * 1024, ("key", "offset")), (b"k" * 1025, ("offset",))):
        rows = table(
            key=pa.array([*keys, large], pa.binary()),
            value=pa.array([b"v"] * 5, pa.binary()),
            offset=pa.array(range(5)),
        )
        assert choose(rows, LIMIT_BYTES).statistics == columns
    file = pq.ParquetFile(io.BytesIO(written(table(key=pa.array(keys, pa.binary())))))
    found = file.metadata.row_group(0).column(0).statistics
    assert (found.min, found.max, found.null_count) == (b"", b"zz", 1)


def test_values_of_headers_get_a_dictionary_too() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    names = [{"key": "type", "value": b"application/json; charset=utf-8"}]
    rows = table(headers=pa.array([names, None] * 5_000, pa.list_(pa.field("element", header))))
    assert choose(rows, LIMIT_BYTES).dictionary == (
        "headers.list.element.key",
        "headers.list.element.value",
    )
    file = pq.ParquetFile(io.BytesIO(written(rows)))
    assert file.read().equals(rows)
    assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(1).encodings


def test_a_column_without_any_value_is_written() -> None:
    empty = table(key=pa.nulls(10, pa.binary()), value=pa.nulls(10, pa.binary()))
    assert pq.ParquetFile(io.BytesIO(written(empty))).read().equals(empty)


CONTENTS = {
    "random": drawn(20_000, 20_000, 300),
    "from a hundred": drawn(100, 20_000, 300),
    "from two thousand, more than pyarrow's page": drawn(5_000, 20_000, 300),
    "first repeating, then random": pa.concat_arrays([drawn(50, 20_000, 300), drawn(10_000, 10_000, 300)]),
    "first random, then repeating": pa.concat_arrays([drawn(10_000, 10_000, 300), drawn(50, 20_000, 300)]),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_files_are_no_larger_than_with_pyarrows_defaults(content: str) -> None:
    rows = table(key=CONTENTS[content], value=CONTENTS[content])
    ours = written(rows)
    assert pq.ParquetFile(io.BytesIO(ours)).read().equals(rows)
    assert len(ours) <= 1.02 * len(by_pyarrow(rows))


def test_a_dictionary_is_dropped_when_values_stop_repeating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "ROW_GROUP_BYTES", 1 << 20)
    monkeypatch.setattr(writers, "_DICTIONARY_BYTES", 1 << 19)
    rows = table(value=pa.concat_arrays([drawn(50, 10_000, 300), drawn(10_000, 10_000, 300)]))
    metadata = pq.ParquetFile(io.BytesIO(written(rows))).metadata
    groups = [metadata.row_group(number).column(0) for number in range(metadata.num_row_groups)]
    assert groups[0].total_uncompressed_size < 100_000
    assert "PLAIN" in groups[-1].encodings
    assert groups[-1].total_uncompressed_size > 400_000
