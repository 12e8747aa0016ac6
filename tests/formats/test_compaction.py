"""The offset map and the rewriting of records: their meaning, and that both implementations agree."""

from __future__ import annotations

import importlib
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.constants import BATCH_HEADER_BYTES
from klog.formats.errors import CorruptRecordError, UsageError
from klog.kernel import _pycompaction, kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.selection import Selection
from tests import strategies

SECRET = bytes(range(16))


def _compiled() -> ModuleType | None:
    try:
        return importlib.import_module("klog.kernel._compaction")
    except ImportError:
        return None


COMPILED = _compiled()
TWINS = [_pycompaction] if COMPILED is None else [_pycompaction, COMPILED]
twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.IMPLEMENTATION)

Rows = list[tuple[bytes | None, bytes | None]]


def decoded(rows: Rows, base_offset: int = 0, **fields: Any) -> tuple[bytes, BatchTable, RecordTable]:
    records = [RecordData(base_offset + at, 1000 + at, key, value) for at, (key, value) in enumerate(rows)]
    data = bytes(build_batch(records, BatchFields(**fields)))
    table, decoded_records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    kernel.decode(data, table, 0, 1, decoded_records)
    return data, table, decoded_records


def keys(*names: bytes | None) -> Rows:
    return [(name, b"value") for name in names]


def filled(twin: Any, rows: Rows, slots: int = 100, from_offset: int = 0) -> Any:
    data, _, records = decoded(rows)
    offsets = twin.OffsetMap(24 * slots, 0.9, SECRET)
    assert offsets.put(data, records, 0, len(records), from_offset) == len(records)
    return offsets


def kept(twin: Any, offsets: Any, rows: Rows, *, now_ms: int = 0, legacy: bool = True, **fields: Any) -> Any:
    data, table, records = decoded(rows, **fields)
    chosen = Selection(1)
    invalid = offsets.select(data, table, records, 0, len(records), now_ms, legacy, chosen)
    return list(chosen.keep), chosen.kept[0], chosen.tombstones[0], chosen.last_kept_offset[0], invalid


@twins
def test_the_last_offset_of_a_key_counts(twin: Any) -> None:
    offsets = filled(twin, keys(b"a", b"b", b"a"))
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c")) == (2, 1, -1)
    assert (offsets.size, offsets.latest_offset) == (2, 2)


@twins
def test_a_record_below_the_first_dirty_offset_is_not_put(twin: Any) -> None:
    offsets = filled(twin, keys(b"a", b"b", b"c"), from_offset=1)
    assert (offsets.get(b"a"), offsets.get(b"b")) == (-1, 1)


@twins
def test_the_map_is_full_at_its_load_factor_even_for_a_key_that_it_has(twin: Any) -> None:
    data, _, records = decoded(keys(b"a", b"b", b"a"))
    offsets = twin.OffsetMap(24 * 4, 0.5, SECRET)
    assert (offsets.slots, offsets.capacity) == (4, 2)
    assert offsets.put(data, records, 0, 3, 0) == 2
    assert offsets.latest_offset == 1


@twins
def test_a_map_that_cannot_hold_a_key_is_refused(twin: Any) -> None:
    with pytest.raises(UsageError, match="too small"):
        twin.OffsetMap(24, 0.9, SECRET)


@twins
def test_a_nearly_full_map_distinguishes_keys(twin: Any) -> None:
    names = [b"%d" % number for number in range(900)]
    offsets = filled(twin, keys(*names), slots=1001)
    assert [offsets.get(name) for name in names] == list(range(900))
    assert offsets.get(b"900") == -1


@twins
def test_a_map_that_grows_forgets_nothing(twin: Any) -> None:
    """The compiled map begins with a few thousand slots."""
    names = [b"%d" % number for number in range(60_000)]
    offsets = filled(twin, keys(*names), slots=70_001)
    assert [offsets.get(name) for name in names] == list(range(60_000))
    assert (offsets.size, offsets.get(b"60000")) == (60_000, -1)


@twins
def test_superseded_records_and_those_without_a_key_are_removed(twin: Any) -> None:
    rows = keys(b"a", None, b"b", b"a")
    assert kept(twin, filled(twin, rows), rows) == ([0, 0, 1, 1], 2, 0, 3, 1)


@twins
def test_all_records_beyond_the_map_stay(twin: Any) -> None:
    rows = keys(b"a", None, b"a", None)
    offsets = filled(twin, keys(b"a"))
    assert kept(twin, offsets, rows)[0] == [1, 1, 1, 1]


@twins
@pytest.mark.parametrize(("now_ms", "stays"), [(4999, 1), (5000, 0)])
def test_a_tombstone_is_removed_after_its_delete_horizon(twin: Any, now_ms: int, stays: int) -> None:
    rows: Rows = [(b"a", b"1"), (b"a", None)]
    found = kept(twin, filled(twin, rows), rows, now_ms=now_ms, delete_horizon_ms=5000)
    assert found[:3] == ([0, stays], stays, stays)


