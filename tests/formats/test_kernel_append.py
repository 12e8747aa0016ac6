"""The kernel's functions for append and read paths agree with decoding into tables, in both kernels."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import compression, record_batch
from klog.formats.errors import FormatError
from klog.kernel import _pykernel, kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from tests import strategies

KERNELS = [pytest.param(_pykernel, id="python"), pytest.param(kernel, id=kernel.IMPLEMENTATION)]
HEADER_BYTES = 61


def records_of(batch: bytes) -> tuple[bytes, BatchTable, RecordTable]:
    """The uncompressed records of a batch, its header in a table, and its decoded records."""
    table, records = BatchTable(), RecordTable()
    _pykernel.scan(batch, 0, True, table)
    payload = batch[HEADER_BYTES:]
    if table.count[0]:
        payload = compression.decompress(table.attributes[0] & 7, payload)
    table.attributes[0] = 0  # the timestamps as they are stored, without the effect of LogAppendTime
    _pykernel.decode_payload(payload, table, 0, records)
    return payload, table, records


@pytest.mark.parametrize("module", KERNELS)
@given(batch=strategies.batch_bytes() | strategies.damaged(strategies.batch_bytes(codec="none")))
def test_checked_records_agree_with_decoded_ones(module: ModuleType, batch: bytes) -> None:
    _pykernel.scan(batch, 0, True, table := BatchTable())
    if len(table) != 1 or table.magic[0] != 2 or len(batch) < HEADER_BYTES:
        return
    if table.attributes[0] & 7 and compression_fails(batch):
        return
    payload, table, records = records_of(batch)
    checked = module.check_records(payload, 0, table.base_timestamp[0], table.count[0])
    if records.problem is not None:
        assert checked is None
        return
    stamped = [timestamp for timestamp in records.timestamp if timestamp != -1]
    in_order = [offset - table.base_offset[0] for offset in records.offset] == list(range(len(records)))
    keyless = any(size < 0 for size in records.key_size)
    assert checked == (min(stamped, default=-1), max([*stamped, -1]), in_order, keyless)


def compression_fails(batch: bytes) -> bool:
    try:
        compression.decompress(batch[22] & 7, batch[HEADER_BYTES:])
    except FormatError:  # a damaged attribute may name an undefined codec
        return True
    return False


@pytest.mark.parametrize("module", KERNELS)
def test_records_are_checked_in_place_behind_their_header(module: ModuleType) -> None:
    batch = build_batch([RecordData(0, 50, b"k", b"v"), RecordData(1, 40, None, None, ((b"h", None),))])
    assert module.check_records(batch, HEADER_BYTES, 50, 2) == (40, 50, True, True)
    assert module.check_records(batch, HEADER_BYTES, 50, 1) is None, "bytes remain"
    assert module.check_records(batch, HEADER_BYTES, 50, 3) is None, "a record is missing"
    assert module.check_records(batch, HEADER_BYTES, 50, -1) is None
    assert module.check_records(batch, len(batch) + 1, 50, 0) is None


@pytest.mark.parametrize("module", KERNELS)
def test_a_record_without_a_timestamp_does_not_count_as_the_earliest(module: ModuleType) -> None:
    batch = build_batch(
        [RecordData(0, -1, b"k", b""), RecordData(1, 7, b"k", b""), RecordData(5, 9, b"k", b"")]
    )
    assert module.check_records(batch, HEADER_BYTES, -1, 3) == (7, 9, False, False)


@pytest.mark.parametrize("module", KERNELS)
@given(data=strategies.segments(max_entries=6), offset=st.integers(0, 40))
def test_seek_finds_the_first_batch_that_reaches_an_offset(
    module: ModuleType, data: bytes, offset: int
) -> None:
    _pykernel.scan(data, 0, True, table := BatchTable())
    reaching = (at for at, last in zip(table.position, table.last_offset, strict=True) if last >= offset)
    assert module.seek(data, offset) == next(reaching, -1 - len(data))


@pytest.mark.parametrize("module", KERNELS)
@given(data=strategies.segments(max_entries=4), offset=st.integers(0, 40), data_=st.data())
def test_seek_in_an_incomplete_buffer_says_where_to_continue(
    module: ModuleType, data: bytes, offset: int, data_: st.DataObject
) -> None:
    cut = data_.draw(st.integers(0, len(data)))
    at = module.seek(data[:cut], offset)
    whole = module.seek(data, offset)
    if at >= 0:
        assert at == whole
    else:
        rest = module.seek(data[-1 - at :], offset)
        assert (rest - 1 - at if rest >= 0 else rest + at + 1) == whole


@pytest.mark.parametrize("module", KERNELS)
def test_seek_stops_at_a_size_below_the_smallest_record(module: ModuleType) -> None:
    batch = bytes(build_batch([RecordData(0, 1, None, b"v")]))
    broken = batch[:8] + b"\x00\x00\x00\x05" + batch[12:]
    assert module.seek(batch + broken, 1) == -1 - len(batch)


@given(strategies.record_batches(gaps=False))
def test_a_built_batch_equals_the_definition_s(batch: object) -> None:
    built = record_batch.build(batch)
    _pykernel.scan(built, 0, True, table := BatchTable())
    attributes = table.attributes[0]
    if attributes & 7:
        return  # codecs divide blocks differently; the next test reads the result
    records = [
        RecordData(
            table.base_offset[0] + record.offsetDelta,
            batch.baseTimestamp + record.timestampDelta,
            record.key,
            record.value,
            [(header.key.encode("utf-8", "surrogateescape"), header.value) for header in record.headers],
        )
        for record in batch.records
    ]
    fields = BatchFields(
        log_append_time_ms=batch.maxTimestamp if attributes & 8 else None,
        leader_epoch=table.leader_epoch[0],
        producer_id=table.producer_id[0],
        producer_epoch=table.producer_epoch[0],
        base_sequence=table.base_sequence[0],
        is_transactional=bool(attributes & 16),
    )
    mine = bytes(build_batch(records, fields))
    if records[0].timestamp != batch.baseTimestamp:
        # Deltas are relative to the first record, also if those of the generated batch are not.
        assert record_batch.parse(mine).maxTimestamp == batch.maxTimestamp
        return
    assert mine == built


@given(strategies.record_batches(gaps=False, codec="none"), st.integers(0, 4))
def test_a_batch_built_in_any_codec_reads_back_as_the_same_records(batch: object, codec: int) -> None:
    records = [
        RecordData(
            batch.baseOffset + n, batch.baseTimestamp + record.timestampDelta, record.key, record.value
        )
        for n, record in enumerate(batch.records)
    ]
    _, table, decoded = records_of(bytes(build_batch(records, BatchFields(codec=codec))))
    assert list(decoded.offset) == [record.offset for record in records]
    assert list(decoded.timestamp) == [record.timestamp for record in records]
    assert list(decoded.key_size) == [-1 if r.key is None else len(r.key) for r in records]
    assert table.max_timestamp[0] == max(record.timestamp for record in records)
