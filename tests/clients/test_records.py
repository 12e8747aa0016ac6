"""Every client reads the records that every client wrote, with every codec and kind of timestamp."""

from __future__ import annotations

import time

import pytest

import klog
from tests.clients.python_clients import Refused, Sent
from tests.waiting import eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000


def stored_batches(broker, topic, partition=0):
    return list(klog.open(str(broker.partition_dir(topic, partition))).batches())


def contents(records):
    return [(record.key, record.value, record.headers) for record in records]


def some_records(count=100):
    return [
        Sent(b"value %d " % n + b"compressible " * 10, b"key %d" % n, (("number", b"%d" % n),))
        for n in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_are_stored_unchanged_and_every_client_reads_them(
    client, every_client, broker, new_topic, codec
):
    topic, records = new_topic(), some_records()
    assert client.write(topic, records, codec=codec) == list(range(100))
    assert {batch.codec for batch in stored_batches(broker, topic)} == {codec}
    for reader in every_client:
        found = reader.read(topic)
        assert contents(found) == contents(records), reader.name
        assert [record.offset for record in found] == list(range(100))


@pytest.mark.parametrize("codec", CODECS)
def test_a_topics_compression_type_overrides_the_producers(client, broker, new_topic, codec):
    wanted = "uncompressed" if codec == "none" else codec
    topic, records = new_topic(compression_type=wanted), some_records(20)
    client.write(topic, records, codec="lz4" if codec == "zstd" else "zstd")
    assert {batch.codec for batch in stored_batches(broker, topic)} == {codec}
    assert contents(client.read(topic)) == contents(records)


def test_null_and_empty_keys_and_values_are_different(client, every_client, new_topic):
    topic = new_topic()
    pairs = [(key, value) for key in (None, b"", b"key") for value in (None, b"", b"value")]
    records = [
        Sent(value, key) for key, value in pairs if client.sends_nothing or (key, value) != (None, None)
    ]
    client.write(topic, records)
    for reader in every_client:
        assert contents(reader.read(topic)) == contents(records), reader.name


def test_headers_keep_their_order_their_repetitions_and_null_values(every_client, new_topic):
    topic = new_topic()
    filled = (("b", b"1"), ("a", b""), ("b", b"2"), ("", b"no name"), ("\N{SNOWMAN}", b"\0"))
    written = []
    for writer in every_client:
        written.append((("none", None), *filled) if writer.sends_nothing else filled)
        writer.write(topic, [Sent(b"v", headers=written[-1])])
    for reader in every_client:
        assert [record.headers for record in reader.read(topic)] == written, reader.name


def test_create_time_is_the_producers(client, every_client, new_topic):
    topic = new_topic()
    client.write(topic, [Sent(b"v", timestamp_ms=1_600_000_000_000 + n) for n in range(3)])
    for reader in every_client:
        found = reader.read(topic)
        assert [record.timestamp_ms - 1_600_000_000_000 for record in found] == [0, 1, 2]
        assert {record.timestamp_type for record in found} == {0}


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_log_append_time_is_the_brokers(client, every_client, new_topic, codec):
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    client.write(topic, [Sent(b"v", timestamp_ms=1_600_000_000_000 + n) for n in range(3)], codec=codec)
    after_ms = int(time.time() * 1000)
    for reader in every_client:
        found = reader.read(topic)
        assert {record.timestamp_type for record in found} == {1}
        assert all(before_ms <= record.timestamp_ms <= after_ms for record in found)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_are_written_with_every_kind_of_acks(client, new_topic, acks):
    topic, records = new_topic(), some_records(20)
    client.write(topic, records, acks=acks)
    if acks == 0:  # nobody knows when they have arrived
        eventually(lambda: len(client.read(topic)) == 20)
    assert contents(client.read(topic)) == contents(records)


def test_an_idempotent_producer_sends_its_id(client, broker, new_topic):
    topic, records = new_topic(), some_records(20)
    client.write(topic, records, idempotent=True)
    batches = stored_batches(broker, topic)
    assert all(batch.producer_id >= 0 for batch in batches)
    assert next(batch.base_sequence for batch in batches) == 0
    assert contents(client.read(topic)) == contents(records)


def test_a_large_record_is_accepted_if_the_topic_allows_it(client, every_client, new_topic):
    topic = new_topic(max_message_bytes=20_000_000)
    large = bytes(range(256)) * 4 * 10_000
    client.write(topic, [Sent(large, b"large"), Sent(b"small")])
    for reader in every_client:
        assert [len(record.value) for record in reader.read(topic)] == [len(large), 5]


def test_a_record_larger_than_the_topic_allows_is_refused(client, new_topic):
    topic = new_topic(max_message_bytes=1000)
    with pytest.raises(Refused, match=r"^MESSAGE_TOO_LARGE$"):
        client.write(topic, [Sent(b"v" * 2000)])
    assert client.write(topic, [Sent(b"v" * 500)]) == [0]


def test_a_compacted_topic_refuses_records_without_a_key(client, new_topic):
    topic = new_topic(cleanup_policy="compact")
    name = "UNKNOWN" if "INVALID_RECORD" in client.no_names_for else "INVALID_RECORD"
    with pytest.raises(Refused, match=f"^{name}$"):
        client.write(topic, [Sent(b"v")])
    assert client.write(topic, [Sent(None, b"k")]) == [0]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_timestamps_out_of_bounds_are_refused(client, new_topic, codec):
    topic = new_topic(message_timestamp_before_max_ms=DAY_MS, message_timestamp_after_max_ms=DAY_MS)
    now_ms = int(time.time() * 1000)
    for wrong_ms in (now_ms - 2 * DAY_MS, now_ms + 2 * DAY_MS):
        with pytest.raises(Refused, match=r"^INVALID_TIMESTAMP$"):
            client.write(topic, [Sent(b"v", timestamp_ms=wrong_ms)], codec=codec)
    assert client.write(topic, [Sent(b"v", timestamp_ms=now_ms)], codec=codec) == [0]


def test_a_consumer_starts_at_any_offset(client, new_topic):
    topic = new_topic()
    client.write(topic, some_records(50))
    client.write(topic, some_records(50), codec="lz4")
    for start in (0, 1, 49, 50, 75, 99, 100):
        assert [record.offset for record in client.read(topic, start=start)] == list(range(start, 100))


def test_an_offset_out_of_range_is_an_error_or_resets_as_configured(client, new_topic):
    topic = new_topic()
    client.write(topic, some_records(10))
    with pytest.raises(Refused, match=r"^OFFSET_OUT_OF_RANGE$"):
        client.read(topic, start=1000)
    assert len(client.read(topic, start=1000, reset="earliest")) == 10


def test_read_committed_reads_all_that_no_transaction_wrote(client, new_topic):
    topic = new_topic()
    client.write(topic, some_records(10), idempotent=True)
    assert len(client.read(topic, isolation="read_committed")) == 10


def test_partitions_are_independent(client, new_topic):
    topic = new_topic(partitions=3)
    for partition in range(3):
        client.write(topic, [Sent(b"%d" % partition)], partition=partition)
    for partition in range(3):
        assert [record.value for record in client.read(topic, partition=partition)] == [b"%d" % partition]


def test_a_topic_is_created_by_writing_to_it(client, broker):
    topic = f"made-by-writing-{client.name}"
    assert client.write(topic, some_records(5), partition=1) == list(range(5))
    assert len(client.read(topic, partition=1)) == 5
