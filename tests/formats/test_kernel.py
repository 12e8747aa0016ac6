"""The rules of a record kernel, each on the smallest input that shows it; for both kernels.

The rules are those of Kafka's own reader, odd ones too (`DefaultRecordBatch`, `DefaultRecord`,
`AbstractLegacyRecordBatch`, `FileLogInputStream`, `ByteUtils`).
"""

from __future__ import annotations

import struct
import zlib
from importlib import import_module
from types import ModuleType

import pytest
from crc32c import crc32c

from klog.kernel.columns import STOP_BAD_SIZE, STOP_NEED_BYTES, BatchTable, IndexState, RecordTable
from tests.formats import reading

NULL = b"\x01"  # the varint of -1
LOG_APPEND_TIME = 8


@pytest.fixture(params=["_kernel", "_pykernel"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"klog.kernel.{request.param}")


def batch(
    records: bytes,
    count: int,
    *,
    base_offset: int = 100,
    attributes: int = 0,
    last_delta: int = 0,
    base_timestamp: int = 1000,
    max_timestamp: int = 5000,
) -> bytes:
    checked = struct.pack(
        ">hiqqqhii", attributes, last_delta, base_timestamp, max_timestamp, -1, -1, -1, count
    )
    checked += records
    head = struct.pack(">qiibI", base_offset, 9 + len(checked), 3, 2, crc32c(checked))
    return head + checked


def record(body: bytes) -> bytes:
    assert len(body) < 64
    return bytes((2 * len(body),)) + body


def message(
    magic: int, offset: int, value: bytes | None, *, attributes: int = 0, timestamp: int = 7
) -> bytes:
    checked = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    checked += struct.pack(">ii", -1, -1 if value is None else len(value)) + (value or b"")
    return struct.pack(">qiI", offset, 4 + len(checked), zlib.crc32(checked)) + checked


SIMPLE = record(b"\0\x04\x06" + NULL + b"\x02v" + b"\0")  # timestamp +2, offset +3, no key, value "v"


def only(kernel: ModuleType, data: bytes) -> reading.ReadBatch:
    (found,) = reading.read(kernel, data).batches
    return found


# Scanning a file


def test_a_size_below_the_smallest_message_ends_the_scan(kernel: ModuleType) -> None:
    data = batch(SIMPLE, 1) + struct.pack(">qi", 0, 13) + bytes(60)
    found = reading.read(kernel, data)
    assert (found.stop, found.stop_size, found.consumed_bytes) == (STOP_BAD_SIZE, 13, len(batch(SIMPLE, 1)))


def test_an_entry_of_17_bytes_or_fewer_is_not_read(kernel: ModuleType) -> None:
    assert reading.read(kernel, bytes(17)).stop == STOP_NEED_BYTES
    assert reading.read(kernel, bytes(18)).stop == STOP_BAD_SIZE


def test_an_incomplete_batch_is_not_in_the_table_and_its_size_is_known(kernel: ModuleType) -> None:
    whole = batch(SIMPLE, 1)
    found = reading.read(kernel, whole + whole[:-1])
    assert (len(found.batches), found.consumed_bytes, found.need_bytes) == (1, len(whole), len(whole))


def test_a_batch_with_a_size_below_its_header_is_read_with_the_bytes_after_it(
    kernel: ModuleType,
) -> None:
    data = bytearray(batch(SIMPLE, 1) + batch(SIMPLE, 1))
    data[8:12] = struct.pack(">i", 20)
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    assert table.size[0] == 32
    assert table.count[0] == 1
    kernel.verify(data, table)
    assert table.valid[0] == 0


def test_an_incomplete_header_needs_more_bytes_unless_the_file_ends(
    kernel: ModuleType,
) -> None:
    data = bytearray(batch(SIMPLE, 1))[:40]
    data[8:12] = struct.pack(">i", 20)
    table = BatchTable()
    kernel.scan(data, 0, False, table)
    assert (len(table), table.need_bytes) == (0, 61)
    kernel.scan(data, 0, True, table)
    assert (len(table), table.base_timestamp[0]) == (1, 1000)
    assert table.count[0] == 0


def test_a_last_offset_wraps_as_a_java_long(kernel: ModuleType) -> None:
    found = only(kernel, batch(b"", 0, base_offset=2**63 - 1, last_delta=1))
    assert found.row["last_offset"] == -(2**63)


def test_a_negative_magic_is_read_as_a_message_with_a_timestamp(kernel: ModuleType) -> None:
    found = only(kernel, message(-3, 5, b"v", timestamp=99))
    assert found.row["magic"] == -3
    assert [(row["offset"], row["timestamp"], row["value"]) for row in found.records] == [(5, 99, b"v")]


def test_the_checksum_of_a_batch_covers_what_follows_it_and_not_the_leader_epoch(kernel: ModuleType) -> None:
    data = bytearray(batch(SIMPLE, 1))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        if at in range(8, 12) or at == 16:
            continue  # the size and the magic decide how the rest is read
        assert only(kernel, changed).row["valid"] == (at < 16)


# Records of magic 2


def test_a_record_has_the_values_of_its_fields(kernel: ModuleType) -> None:
    headers = b"\x04" + b"\x02h" + b"\x04ab" + b"\x02i" + NULL
    found = only(kernel, batch(record(b"\0\x04\x06" + b"\x02k" + b"\x02v" + headers), 1))
    (row,) = found.records
    assert found.problem is None
    assert (row["offset"], row["timestamp"], row["key"], row["value"]) == (103, 1002, b"k", b"v")
    assert row["headers"] == [(b"h", b"ab"), (b"i", None)]


def test_with_log_append_time_every_record_has_the_largest_timestamp(kernel: ModuleType) -> None:
    found = only(kernel, batch(SIMPLE + SIMPLE, 2, attributes=LOG_APPEND_TIME))
    assert [row["timestamp"] for row in found.records] == [5000, 5000]


def test_an_empty_key_or_value_is_not_a_null_one(kernel: ModuleType) -> None:
    (row,) = only(kernel, batch(record(b"\0\0\0" + b"\0" + NULL + b"\0"), 1)).records
    assert (row["key"], row["value"]) == (b"", None)


@pytest.mark.parametrize("length", [b"\x01", b"\x03", b"\xff\xff\xff\xff\x0f"])
def test_any_negative_length_is_null(kernel: ModuleType, length: bytes) -> None:
    (row,) = only(kernel, batch(record(b"\0\0\0" + length + length + b"\x02" + b"\x02h" + length), 1)).records
    assert (row["key"], row["value"], row["headers"]) == (None, None, [(b"h", None)])
    assert (row["key_size"], row["value_size"]) == (-1, -1)
    header = b"\x02" + length
    assert only(kernel, batch(record(b"\0\0\0" + NULL + NULL + header), 1)).problem is not None


def test_a_varint_may_have_unnecessary_bytes_and_drops_bits_that_do_not_fit(kernel: ModuleType) -> None:
    long_three = b"\x86\x80\x80\x80\x70"  # 3 in five bytes, with bits beyond the 32nd
    found = only(kernel, batch(record(b"\0\x04" + long_three + NULL + b"\x02v" + b"\0"), 1))
    assert [row["offset"] for row in found.records] == [103]
    long_two = b"\x84" + b"\x80" * 8 + b"\x7e"  # 2 in ten bytes, with bits beyond the 64th
    found = only(kernel, batch(record(b"\0" + long_two + b"\x06" + NULL + b"\x02v" + b"\0"), 1))
    assert [row["timestamp"] for row in found.records] == [1002]


def test_a_varint_of_more_bytes_than_its_kind_has_is_refused(kernel: ModuleType) -> None:
    six = b"\x86\x80\x80\x80\x80\x00"
    eleven = b"\x84" + b"\x80" * 9 + b"\x00"
    for body in (b"\0\x04" + six + NULL + NULL + b"\0", b"\0" + eleven + b"\x06" + NULL + NULL + b"\0"):
        found = only(kernel, batch(record(body), 1))
        assert found.problem == "record 0 of 1 has fields that do not fit its length"


def test_the_size_of_a_record_counts_its_length_field_as_kafka_would_write_it(kernel: ModuleType) -> None:
    body = SIMPLE[1:]
    padded = bytes((2 * len(body) | 0x80, 0x80, 0x00)) + body
    assert [row["record_size"] for row in only(kernel, batch(padded, 1)).records] == [1 + len(body)]
    value = bytes(100)
    body = b"\0\0\0" + NULL + b"\xc8\x01" + value + b"\0"
    length = bytes((2 * len(body) & 0x7F | 0x80, 2 * len(body) >> 7))
    assert [row["record_size"] for row in only(kernel, batch(length + body, 1)).records] == [2 + len(body)]


def test_offsets_and_timestamps_wrap_as_java_longs(kernel: ModuleType) -> None:
    found = only(kernel, batch(SIMPLE, 1, base_offset=2**63 - 2, base_timestamp=2**63 - 1))
    assert [(row["offset"], row["timestamp"]) for row in found.records] == [(-(2**63) + 1, -(2**63) + 1)]


def test_a_batch_of_no_records_may_have_any_content(kernel: ModuleType) -> None:
    for attributes in (0, 1, 4):
        found = only(kernel, batch(b"garbage", 0, attributes=attributes))
        assert (found.records, found.problem) == ([], None)


@pytest.mark.parametrize(
    ("records", "count", "good", "problem"),
    [
        (SIMPLE, -1, 0, "batch has a record count of -1"),
        (SIMPLE, 2, 1, "batch ends after 1 of 2 records"),
        (SIMPLE, 2**31 - 1, 1, "batch ends after 1 of 2147483647 records"),
        (SIMPLE + SIMPLE, 1, 1, f"{len(SIMPLE)} bytes remain after the 1 records that the batch declares"),
        (SIMPLE + b"\x20", 2, 1, "record 1 of 2 is 16 bytes long with 0 left"),
        (SIMPLE + NULL, 2, 1, "record 1 of 2 is -1 bytes long with 0 left"),
        (SIMPLE + b"\0", 2, 1, "record 1 of 2 has fields that do not fit its length"),
        (record(SIMPLE[1:] + b"\0"), 1, 0, "record 0 of 1 has fields that do not fit its length"),
        (record(b"\0\0\0\x02k\x7ev\0"), 1, 0, "record 0 of 1 has fields that do not fit its length"),
        (record(b"\0\0\0\x01\x01\x7e"), 1, 0, "record 0 of 1 has fields that do not fit its length"),
        (record(b"\0\0\0\x01\x01\x01"), 1, 0, "record 0 of 1 has fields that do not fit its length"),
        (
            record(b"\0\0\0\x01\x01\x02\x02h\x04a"),
            1,
            0,
            "record 0 of 1 has fields that do not fit its length",
        ),
    ],
)
def test_records_that_kafka_refuses_are_a_problem_and_those_before_are_kept(
    kernel: ModuleType, records: bytes, count: int, good: int, problem: str
) -> None:
    found = only(kernel, batch(records, count))
    assert (len(found.records), found.problem) == (good, problem)


def test_decoding_stops_at_a_compressed_batch_without_a_problem(kernel: ModuleType) -> None:
    data = batch(SIMPLE, 1) + batch(b"x", 1, attributes=2) + batch(SIMPLE, 1)
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    assert kernel.decode(data, table, 0, 3, records) == 1
    assert (len(records), records.problem) == (1, None)
    assert kernel.decode(data, table, 2, 3, records) == 3
    assert records.batch.tolist() == [0, 2]


def test_decoding_stops_at_a_problem_and_says_in_which_batch(kernel: ModuleType) -> None:
    data = batch(SIMPLE, 1) + batch(SIMPLE, 2) + batch(SIMPLE, 1)
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    assert kernel.decode(data, table, 0, 3, records) == 1
    assert (len(records), records.problem_batch) == (2, 1)
    records.clear()
    assert (records.problem, records.problem_batch) == (None, -1)


def test_a_problem_is_that_of_the_last_call_only(kernel: ModuleType) -> None:
    data = batch(SIMPLE, 2) + batch(SIMPLE, 1)
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    assert kernel.decode(data, table, 0, 2, records) == 0
    assert kernel.decode(data, table, 1, 2, records) == 2
    assert (records.problem, records.problem_batch) == (None, -1)
    assert not kernel.decode_payload(SIMPLE, table, 0, records)
    assert kernel.decode_payload(SIMPLE, table, 1, records)
    assert (records.problem, len(records)) == (None, 4)


# Messages of magic 0 and 1


def inner_offsets(kernel: ModuleType, wrapper: bytes, payload: bytes) -> tuple[list[int], str | None, int]:
    table, records = BatchTable(), RecordTable()
    kernel.scan(wrapper, 0, True, table)
    assert kernel.decode_payload(payload, table, 0, records) is (records.problem is None)
    return records.offset.tolist(), records.problem, table.base_offset[0]


def wrapper(magic: int, offset: int, *, attributes: int = 1, timestamp: int = 50) -> bytes:
    return message(magic, offset, b"block", attributes=attributes, timestamp=timestamp)


def test_inner_offsets_of_magic_0_are_absolute(kernel: ModuleType) -> None:
    inner = message(0, 8, b"a") + message(0, 9, b"b")
    assert inner_offsets(kernel, wrapper(0, 9), inner) == ([8, 9], None, 8)


def test_inner_offsets_of_magic_1_are_relative_and_may_have_gaps(kernel: ModuleType) -> None:
    inner = message(1, 1, b"a") + message(1, 4, b"b")
    assert inner_offsets(kernel, wrapper(1, 104), inner) == ([101, 104], None, 101)


def test_a_wrapper_of_magic_1_at_offset_0_leaves_inner_offsets_as_they_are(kernel: ModuleType) -> None:
    inner = message(1, 0, b"a") + message(1, 1, b"b")
    assert inner_offsets(kernel, wrapper(1, 0), inner) == ([0, 1], None, 0)


def test_a_wrapper_offset_below_the_last_inner_offset_is_refused(kernel: ModuleType) -> None:
    found = inner_offsets(kernel, wrapper(1, 3), message(1, 4, b"a"))
    assert found == ([], "wrapper offset 3 is below its last inner offset 4", -1)


def test_inner_messages_of_the_other_magic_are_read_by_their_own(kernel: ModuleType) -> None:
    inner = message(0, 0, b"a") + message(1, 1, b"b")
    table, records = BatchTable(), RecordTable()
    for magic, offsets in ((1, [9, 10]), (0, [0, 1])):
        kernel.scan(wrapper(magic, 10, attributes=1), 0, True, table)
        records.clear()
        assert kernel.decode_payload(inner, table, 0, records)
        assert records.offset.tolist() == offsets
        assert records.timestamp.tolist() == [-1, 7]


def test_log_append_time_of_a_wrapper_is_that_of_its_messages_of_magic_1(kernel: ModuleType) -> None:
    inner = message(0, 0, b"a") + message(1, 1, b"b")
    table, records = BatchTable(), RecordTable()
    kernel.scan(wrapper(1, 10, attributes=1 | LOG_APPEND_TIME, timestamp=50), 0, True, table)
    assert kernel.decode_payload(inner, table, 0, records)
    assert records.timestamp.tolist() == [-1, 50]


def test_a_cut_last_inner_message_is_dropped(kernel: ModuleType) -> None:
    whole = message(1, 0, b"a")
    for cut in (whole[:-1], whole[:12], whole[:5], b"\0"):
        assert inner_offsets(kernel, wrapper(1, 7), whole + cut) == ([7], None, 7)


def test_a_message_set_without_a_message_is_refused(kernel: ModuleType) -> None:
    for payload in (b"", bytes(11), message(0, 5, b"a")[:-1]):
        assert inner_offsets(kernel, wrapper(0, 5), payload)[1] == "compressed message set holds no message"


@pytest.mark.parametrize(("magic", "kept"), [(0, [5]), (1, [])])
def test_a_bad_inner_size_leaves_no_offsets_of_magic_1(
    kernel: ModuleType, magic: int, kept: list[int]
) -> None:
    offsets, problem, _ = inner_offsets(kernel, wrapper(magic, 5), message(magic, 5, b"a") + bytes(26))
    assert (offsets, problem) == (kept, "inner message of 0 bytes, the smallest has 14")


def test_an_inner_message_may_not_be_compressed_itself(kernel: ModuleType) -> None:
    inner = message(1, 0, b"a") + message(1, 1, b"b", attributes=2) + message(1, 2, b"c")
    assert inner_offsets(kernel, wrapper(1, 12), inner) == ([10], "inner message is compressed itself", 10)


def test_inner_messages_have_their_own_checksum(kernel: ModuleType) -> None:
    bad = bytearray(message(1, 1, b"b"))
    bad[-1] ^= 1
    table, records = BatchTable(), RecordTable()
    kernel.scan(wrapper(1, 1), 0, True, table)
    assert kernel.decode_payload(message(1, 0, b"a") + bad, table, 0, records)
    assert records.valid.tolist() == [1, 0]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_key_or_value_beyond_its_message_is_a_problem(kernel: ModuleType, magic: int) -> None:
    at = 18 if magic == 0 else 26
    for field_at in (at, at + 4):
        for length in (2, 1000, 2**31 - 1):
            data = bytearray(message(magic, 5, b"v"))
            data[field_at : field_at + 4] = struct.pack(">i", length)
            assert only(kernel, data).problem == "message has a key or value that does not fit it"


def test_the_smallest_message_of_magic_1_has_no_room_for_a_key(kernel: ModuleType) -> None:
    found = only(kernel, struct.pack(">qiIbB", 5, 14, 0, 1, 0) + bytes(8))
    assert found.problem == "message has a key or value that does not fit it"


def test_a_wrapper_without_value_has_no_block(kernel: ModuleType) -> None:
    table = BatchTable()
    data = message(1, 5, None, attributes=1)
    kernel.scan(data, 0, True, table)
    assert kernel.payload_span(data, table, 0)[1] == -1
    assert table.base_offset[0] == -1


# Indexes


def test_an_index_entry_precedes_the_first_batch_after_the_interval(kernel: ModuleType) -> None:
    parts = [
        batch(SIMPLE, 1, base_offset=100 + 10 * n, last_delta=9, max_timestamp=stamp)
        for n, stamp in enumerate((5, 9, 7, 9, 11))
    ]
    size = len(parts[0])
    state = reading.index_of(kernel, b"".join(parts), 100, size)
    assert state["offsets"].tolist() == [29, 49]
    assert state["positions"].tolist() == [2 * size, 4 * size]
    assert state["timestamps"].tolist() == [9, 11]
    assert state["timestamp_offsets"].tolist() == [19, 49]
    assert (state["max_timestamp"], state["max_timestamp_offset"], state["last_offset"]) == (11, 149, 149)
    assert state["went_on"]


@pytest.mark.parametrize(
    ("base_offset", "spoil", "why"),
    [(0, True, "checksum"), (151, False, "offset"), (-(2**31), False, "offset")],
)
def test_a_rebuild_stops_where_the_log_must_end(
    kernel: ModuleType, base_offset: int, spoil: bool, why: str
) -> None:
    good = batch(SIMPLE, 1, base_offset=max(base_offset, 0))
    bad = bytearray(batch(SIMPLE, 1, base_offset=150 if not spoil else 1))
    bad[-1] ^= spoil
    state = reading.index_of(kernel, good + bad if base_offset >= 0 else bytes(bad), base_offset, 0)
    assert (state["went_on"], state["why"]) == (False, why)
    assert state["stopped_at"] == (len(good) if base_offset >= 0 else 0)


def test_an_index_rebuild_continues_across_chunks(kernel: ModuleType) -> None:
    parts = [batch(SIMPLE, 1, base_offset=n) for n in range(20)]
    whole = reading.index_of(kernel, b"".join(parts), 0, 200)
    table, state = BatchTable(), IndexState(0, 200)
    for number, part in enumerate(parts):
        kernel.scan(part, number * len(part), False, table)
        kernel.verify(part, table)
        assert kernel.index(table, state)
    assert vars(state) | {"went_on": True} == whole
    assert len(state.offsets) > 3
