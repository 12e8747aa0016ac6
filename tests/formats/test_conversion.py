"""Joining batches and upgrading older messages: their rules, and that both implementations agree."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import message_set
from klog.formats.compression import CODEC_NAMES
from klog.formats.constants import TIMESTAMP_TYPE_BIT
from klog.formats.errors import CorruptRecordError, KlogError
from klog.kernel import _pyconversion, kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.message_builder import build_message, build_wrapper
from tests import strategies


def _compiled() -> ModuleType | None:
    try:
        return importlib.import_module("klog.kernel._conversion")
    except ImportError:
        return None


COMPILED = _compiled()
TWINS = [_pyconversion] if COMPILED is None else [_pyconversion, COMPILED]
twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.IMPLEMENTATION)

FIELDS = (
    "rows",
    "base_offset",
    "last_offset",
    "leader_epoch",
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)


def scanned(data: bytes) -> BatchTable:
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    return table


def batch(offset: int, count: int = 2, time: int = 1000, **fields: Any) -> bytes:
    rows = [RecordData(offset + at, time + at, b"k", b"value", ((b"h", None),)) for at in range(count)]
    return bytes(build_batch(rows, BatchFields(leader_epoch=fields.pop("leader_epoch", 3), **fields)))


def groups(twin: Any, data: bytes, limit: int = 10_000, same_codec: bool = False) -> list[tuple[Any, ...]]:
    """The joined batches of uncompressed ones: their fields and their records."""
    table = scanned(data)
    joiner = twin.Joiner(limit, same_codec)
    found = []
    row = 0
    while row < len(table):
        reached = joiner.add_run(data, table, row, len(table), True)
        if reached == row:
            if not joiner.rows:
                row += 1  # a batch that is joined with none
                continue
            found.append((*(getattr(joiner, name) for name in FIELDS), joiner.take()))
        row = reached
        joiner.keep()
    if joiner.rows:
        found.append((*(getattr(joiner, name) for name in FIELDS), joiner.take()))
    return found


def sizes(twin: Any, *batches: bytes, **how: Any) -> list[int]:
    return [group[0] for group in groups(twin, b"".join(batches), **how)]


@twins
def test_batches_without_a_producer_are_joined_also_over_gaps(twin: Any) -> None:
    ((_, base, last, *_, count, _),) = groups(twin, batch(10) + batch(12) + batch(40))
    assert (base, last, count) == (10, 41, 6)


@twins
def test_a_producers_batches_are_joined_if_sequences_and_offsets_go_on(twin: Any) -> None:
    sent = {"producer_id": 7, "producer_epoch": 1}
    first = batch(10, base_sequence=5, **sent)
    assert sizes(twin, first, batch(12, base_sequence=7, **sent)) == [2]
    assert sizes(twin, first, batch(12, base_sequence=8, **sent)) == [1, 1]
    assert sizes(twin, first, batch(13, base_sequence=7, **sent)) == [1, 1]
    assert sizes(twin, first, batch(12, base_sequence=7, producer_id=7, producer_epoch=2)) == [1, 1]
    assert sizes(twin, first, batch(12, base_sequence=7, producer_id=8, producer_epoch=1)) == [1, 1]
    assert sizes(twin, first, batch(12)) == [1, 1]
    in_transaction = batch(12, base_sequence=7, is_transactional=True, **sent)
    assert sizes(twin, first, in_transaction) == [1, 1]
    assert sizes(twin, in_transaction, batch(14, base_sequence=9, is_transactional=True, **sent)) == [2]


@twins
def test_sequences_that_wrap_are_not_joined(twin: Any) -> None:
    sent = {"producer_id": 7, "producer_epoch": 1}
    last = 2**31 - 1
    assert sizes(
        twin, batch(10, base_sequence=last - 3, **sent), batch(12, base_sequence=last - 1, **sent)
    ) == [2]
    assert sizes(twin, batch(10, base_sequence=last - 1, **sent), batch(12, base_sequence=0, **sent)) == [
        1,
        1,
    ]


@twins
def test_leader_epochs_cells_times_horizons_and_codecs_separate_batches(twin: Any) -> None:
    assert sizes(twin, batch(10), batch(12, leader_epoch=4)) == [1, 1]
    assert sizes(twin, batch(4090), batch(4092), batch(4096), batch(4098)) == [2, 2]
    assert sizes(twin, batch(10), batch(12, log_append_time_ms=5)) == [1, 1]
    assert sizes(twin, batch(10, log_append_time_ms=5), batch(12, log_append_time_ms=5)) == [2]
    assert sizes(twin, batch(10, log_append_time_ms=5), batch(12, log_append_time_ms=6)) == [1, 1]
    assert sizes(twin, batch(10, delete_horizon_ms=5), batch(12, delete_horizon_ms=5)) == [1, 1]


@twins
def test_the_limit_is_of_the_rewritten_records(twin: Any) -> None:
    ((*_, records),) = groups(twin, batch(10) + batch(12))
    assert sizes(twin, batch(10), batch(12), limit=len(records)) == [2]
    assert sizes(twin, batch(10), batch(12), limit=len(records) - 1) == [1, 1]
    assert sizes(twin, batch(10), batch(12), limit=0) == [1, 1]


@twins
def test_a_batch_that_is_joined_with_none_keeps_its_bytes(twin: Any) -> None:
    data = batch(10)
    ((*_, records),) = groups(twin, data, limit=1)
    assert records == data[61:]


@twins
def test_records_that_do_not_decode_are_not_joined(twin: Any) -> None:
    first, second = batch(10), bytearray(batch(12))
    second[61] = 0x7F
    with pytest.raises(CorruptRecordError, match="do not decode"):
        groups(twin, bytes(first + second))


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@given(
    st.lists(strategies.joinable_batches, max_size=12),
    st.integers(0, 600),
    st.booleans(),
)
def test_both_implementations_join_the_same(drawn: list[Any], limit: int, same_codec: bool) -> None:
    data = strategies.log_of(drawn)
    assert groups(_pyconversion, data, limit, same_codec) == groups(COMPILED, data, limit, same_codec)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except KlogError as error:
        return type(error), str(error)


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@given(strategies.damaged(st.lists(strategies.joinable_batches, max_size=6).map(strategies.log_of)))
def test_both_implementations_treat_damaged_batches_alike(data: bytes) -> None:
    assert outcome(groups, _pyconversion, data) == outcome(groups, COMPILED, data)


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@given(strategies.segments(magics=(0, 1)), st.integers(0, 9))
def test_both_implementations_upgrade_the_same(data: bytes, epoch: int) -> None:
    table, records = scanned(data), RecordTable()
    row = 0
    while row < len(table):
        row = kernel.decode(data, table, row, len(table), records)
        if row < len(table):
            break  # compressed ones are covered by the next call
    ours = outcome(_pyconversion.upgrade, data, table, records, epoch)
    assert ours == outcome(COMPILED.upgrade, data, table, records, epoch)  # type: ignore[union-attr]


def decoded(data: bytes) -> tuple[BatchTable, RecordTable]:
    """The uncompressed batches before the first compressed one."""
    table, records = scanned(data), RecordTable()
    kernel.decode(data, table, 0, len(table), records)
    return table, records


@twins
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("append_time", [None, 5000])
def test_records_become_messages_without_headers(twin: Any, magic: int, append_time: int | None) -> None:
    rows = [RecordData(7, 1000, b"k", None, ((b"h", b"x"),)), RecordData(9, 900, None, b"")]
    data = bytes(build_batch(rows, BatchFields(log_append_time_ms=append_time)))
    made = twin.downgrade(data, *decoded(data), 0, 2, magic, 5)
    time_type = TIMESTAMP_TYPE_BIT if magic and append_time else 0
    messages = [
        build_message(each.offset - 5, magic, time_type, append_time or each.timestamp, each.key, each.value)
        for each in rows
    ]
    assert made == b"".join(messages)
    assert twin.downgrade(data, *decoded(data), 1, 2, magic, 5) == messages[1]


@given(st.one_of(strategies.messages(0), strategies.messages(1)))
def test_a_message_is_that_of_the_definition(message: Any) -> None:
    body = message.body
    attributes = TIMESTAMP_TYPE_BIT if body.attributes.timestampType == "LogAppendTime" else 0
    built = build_message(message.offset, body.magic, attributes, body.timestamp, body.key, body.value)
    assert built == message_set.build(message)


@given(st.integers(0, 1).flatmap(strategies.wrapped_messages))
def test_a_compressed_set_is_that_of_the_definition(message: Any) -> None:
    body = message.body
    block = message_set.open_block(message)
    codec = CODEC_NAMES.index(body.attributes.codec)
    built = build_wrapper(block, body.magic, codec, 0, message.offset, body.timestamp)
    assert built == message_set.build(message)


@twins
def test_records_that_no_message_can_hold_are_corrupt(twin: Any) -> None:
    for times, offsets, what in (((0, -2), (7, 8), "timestamp -2"), ((0, 0), (7, 7), "offset 7 follows 7")):
        rows = [RecordData(*each, b"", b"") for each in zip(offsets, times, strict=True)]
        data = bytes(build_batch(rows))
        with pytest.raises(CorruptRecordError, match=what):
            twin.downgrade(data, *decoded(data), 0, 2, 1, 0)


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@given(strategies.segments(magics=(0, 1, 2)), st.integers(0, 1), st.integers(-(2**63), 2**63 - 1), st.data())
def test_both_implementations_downgrade_the_same(
    data: bytes, magic: int, base_offset: int, drawn: st.DataObject
) -> None:
    table, records = decoded(data)
    first = drawn.draw(st.integers(0, len(records)))
    last = drawn.draw(st.integers(first, len(records)))
    asked = data, table, records, first, last, magic, base_offset
    assert outcome(_pyconversion.downgrade, *asked) == outcome(
        COMPILED.downgrade,  # type: ignore[union-attr]
        *asked,
    )


@pytest.mark.skipif(COMPILED is None, reason="klog was built without a compiler")
@given(strategies.segments(magics=(2,)), strategies.segments(magics=(2,)))
def test_both_implementations_compare_the_same(one: bytes, other: bytes) -> None:
    decoded = []
    for data in (one, other):
        table, records = scanned(data), RecordTable()
        kernel.decode(data, table, 0, len(table), records)
        decoded.append((data, records))
    (a, rows), (b, other_rows) = decoded
    count = min(len(rows), len(other_rows))
    ours = _pyconversion.same_records(a, rows, 0, b, other_rows, 0, count)
    assert ours == COMPILED.same_records(a, rows, 0, b, other_rows, 0, count)  # type: ignore[union-attr]
    assert _pyconversion.same_records(a, rows, 0, a, rows, 0, len(rows)) == len(rows)
