"""What becomes of the batches of a log when they are produced anew: the same records, without gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.backup.moment.aborted import AbortedBatches, AbortedPart
from klog.backup.producing.batches import Producible, ProducibleBatches, number
from klog.backup.producing.offset_map import OffsetMap, OffsetRange
from klog.backup.restoring.batches import Rows
from klog.formats import compression
from klog.formats.constants import CODEC_MASK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import Marker, build_marker
from klog.kernel.message_builder import build_message, build_wrapper
from klog.storage.cleaner.decoding import decode_one

HEADERS = ((b"trace", b"7"), (b"empty", None))


def records(offsets: Sequence[int]) -> list[RecordData]:
    return [RecordData(each, 1000 + each, b"k%d" % each, b"v" * 50, HEADERS) for each in offsets]


def scanned(data: bytes) -> BatchTable:
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    kernel.verify(data, table)
    assert all(table.valid)
    return table


def produced(
    *batches: bytes | bytearray,
    aborted: Sequence[AbortedPart] = (),
    start: int = 0,
    keeps_append_time: bool = True,
) -> list[Producible]:
    data = b"".join(batches)
    table = scanned(data)
    making = ProducibleBatches(AbortedBatches(aborted), start, keeps_append_time=keeps_append_time)
    found = list(making.take(Rows(0, memoryview(data), table, 0, len(table))))
    return [*found, *making.finish()]


def contents(batches: Sequence[bytes | bytearray]) -> Iterator[tuple[int, bytes, bytes, object]]:
    """Timestamp, key, value and headers of all records."""
    for each in batches:
        table, found = scanned(bytes(each)), RecordTable()
        payload = memoryview(decode_one(memoryview(each), table, 0, found))
        for row in range(len(found)):
            key = bytes(payload[found.key_start[row] :][: found.key_size[row]])
            value = bytes(payload[found.value_start[row] :][: found.value_size[row]])
            headers = kernel.headers(payload, found.headers_start[row], found.header_count[row])
            yield found.timestamp[row], key, value, headers


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_stays_as_it_is_but_for_its_header(codec: int) -> None:
    original = build_batch(records(range(100, 110)), BatchFields(codec=codec, leader_epoch=7))

    (made,) = produced(original)
    number(made.data, 42, 3, 1000)

    table = scanned(bytes(made.data))
    assert made.offsets == range(100, 110)
    assert (table.base_offset[0], table.leader_epoch[0], table.attributes[0]) == (0, -1, codec)
    assert (table.producer_id[0], table.producer_epoch[0], table.base_sequence[0]) == (42, 3, 1000)
    assert made.data[61:] == original[61:]


@pytest.mark.parametrize("start", [0, 3, 5, 6, 9, 10])
def test_records_before_the_log_start_offset_stay_deleted(start: int) -> None:
    batches = [build_batch(records(range(first, first + 5)), BatchFields(codec=1)) for first in (0, 5)]

    found = produced(*batches, start=start)

    assert [offset for each in found for offset in each.offsets] == list(range(start, 10))
    assert list(contents([each.data for each in found])) == list(
        contents([build_batch(records(range(start, 10)))] if start < 10 else [])
    )


def test_old_messages_before_the_log_start_offset_stay_deleted() -> None:
    messages = [build_message(at, 1, 0, 100 + at, b"k", b"v") for at in range(4)]

    (found,) = produced(*messages, start=2)

    assert found.offsets == [2, 3]


def test_sequences_begin_at_zero_again_after_the_last_one() -> None:
    (made,) = produced(build_batch(records(range(3))))
    number(made.data, 1, 0, (1 << 31) + 5)
    assert scanned(bytes(made.data)).base_sequence[0] == 5


def test_markers_and_aborted_records_are_left_out_and_the_others_are_of_no_transaction() -> None:
    fields = BatchFields(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    committed, aborted, later = (build_batch(records(each), fields) for each in ([0, 1], [3], [5]))
    made = produced(
        committed,
        moved(build_marker(5, 0, Marker(False, 0, 1)), 2),
        aborted,
        moved(build_marker(5, 0, Marker(True, 0, 1)), 4),
        later,
        aborted=[AbortedPart(5, 3, 4)],
    )

    assert [list(each.offsets) for each in made] == [[0, 1], [5]]
    for each in made:
        number(each.data, 1, 0, 0)
        assert not scanned(bytes(each.data)).attributes[0] & TRANSACTIONAL_BIT
    assert list(contents([each.data for each in made])) == list(contents([committed, later]))


def moved(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_with_gaps_is_built_anew_with_its_codec(codec: int) -> None:
    original = build_batch(records([10, 12, 17]), BatchFields(codec=codec))

    (made,) = produced(original)

    table = scanned(bytes(made.data))
    assert made.offsets == [10, 12, 17]
    assert (table.count[0], table.last_offset[0], table.attributes[0] & CODEC_MASK) == (3, 2, codec)
    assert list(contents([made.data])) == list(contents([original]))


def test_the_time_that_a_broker_had_set_becomes_that_of_the_records() -> None:
    original = build_batch(records(range(3)), BatchFields(log_append_time_ms=5000))

    (made,) = produced(original)

    assert not scanned(bytes(made.data)).attributes[0] & TIMESTAMP_TYPE_BIT
    assert [each[0] for each in contents([made.data])] == [5000, 5000, 5000]


def test_where_brokers_set_the_time_a_batch_stays_as_it_is() -> None:
    original = build_batch(records(range(3)), BatchFields(log_append_time_ms=5000))

    (made,) = produced(original, keeps_append_time=False)
    number(made.data, 1, 0, 0)

    assert not scanned(bytes(made.data)).attributes[0] & TIMESTAMP_TYPE_BIT
    assert made.data[61:] == original[61:]


def test_messages_become_batches_joined_or_as_they_were_compressed() -> None:
    plain = [build_message(at, 0, 0, -1, b"k", b"v%d" % at) for at in (3, 4, 6)]
    inner = b"".join(build_message(at, 1, 0, 100 + at, b"k", b"v") for at in range(3))
    wrapper = build_wrapper(inner, 1, compression.GZIP, 0, 9, 102)
    later = build_message(12, 1, 0, 500, b"k", None)

    made = produced(*plain, wrapper, later, build_batch(records([20])))

    assert [list(each.offsets) for each in made] == [[3, 4, 6], [7, 8, 9], [12], [20]]
    tables = [scanned(bytes(each.data)) for each in made]
    assert [table.attributes[0] & CODEC_MASK for table in tables] == [0, compression.GZIP, 0, 0]
    assert {table.magic[0] for table in tables} == {2}
    stamps = [each[0] for each in contents([each.data for each in made])]
    assert stamps == [-1, -1, -1, 100, 101, 102, 500, 1020]


@given(st.lists(st.integers(1, 5), max_size=12), st.data())
def test_offsets_are_translated_to_the_next_record(gaps: list[int], data: st.DataObject) -> None:
    old = [sum(gaps[: at + 1]) for at in range(len(gaps))]
    found = OffsetMap()
    at = 0
    while at < len(old):
        size = data.draw(st.integers(1, len(old) - at))
        part = old[at : at + size]
        dense = part[-1] - part[0] + 1 == size
        found.note(range(part[0], part[-1] + 1) if dense else part)
        at += size

    assert found.new_end == len(old)
    for offset in range(max(old, default=0) + 3):
        assert found.translated(offset) == sum(each < offset for each in old)
    ranges = list(found.ranges())
    assert [each for first, end, _ in ranges for each in range(first, end)] == old
    assert [each.new_first for each in ranges] == [old.index(each.first) for each in ranges]


def test_adjacent_ranges_are_one() -> None:
    found = OffsetMap()
    found.note(range(5, 10))
    found.note(range(10, 12))
    found.note([20, 21])
    assert list(found.ranges()) == [OffsetRange(5, 12, 0), OffsetRange(20, 22, 7)]
