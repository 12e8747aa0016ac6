"""The packed layouts of fast readers and writers agree with the definitions, field by field."""

from __future__ import annotations

import struct

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import constants, offset_index, packed, time_index
from klog.formats.control_records import ControlKey, EndTxnMarker
from klog.formats.producer_snapshot import ProducerEntry
from klog.formats.record_batch import Attributes, RecordBatch
from klog.formats.transaction_index import AbortedTxn
from klog.formats.wrapping import last_sequence, sequence_after, sequence_before, wrap_int32
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch, build_single
from tests.strategies import int32s, int64s

SEQUENCES = st.integers(0, constants.INT32_MAX)
RANGES = {"h": 2**15 - 1, "i": 2**31 - 1, "q": 2**63 - 1}


@pytest.mark.parametrize(
    ("layout", "definition"),
    [
        (packed.OFFSET_INDEX_ENTRY, offset_index.Entry),
        (packed.TIME_INDEX_ENTRY, time_index.Entry),
        (packed.SNAPSHOT_ENTRY, ProducerEntry),
        (packed.CONTROL_KEY, ControlKey),
        (packed.END_TXN_MARKER, EndTxnMarker),
    ],
    ids=["offset index", "time index", "snapshot", "control key", "end transaction marker"],
)
@given(data=st.data())
def test_a_packed_entry_has_the_fields_of_its_definition(
    layout: struct.Struct, definition: c.Struct, data: st.DataObject
) -> None:
    letters = layout.format.removeprefix(">")
    fields = [data.draw(st.integers(-RANGES[letter] - 1, RANGES[letter])) for letter in letters]
    parsed = definition.parse(layout.pack(*fields))
    shown = [
        getattr(value, "intvalue", value) for name, value in parsed.items() if name not in ("_io", "rest")
    ]
    assert shown == fields
    assert definition.build(parsed) == layout.pack(*fields)


@given(st.tuples(int64s, int64s, int64s, int64s))
def test_a_packed_aborted_transaction_has_the_fields_of_its_definition(
    fields: tuple[int, int, int, int],
) -> None:
    parsed = AbortedTxn.parse(packed.TXN_INDEX_ENTRY.pack(constants.TXN_INDEX_VERSION, *fields))
    assert (parsed.producerId, parsed.firstOffset, parsed.lastOffset, parsed.lastStableOffset) == fields


@given(int64s, int64s, int64s, SEQUENCES)
def test_a_packed_batch_header_has_the_fields_of_the_definition(
    offset: int, timestamp: int, producer_id: int, sequence: int
) -> None:
    offset, timestamp = abs(offset) // 2, abs(timestamp) // 2
    fields = BatchFields(
        leader_epoch=4,
        producer_id=producer_id,
        producer_epoch=5,
        base_sequence=sequence,
        is_transactional=True,
    )
    batch = build_batch(
        [RecordData(offset, timestamp, b"k", b"v"), RecordData(offset + 1, 9, None, b"")], fields
    )
    parsed = RecordBatch.parse(batch)
    assert packed.BATCH_HEADER.unpack_from(batch) == (
        parsed.baseOffset,
        parsed.batchLength,
        parsed.partitionLeaderEpoch,
        parsed.magic,
        parsed.crc,
        int.from_bytes(Attributes.build(parsed.attributes), "big"),
        parsed.lastOffsetDelta,
        parsed.baseTimestamp,
        parsed.maxTimestamp,
        parsed.producerId,
        parsed.producerEpoch,
        parsed.baseSequence,
        parsed.recordCount,
    )


def test_parts_of_the_batch_header_end_where_their_names_say() -> None:
    whole = packed.BATCH_HEADER.format
    for part in (
        packed.ENTRY_PREFIX,
        packed.BATCH_HEADER_TO_LEADER_EPOCH,
        packed.BATCH_HEADER_TO_MAGIC,
        packed.BATCH_HEADER_TO_LAST_OFFSET_DELTA,
    ):
        assert whole.startswith(part.format)
    assert packed.ENTRY_PREFIX.size == constants.ENTRY_PREFIX_BYTES
    assert packed.BATCH_HEADER_TO_LEADER_EPOCH.size == constants.MAGIC_POSITION
    assert packed.BATCH_HEADER_TO_MAGIC.size == constants.BATCH_CRC_POSITION
    assert packed.BATCH_HEADER_TO_LAST_OFFSET_DELTA.size == constants.BATCH_LAST_OFFSET_DELTA_POSITION + 4
    assert packed.BATCH_HEADER.size == constants.BATCH_HEADER_BYTES


def test_sizes_of_entries_are_those_of_the_constants() -> None:
    assert packed.OFFSET_INDEX_ENTRY.size == constants.OFFSET_INDEX_ENTRY_BYTES
    assert packed.TIME_INDEX_ENTRY.size == constants.TIME_INDEX_ENTRY_BYTES
    assert packed.TXN_INDEX_ENTRY.size == constants.TXN_INDEX_ENTRY_BYTES
    assert packed.SNAPSHOT_HEADER.size == constants.SNAPSHOT_HEADER_BYTES
    assert packed.SNAPSHOT_ENTRY.size == constants.SNAPSHOT_ENTRY_BYTES


@pytest.mark.parametrize(
    ("sequence", "increment", "after"),
    [
        (0, 0, 0),
        (5, 3, 8),
        (constants.INT32_MAX, 0, constants.INT32_MAX),
        (constants.INT32_MAX, 1, 0),
        (constants.INT32_MAX - 1, 3, 1),
        (-1, 1, 0),
    ],
)
def test_sequence_numbers_wrap_from_the_largest_int32_to_0(sequence: int, increment: int, after: int) -> None:
    assert sequence_after(sequence, increment) == after


@given(SEQUENCES, SEQUENCES)
def test_sequence_numbers_count_modulo_2_to_the_31(sequence: int, increment: int) -> None:
    after = sequence_after(sequence, increment)
    assert after == (sequence + increment) % 2**31
    assert sequence_before(after, increment) == sequence
    assert last_sequence(sequence, increment) == after


@given(int32s, int32s)
def test_sequence_numbers_that_make_no_sense_follow_javas_int_arithmetic(
    sequence: int, increment: int
) -> None:
    if sequence > wrap_int32(2**31 - 1 - increment):
        expected = wrap_int32(increment - wrap_int32(2**31 - 1 - sequence) - 1)
    else:
        expected = wrap_int32(sequence + increment)
    assert sequence_after(sequence, increment) == expected


def test_a_batch_without_sequence_numbers_has_no_last_one() -> None:
    assert last_sequence(constants.NO_SEQUENCE, 7) == constants.NO_SEQUENCE


@given(st.integers(-1, 2**62), st.binary(max_size=200), st.binary(max_size=200))
def test_a_single_record_is_built_as_a_batch_of_one(timestamp: int, key: bytes, value: bytes) -> None:
    assert build_single(timestamp, key, value) == build_batch([RecordData(0, timestamp, key, value)])
