"""The text kernels, compiled and in pure Python, write the same bytes for any records."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import FormatError
from klog.kernel import _pyjsontext, _pytext, kernel
from klog.kernel.columns import BatchTable, RecordTable
from tests import strategies
from tests.formats.raw_batches import Content, uncompressed_batch

_jsontext: Any = pytest.importorskip("klog.kernel._jsontext", reason="klog was built without a compiler")
_text: Any = pytest.importorskip("klog.kernel._text", reason="klog was built without a compiler")

hostile_bytes = st.binary(max_size=40) | st.text(max_size=20).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
contents = st.lists(
    st.tuples(
        st.none() | hostile_bytes,
        st.none() | hostile_bytes,
        st.lists(st.tuples(hostile_bytes, st.none() | hostile_bytes), max_size=3),
    ),
    max_size=6,
)


def scanned(data: bytes) -> tuple[BatchTable, RecordTable]:
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    kernel.verify(data, table)
    kernel.decode(data, table, 0, len(table), records)
    return table, records


def outcome(function: Any, *args: Any) -> bytes | type[BaseException]:
    page = bytearray(b"before")
    try:
        end = function(*args, page, 6)
    except (FormatError, ValueError) as error:
        return type(error)
    assert page[:6] == b"before"
    return bytes(page[6:end])


def equal(compiled: Any, pure: Any, *args: Any) -> None:
    found = outcome(compiled, *args)
    assert found == outcome(pure, *args)
    if isinstance(found, bytes) and pure.__module__.endswith("_pyjsontext"):
        for line in found.decode("utf-8").split("\n")[:-1]:
            assert isinstance(json.loads(line), dict)


def all_equal(table: BatchTable, records: RecordTable, payload: bytes) -> None:
    rows, batches = len(records), len(table)
    equal(_text.kafka_batches, _pytext.kafka_batches, table, 0, batches)
    equal(_jsontext.jsonl_batches, _pyjsontext.jsonl_batches, table, 0, batches, b'{"file":"f"')
    for data, skip in ((True, False), (False, True), (True, True)):
        equal(_text.kafka_records, _pytext.kafka_records, table, records, 0, rows, payload, data, skip)
        equal(_text.kafka_deep, _pytext.kafka_deep, table, 0, batches, records, 0, payload, data, skip)
    for mode in (_pytext.AUTO, _pytext.UTF8, _pytext.BASE64, _pytext.HEX, _pytext.NONE):
        equal(
            _jsontext.jsonl_records,
            _pyjsontext.jsonl_records,
            table,
            records,
            0,
            rows,
            payload,
            b'{"file":"f"',
            mode,
        )
    for previous in (-1, 3, 2**63 - 1):
        assert _text.offset_gaps(records, 0, rows, previous) == _pytext.offset_gaps(
            records, 0, rows, previous
        )


@given(contents, st.sampled_from([0, 0x08, 0x10, 0x20, 0x30, 0x40, 0x78]))
def test_any_content_gives_the_same_text(contents: list[Content], attributes: int) -> None:
    data = uncompressed_batch(contents, attributes=attributes)
    table, records = scanned(data)
    assert len(records) == len(contents)
    all_equal(table, records, data)


@given(strategies.damaged(strategies.segments(base_offset=7)))
def test_damaged_segments_give_the_same_text(data: bytes) -> None:
    table, records = scanned(data)
    all_equal(table, records, data)


@given(
    contents.filter(bool),
    st.sampled_from([name for name in RecordTable.COLUMNS if name != "crc"]),
    st.sampled_from([-(2**63), -1, 0, 1, 17, 2**31, 2**63 - 1]),
    st.integers(0, 200),
)
def test_wrong_spans_are_refused_by_both(contents: list[Content], column: str, lie: int, size: int) -> None:
    data = uncompressed_batch(contents, attributes=0x20)
    table, records = scanned(data)
    getattr(records, column)[-1] = lie
    all_equal(table, records, data[:size])


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["base_offset", "last_offset", "base_sequence", "max_timestamp"]),
)
def test_javas_arithmetic_wraps_in_both(number: int, column: str) -> None:
    data = uncompressed_batch([(b"k", b"v", []), (None, None, [])])
    table, records = scanned(data)
    table.base_sequence[0] = 2**31 - 1
    getattr(table, column)[0] = number if column != "base_sequence" else (number + 2**31) % 2**32 - 2**31
    all_equal(table, records, data)


@given(st.integers(0, 70), st.integers(0, 3))
def test_base64_is_pythons(size: int, seed: int) -> None:
    value = bytes((seed * 37 + number * 101) % 256 for number in range(size))
    data = uncompressed_batch([(None, value, [])])
    table, records = scanned(data)
    found = outcome(_jsontext.jsonl_records, table, records, 0, 1, data, b'{"file":"f"', _pytext.BASE64)
    assert isinstance(found, bytes)
    assert b64decode(json.loads(found)["value"], validate=True) == value


def test_a_range_of_rows_outside_of_the_table_is_refused() -> None:
    data = uncompressed_batch([(b"k", b"v", [])])
    table, records = scanned(data)
    for first, last in ((0, 2), (-1, 1), (1, 0)):
        for module in (_text, _pytext):
            assert outcome(module.kafka_batches, table, first, last) is ValueError
            assert outcome(module.kafka_records, table, records, first, last, data, True, False) is ValueError
        for module in (_jsontext, _pyjsontext):
            assert outcome(module.jsonl_batches, table, first, last, b"{") is ValueError


def test_an_encoded_surrogate_is_replaced_whole_and_other_bytes_one_by_one() -> None:
    # Java's decoder does that; Python's replaces each of the three bytes.
    assert _pytext.java_text(b"a\xed\xa0\x80b") == "a\ufffdb"
    assert _pytext.java_text(b"\xff\xfe") == "\ufffd\ufffd"
    assert _pytext.java_text(b"\xe2\x82") == "\ufffd"
