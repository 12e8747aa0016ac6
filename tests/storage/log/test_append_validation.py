"""What a leader refuses, and the error that Kafka gives it; what it writes into what it takes."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats import compression, message_set, record_batch
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.formats.names import TopicPartition
from klog.formats.varints import zigzag
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.storage.log.append_values import AppendError, Origin, Validated
from klog.storage.log.second_opinions import SecondOpinions
from klog.storage.log.validation import validate
from tests import strategies
from tests.storage.log.building import (
    NOW_MS,
    Later,
    append,
    batch,
    config,
    idempotent,
    marker,
    new_log,
    reseal,
    resealed,
    stored,
)

DAY_MS = 86_400_000


def judged(data: memoryview, origin: Origin = Origin.CLIENT, **overrides: str) -> Validated | None:
    return validate(data, config(**overrides), next_offset=100, leader_epoch=5, now_ms=NOW_MS, origin=origin)


def refusal(data: memoryview | bytes, **overrides: str) -> AppendError:
    with pytest.raises(AppendError) as refused:
        judged(memoryview(bytearray(data)), **overrides)
    return refused.value


def taken(data: memoryview | bytes, **overrides: str) -> record_batch.c.Container:
    """The batch as it will be stored, read by the definition, which checks the checksum."""
    valid = judged(memoryview(bytearray(data)), **overrides)
    assert valid is not None
    return record_batch.parse(bytes(valid.data))


def test_no_bytes_and_less_than_a_batch_are_no_records() -> None:
    assert judged(memoryview(bytearray())) is None
    assert judged(memoryview(bytearray(batch()[:40]))) is None


def test_what_follows_the_last_whole_batch_is_left_out() -> None:
    whole = batch(2)
    valid = judged(memoryview(bytearray(bytes(whole) + bytes(batch())[:50])))
    assert valid is not None
    assert len(valid.data) == len(whole)


def test_a_size_below_the_smallest_record_is_corrupt() -> None:
    assert refusal(struct.pack(">qi", 0, 13) + bytes(30)).error == "CORRUPT_MESSAGE"
    assert refusal(bytes(batch()) + struct.pack(">qi", 0, 13) + bytes(30)).error == "CORRUPT_MESSAGE"
    assert refusal(bytes(batch()) + struct.pack(">qi", 0, 13)).error == "CORRUPT_MESSAGE"
    assert refusal(struct.pack(">qi", 0, 13)).error == "CORRUPT_MESSAGE"
    assert judged(memoryview(bytearray(struct.pack(">qi", 0, 14)))) is None


def test_faults_of_a_whole_batch_are_told_before_those_of_what_follows_it() -> None:
    tail = struct.pack(">qi", 0, 13) + bytes(30)
    assert refusal(bytes(batch(base_offset=3)) + tail).error == "INVALID_RECORD"
    assert refusal(bytes(batch()) + tail, max_message_bytes="10").error == "MESSAGE_TOO_LARGE"


def test_a_magic_that_does_not_exist_is_corrupt_also_in_a_cut_batch() -> None:
    data = bytearray(batch())
    data[16] = 3
    assert refusal(data).error == "CORRUPT_MESSAGE"
    assert refusal(data[:30]).error == "CORRUPT_MESSAGE"


def test_a_wrong_checksum_is_corrupt() -> None:
    data = batch()
    data[-1] ^= 1
    assert refusal(data).error == "CORRUPT_MESSAGE"


def damaged(good: bytes) -> bytes:
    return good[:-1] + bytes((good[-1] ^ 1,))


@pytest.mark.parametrize("kind", ["a batch", "behind a good one", "an old message"])
def test_crcmod_reads_so_many_damaged_bytes_in_a_second_and_more_is_to_be_sent_again(kind: str) -> None:
    good = message(1) if kind == "an old message" else bytes(batch())
    sent = damaged(good) if kind != "behind a good one" else good + damaged(good)
    opinions = SecondOpinions(most_bytes=2 * len(good))

    def error_at(now_ms: int, data: bytes) -> str:
        with pytest.raises(AppendError) as refused:
            validate(memoryview(bytearray(data)), config(), 0, 0, now_ms, opinions=opinions)
        return refused.value.error

    second = NOW_MS // 1000 * 1000
    found = [error_at(second + number, sent) for number in range(4)]
    assert found[0] == "CORRUPT_MESSAGE"
    assert found[-1] == "REQUEST_TIMED_OUT"
    # Good records are taken meanwhile.
    assert validate(memoryview(bytearray(batch())), config(), 0, 0, second + 5, opinions=opinions) is not None
    assert error_at(second + 1000, sent) == "CORRUPT_MESSAGE"


def test_one_damaged_batch_a_second_is_always_confirmed_whatever_its_size() -> None:
    opinions = SecondOpinions(most_bytes=1)
    opinions.require(1 << 20, NOW_MS)
    opinions.require(0, NOW_MS)
    with pytest.raises(AppendError, match="second opinion"):
        opinions.require(1, NOW_MS)


def test_all_logs_of_a_broker_share_the_bound(tmp_path: Path) -> None:
    shared = Later()
    shared.opinions = SecondOpinions(most_bytes=1)
    logs = [
        new_log(tmp_path / name, background=shared, partition=TopicPartition(name, 0)) for name in ("a", "b")
    ]
    errors = []
    for log in logs:
        with pytest.raises(AppendError) as refused:
            append(log, memoryview(bytearray(damaged(bytes(batch())))))
        errors.append(refused.value.error)
        assert log.log_end_offset == 0
    assert errors == ["CORRUPT_MESSAGE", "REQUEST_TIMED_OUT"]


def test_a_batch_shorter_than_its_header_is_corrupt() -> None:
    data = bytearray(batch())
    struct.pack_into(">i", data, 8, 40)
    assert refusal(data[:52]).error == "CORRUPT_MESSAGE"


def test_a_base_offset_other_than_0_is_invalid_from_a_client_only() -> None:
    assert refusal(batch(base_offset=3)).error == "INVALID_RECORD"
    assert refusal(bytes(batch(base_offset=3)) + b"x").error == "INVALID_RECORD"
    assert judged(batch(base_offset=3), Origin.COORDINATOR) is not None


def test_a_batch_above_max_message_bytes_is_too_large_before_its_checksum_is_looked_at() -> None:
    data = batch([b"x" * 200])
    data[-1] ^= 1
    assert refusal(data, max_message_bytes="100").error == "MESSAGE_TOO_LARGE"
    assert refusal(bytes(data) + b"x", max_message_bytes="100").error == "MESSAGE_TOO_LARGE"
    assert refusal(batch([b"x" * 200]), max_message_bytes=str(len(batch([b"x" * 200])) - 1)).error == (
        "MESSAGE_TOO_LARGE"
    )
    assert taken(batch([b"x" * 200]), max_message_bytes=str(len(batch([b"x" * 200])))).recordCount == 1


def test_two_batches_in_one_append_are_invalid() -> None:
    assert refusal(bytes(batch()) + bytes(batch())).error == "INVALID_RECORD"


def test_offsets_and_count_must_agree_in_a_client_s_batch() -> None:
    assert refusal(resealed(batch(2), last_offset_delta=2)).error == "INVALID_RECORD"
    assert refusal(resealed(batch(2), last_offset_delta=-1)).error == "INVALID_RECORD"
    assert refusal(resealed(batch(1), count=0, last_offset_delta=0)).error == "INVALID_RECORD"
    assert refusal(resealed(batch(1), count=-1)).error == "INVALID_RECORD"


@pytest.mark.parametrize("count", [1, 3])
def test_a_count_that_the_records_do_not_bear_out_is_invalid(count: int) -> None:
    assert refusal(resealed(batch(2), count=count, last_offset_delta=count - 1)).error == "INVALID_RECORD"


def test_records_that_do_not_fit_their_batch_are_invalid() -> None:
    data = batch([b"some value"])
    data[61] += 2  # the record's length
    assert refusal(reseal(data)).error == "INVALID_RECORD"


def test_clients_may_not_write_markers() -> None:
    assert refusal(marker(commit=True)).error == "INVALID_RECORD"
    assert judged(marker(commit=True), Origin.COORDINATOR) is not None


def test_an_idempotent_batch_has_a_sequence() -> None:
    assert refusal(batch(producer_id=7, producer_epoch=0)).error == "INVALID_RECORD"


def test_a_compressed_block_that_is_none_is_an_unknown_error_that_is_not_retried() -> None:
    data = batch([b"x" * 100], codec=compression.GZIP)
    data[61] ^= 0xFF
    assert refusal(reseal(data)).error == "UNKNOWN_SERVER_ERROR"
    assert refusal(resealed(batch(), attributes=7)).error == "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize(
    ("record", "count"),
    [
        # Ten million records, all with offset 0; one, with a wrong offset, of five million nameless headers.
        (b"\x0c\0\0\0\1\1\0", 10_000_000),
        (b"".join(map(zigzag, (10_000_009, 0, 0, 1, -1, -1, 5_000_000))) + b"\0\1" * 5_000_000, 1),
    ],
    ids=["records", "headers"],
)
def test_what_unpacks_to_millions_is_not_looked_at_one_by_one(record: bytes, count: int) -> None:
    data = bytearray(batch(1)[:BATCH_HEADER_BYTES]) + compression.compress(4, record * count)
    struct.pack_into(">i", data, 8, len(data) - 12)
    whole = resealed(memoryview(data), attributes=4, last_offset_delta=count - 1, count=count)
    tracemalloc.start()
    try:
        refused = refusal(whole, compression_type="gzip")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.error == "MESSAGE_TOO_LARGE"
    assert peak_bytes < 300_000_000


def test_so_many_records_are_written_anew_only_where_none_is_looked_at_by_itself() -> None:
    count = 150_000
    records = [RecordData(offset, NOW_MS, None, None) for offset in range(count)]
    many = build_batch(records, BatchFields(codec=compression.ZSTD))
    assert taken(many, compression_type="gzip").lastOffsetDelta == count - 1
    assert refusal(many, cleanup_policy="compact").error == "MESSAGE_TOO_LARGE"
    far = {"message_timestamp_before_max_ms": "1", "message_timestamp_after_max_ms": "1"}
    late = build_batch([record._replace(timestamp=1) for record in records], BatchFields(codec=4))
    assert refusal(late, **far).error == "MESSAGE_TOO_LARGE"


def test_a_compacted_topic_takes_no_record_without_a_key_and_says_which_lack_one() -> None:
    keyless = refusal(batch(2, key=None), cleanup_policy="compact")
    assert keyless.error == "INVALID_RECORD"
    assert [error.record_index for error in keyless.record_errors] == [0, 1]
    assert taken(batch(2, key=b""), cleanup_policy="compact").recordCount == 2


@pytest.mark.parametrize("codec", range(5))
def test_every_timestamp_must_lie_within_its_limits(codec: int) -> None:
    early, late = batch(timestamp=NOW_MS - 2 * DAY_MS, codec=codec), batch(timestamp=NOW_MS + 2, codec=codec)
    for data, limit in (
        (early, {"message_timestamp_before_max_ms": str(DAY_MS)}),
        (late, {"message_timestamp_after_max_ms": "1"}),
    ):
        refused = refusal(data, **limit)
        assert (refused.error, [e.record_index for e in refused.record_errors]) == ("INVALID_TIMESTAMP", [0])
        assert taken(data).recordCount == 1
    assert (
        taken(batch(timestamp=NOW_MS - DAY_MS), message_timestamp_before_max_ms=str(DAY_MS)).recordCount == 1
    )
    assert taken(batch(timestamp=-1), message_timestamp_before_max_ms="1").recordCount == 1


def test_limits_of_timestamps_do_not_bind_where_the_broker_stamps() -> None:
    limits = {"message_timestamp_before_max_ms": "1", "message_timestamp_type": "LogAppendTime"}
    assert taken(batch(timestamp=5), **limits).maxTimestamp == NOW_MS


def test_a_producer_may_not_claim_log_append_time() -> None:
    claimed = resealed(batch(2), attributes=8)
    assert refusal(claimed, message_timestamp_type="LogAppendTime").error == "INVALID_TIMESTAMP"
    assert refusal(resealed(batch(timestamp=-1), attributes=8)).error == "INVALID_TIMESTAMP"
    # With CreateTime Kafka's check looks at the time only, and the type is set right.
    assert taken(claimed).attributes.timestampType == "CreateTime"


def test_offsets_and_leader_epoch_are_patched_without_a_new_checksum() -> None:
    data = batch(3)
    crc = bytes(data[17:21])
    kept = taken(data)
    assert (kept.baseOffset, kept.lastOffsetDelta, kept.partitionLeaderEpoch) == (100, 2, 5)
    valid = judged(data)
    assert valid is not None
    assert (valid.first_offset, valid.last_offset, valid.log_append_time_ms) == (100, 102, -1)
    assert valid.data is data
    assert bytes(data[17:21]) == crc


def test_a_wrong_maximum_timestamp_is_set_right() -> None:
    assert taken(resealed(batch(2), max_timestamp=5)).maxTimestamp == NOW_MS
    assert taken(resealed(batch(timestamp=-7), max_timestamp=-7)).maxTimestamp == -1


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_stamps_the_batch(codec: int) -> None:
    data = batch(2, timestamp=5, codec=codec)
    kept = taken(data, message_timestamp_type="LogAppendTime")
    assert (kept.maxTimestamp, kept.attributes.timestampType) == (NOW_MS, "LogAppendTime")
    assert kept.baseTimestamp == 5
    valid = judged(data, message_timestamp_type="LogAppendTime")
    assert valid is not None
    assert (valid.log_append_time_ms, valid.max_timestamp) == (NOW_MS, NOW_MS)


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_stored_in_the_topic_s_codec(source: int, target: str) -> None:
    data = idempotent(3, 4, codec=source, is_transactional=True)
    kept = taken(data, compression_type=target)
    names = {"producer": compression.CODEC_NAMES[source], "uncompressed": "none"}
    assert kept.attributes.codec == names.get(target, target)
    assert (kept.baseOffset, kept.partitionLeaderEpoch, kept.maxTimestamp) == (100, 5, NOW_MS)
    assert (kept.producerId, kept.producerEpoch, kept.baseSequence) == (7, 0, 3)
    assert kept.attributes.isTransactional
    assert [record.value for record in record_batch.records(kept)] == [b"v0", b"v1", b"v2", b"v3"]


def test_a_level_of_the_topic_s_codec_is_used() -> None:
    data = bytes(batch([bytes(range(256)) * 40]))
    sizes = {
        level: taken(data, compression_type="gzip", compression_gzip_level=level).batchLength
        for level in ("1", "9")
    }
    assert sizes["9"] < sizes["1"]


def test_markers_are_stored_as_they_came() -> None:
    valid = judged(marker(commit=True), Origin.COORDINATOR, compression_type="zstd")
    assert valid is not None
    assert record_batch.parse(bytes(valid.data)).attributes.codec == "none"


def test_a_batch_that_grows_too_large_in_the_topic_s_codec_is_refused() -> None:
    data = bytes(batch([b"x" * 5000], codec=compression.GZIP))
    assert refusal(data, compression_type="uncompressed", max_message_bytes="1000").error == (
        "MESSAGE_TOO_LARGE"
    )


def test_compressed_records_that_do_not_count_up_are_written_anew_in_another_codec_only() -> None:
    records = [record_batch.records(record_batch.parse(bytes(batch(3))))[n] for n in range(3)]
    records[1].offsetDelta = 5
    sealed = record_batch.parse(bytes(batch(3, codec=compression.GZIP)))
    sealed.records = record_batch.close_block(sealed, record_batch.build_records(records))
    data = record_batch.build(record_batch.sealed(sealed))
    kept = taken(data, compression_type="lz4")
    assert [record.offsetDelta for record in record_batch.records(kept)] == [0, 1, 2]
    assert refusal(data).error == "UNKNOWN_SERVER_ERROR"
    assert refusal(data, compression_type="gzip").error == "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize(
    "fields",
    [
        {"timestamp": -2},
        {"is_transactional": True},
        {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": -1},
    ],
)
def test_what_kafka_s_builder_does_not_take_stays_as_it_came_but_is_not_written_anew(
    fields: dict[str, int],
) -> None:
    data = bytes(batch(**fields))
    assert taken(data).recordCount == 1
    assert refusal(data, compression_type="gzip").error == "UNKNOWN_SERVER_ERROR"


def test_a_maximum_timestamp_is_never_below_none() -> None:
    assert taken(batch(timestamp=-2)).maxTimestamp == -1
    assert taken(batch(timestamp=-1)).maxTimestamp == -1


def test_a_codec_that_does_not_exist_is_told_before_other_faults() -> None:
    for data in (resealed(batch(), attributes=0x27), resealed(batch(), attributes=7, count=9)):
        assert refusal(data).error == "UNKNOWN_SERVER_ERROR"
        assert refusal(bytes(data) + bytes(batch())).error == "UNKNOWN_SERVER_ERROR"


@given(strategies.messages(0) | strategies.messages(1))
def test_messages_of_magic_0_and_1_become_a_batch(message: object) -> None:
    body = message.body
    data = message_set.build(message)
    if body.attributes.timestampType == "LogAppendTime":
        if body.timestamp == -1:
            assert refusal(data).error == "INVALID_TIMESTAMP"
        return
    kept = taken(data)
    (record,) = record_batch.records(kept)
    assert (record.key, record.value) == (body.key, body.value)
    assert kept.maxTimestamp == (-1 if body.magic == 0 else body.timestamp)
    assert (kept.magic, kept.baseOffset, kept.producerId) == (2, 100, -1)


@pytest.mark.parametrize("magic", [0, 1])
@given(data_=st.data())
def test_compressed_messages_of_magic_0_and_1_become_a_batch(magic: int, data_: st.DataObject) -> None:
    wrapper = data_.draw(strategies.wrapped_messages(magic))
    data = message_set.build(wrapper)
    inner = message_set.inner(wrapper)
    if any(m.body.attributes.timestampType == "LogAppendTime" for m in inner):
        return
    kept = taken(data)
    assert kept.attributes.codec == wrapper.body.attributes.codec
    values = [record.value for record in record_batch.records(kept)]
    assert values == [m.body.value for m in inner]


def message(
    magic: int,
    offset: int = 0,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp: int = NOW_MS,
    time_type: str = "CreateTime",
    codec: str = "none",
) -> bytes:
    """One message of magic 0 or 1; with a codec, `value` is the block of a compressed set."""
    attributes = message_set.c.Container(unused=0, timestampType=time_type, codec=codec)
    values = {"magic": magic, "timestamp": timestamp if magic else None, "key": key, "value": value}
    return message_set.build(message_set.sealed(offset, {**values, "attributes": attributes}))


def compressed(magic: int, *inner: bytes, offset: int = 0, **fields: Any) -> bytes:
    """A gzip wrapper around messages."""
    block = compression.compress(compression.GZIP, b"".join(inner), magic=magic)
    return message(magic, offset, key=None, value=block, codec="gzip", **fields)


def test_several_uncompressed_messages_enter_as_one_batch() -> None:
    kept = taken(message(1, 0, value=b"0") + message(1, 1, value=b"1"))
    assert [record.value for record in record_batch.records(kept)] == [b"0", b"1"]
    assert refusal(message(0, 0) + message(1, 1)).error == "INVALID_RECORD"


def test_a_bad_message_is_told_before_one_of_another_magic_after_it() -> None:
    assert refusal(message(1, timestamp=0) + message(0), message_timestamp_before_max_ms="5").error == (
        "INVALID_TIMESTAMP"
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_another_magic_than_their_set_are_invalid_and_named(magic: int) -> None:
    inner = [message(magic, 0), message(1 - magic, 1), message(1 - magic, 2, key=None)]
    refused = refusal(compressed(magic, *inner, offset=2), cleanup_policy="compact")
    assert refused.error == "INVALID_RECORD"
    assert [record.record_index for record in refused.record_errors] == [1, 2]
    # No checksum of theirs is looked at then.
    damaged = bytearray(inner[1])
    damaged[-1] ^= 1
    assert refusal(compressed(magic, inner[0], bytes(damaged), offset=1)).error == "INVALID_RECORD"


def test_magic_0_has_no_types_of_timestamps() -> None:
    assert taken(message(0, time_type="LogAppendTime")).maxTimestamp == -1
    assert taken(compressed(0, message(0), time_type="LogAppendTime")).recordCount == 1
    assert refusal(message(1, time_type="LogAppendTime", timestamp=-1)).error == "INVALID_TIMESTAMP"


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_set_has_a_block_in_a_codec_of_its_time(magic: int) -> None:
    assert refusal(message(magic, value=None, codec="gzip")).error == "INVALID_RECORD"
    block = compression.compress(compression.ZSTD, message(magic))
    assert refusal(message(magic, value=block, codec="zstd")).error == "INVALID_RECORD"


def test_messages_with_negative_times_cannot_be_converted() -> None:
    assert refusal(message(1, timestamp=-3)).error == "UNKNOWN_SERVER_ERROR"
    assert taken(message(1, timestamp=-1)).maxTimestamp == -1


@given(data=strategies.damaged(strategies.segments(max_entries=2)))
def test_damaged_input_is_refused_or_stored_whole(data: bytes) -> None:
    refused = None
    valid = None
    try:
        valid = judged(memoryview(bytearray(data)))
    except AppendError as error:
        refused = error.error
    assert refused in (None, "CORRUPT_MESSAGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "UNKNOWN_SERVER_ERROR")
    assert valid is None or record_batch.parse(bytes(valid.data)).baseOffset == 100


def test_more_than_a_segment_is_refused_and_nothing_written(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"segment.bytes": "200"})
    with pytest.raises(AppendError) as refused:
        append(log, batch([b"x" * 200]))
    assert refused.value.error == "RECORD_LIST_TOO_LARGE"
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_appends_follow_one_another_in_the_file(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    infos = [append(log, batch(n), epoch=n) for n in (1, 2, 3)]
    assert [(info.first_offset, info.last_offset) for info in infos] == [(0, 0), (1, 2), (3, 5)]
    assert [(b.baseOffset, b.partitionLeaderEpoch) for b in stored(log)] == [(0, 1), (1, 2), (3, 3)]
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 1), (3, 3)]