@twins
def test_a_tombstone_without_a_horizon_stays(twin: Any) -> None:
    rows: Rows = [(b"a", None)]
    assert kept(twin, filled(twin, rows), rows, now_ms=2**60)[:3] == ([1], 1, 1)


@twins
def test_records_that_do_not_lie_in_the_payload_are_refused(twin: Any) -> None:
    data, table, records = decoded(keys(b"key"))
    offsets = twin.OffsetMap(2400, 0.9, SECRET)
    with pytest.raises(UsageError):
        offsets.put(data[:-9], records, 0, 1, 0)
    with pytest.raises(UsageError):
        offsets.put(data, records, 0, 2, 0)
    with pytest.raises(UsageError):
        offsets.select(data, table, records, 0, 1, 0, True, Selection(2))
    with pytest.raises(UsageError):
        twin.rewrite(data[:-9], records, 0, 1, array("B", (1,)), 0, None)
    with pytest.raises(UsageError):
        twin.rewrite(data, records, 0, 1, array("B"), 0, None)


@twins
def test_offsets_that_do_not_ascend_are_not_written(twin: Any) -> None:
    data, _, records = decoded(keys(b"a", b"b"))
    records.offset[1] = 0
    with pytest.raises(CorruptRecordError, match="offset 0 follows 0"):
        twin.rewrite(data, records, 0, 2, array("B", (1, 1)), 0, None)


@twins
def test_a_negative_timestamp_is_not_written(twin: Any) -> None:
    data, _, records = decoded(keys(b"a"))
    records.timestamp[0] = -2
    with pytest.raises(CorruptRecordError, match="timestamp -2"):
        twin.rewrite(data, records, 0, 1, array("B", (1,)), 0, None)


records_of = st.lists(
    st.tuples(
        strategies.nullable_payloads,
        strategies.nullable_payloads,
        st.integers(0, 2**53),
        st.lists(st.tuples(strategies.payloads, strategies.nullable_payloads), max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


@given(records_of, strategies.offsets, st.none() | st.integers(0, 2**53))
@twins
def test_rewritten_records_equal_a_batch_of_the_kept_ones(
    twin: Any, rows: Any, base_offset: int, base_timestamp: int | None
) -> None:
    every = [
        RecordData(base_offset + at, timestamp, key, value, headers)
        for at, (key, value, timestamp, headers, _) in enumerate(rows)
    ]
    keep = array("B", (row[4] for row in rows))
    data = bytes(build_batch(every))
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    kernel.decode(data, table, 0, 1, records)
    payload, count, base, largest = twin.rewrite(
        data, records, 0, len(every), keep, base_offset, base_timestamp
    )
    rest = [record for record, stays in zip(every, keep, strict=True) if stays]
    assert count == len(rest)
    if rest:
        assert base == (rest[0].timestamp if base_timestamp is None else base_timestamp)
        assert largest == max(record.timestamp for record in rest)
        expected = build_batch(rest, BatchFields(delete_horizon_ms=base))
        shifted = _shifted(rest, base_offset, base) if rest[0].offset != base_offset else expected
        assert payload == bytes(shifted[BATCH_HEADER_BYTES:])
    else:
        assert payload == b""


def _shifted(rest: list[RecordData], base_offset: int, base: int) -> bytearray:
    """A batch that begins below its first record, which is removed again."""
    first = RecordData(base_offset, base, None, None)
    whole = build_batch([first, *rest], BatchFields(delete_horizon_ms=base))
    alone = build_batch([first], BatchFields(delete_horizon_ms=base))
    return whole[:BATCH_HEADER_BYTES] + whole[len(alone) :]


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@given(st.lists(st.tuples(st.none() | st.binary(max_size=3), st.booleans()), max_size=60), st.integers(3, 50))
def test_both_maps_accept_and_choose_the_same_records(
    rows: list[tuple[bytes | None, bool]], slots: int
) -> None:
    pairs: Rows = [(key, b"" if full else None) for key, full in rows] or [(b"", b"")]
    data, table, records = decoded(pairs)
    found = []
    for twin in TWINS:
        offsets = twin.OffsetMap(24 * slots, 0.8, SECRET)
        chosen = Selection(1)
        put = offsets.put(data, records, 0, len(records), 1)
        invalid = offsets.select(data, table, records, 0, len(records), 0, True, chosen)
        columns = [list(getattr(chosen, name)) for name in ("keep", "kept", "tombstones", "last_kept_offset")]
        found.append((put, invalid, offsets.size, offsets.latest_offset, columns))
    assert found[0] == found[1]


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")],
)
def test_the_compiled_hash_is_siphash_with_128_bits(size: int, expected: str) -> None:
    """Against the vectors of the reference implementation."""
    assert COMPILED is not None
    assert COMPILED.OffsetMap(2400, 0.9, SECRET).hash_of(bytes(range(size))).hex() == expected


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
def test_keys_of_every_length_are_distinguished() -> None:
    names = [bytes(size) for size in range(64)]
    offsets = filled(COMPILED, keys(*names), slots=1000)
    assert [offsets.get(name) for name in names] == list(range(64))
