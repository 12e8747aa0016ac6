"""Fetch 0 to 3: klog's answers are those of Kafka 3.9.1, byte for byte where no compressor is involved.

Known difference, which the tests leave out: if nothing is left of the first batch that is read (a marker of a
transaction), Kafka sends the first records after it twice; klog sends them once.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import confluent_kafka
import pytest

import klog.testing
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import PartitionFetched, decode_fetch_response
from klog.protocol.messages import build, request_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.storage.cleaner.decoding import decode_one
from tests.peers.broker import SINGLE_BROKER, ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.server.handlers import test_create_topics as create
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

CONFIG = {**SINGLE_BROKER, "broker.id": 1, "log.message.timestamp.before.max.ms": 2**63 - 1}
TOPICS = {
    "plain": {},
    "gzip": {},
    "snappy": {},
    "lz4": {},
    "mixed": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "zstd": {},
    "to-zstd": {"compression.type": "zstd"},
    "refused": {"message.downconversion.enable": "false"},
    "transactions": {},
    "large": {},
    "empty": {},
}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
START_MS = 1_700_000_000_000
NO_LIMIT = 1 << 30
VERSIONS = range(4)


@dataclass
class Twins:
    """A connection to each of the two brokers, Kafka first."""

    channels: list[Channel]

    def produce(self, topic: str, *batches: bytes, version: int = 7) -> None:
        for batch in batches:
            request = ProduceRequest(None, -1, 30_000, [(topic, [(0, memoryview(batch))])])
            for channel in self.channels:
                body = channel.exchange(ApiKey.PRODUCE, version, encode_produce_request(version, request))
                ((_, (answer,)),) = decode_produce_response(version, body).topics
                assert answer.error_code == ErrorCode.NONE

    def fetch(self, version: int, *wanted: tuple[str, FetchPartition], **values: int) -> list[bytes]:
        """The bodies of both answers."""
        asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": NO_LIMIT, "isolation_level": 0, **values}
        topics = [FetchTopic(topic, None, [part]) for topic, part in wanted]
        body = [encode_fetch_request(version, FetchRequest(topics=topics, **asked))]
        return [bytes(channel.exchange(ApiKey.FETCH, version, body)) for channel in self.channels]


def wants(offset: int, max_bytes: int = 1 << 20, partition: int = 0) -> FetchPartition:
    return FetchPartition(partition, -1, offset, -1, -1, max_bytes)


def some_batch(chance: random.Random, codec: int, count: int) -> bytes:
    records = [
        RecordData(
            at,
            START_MS + chance.randrange(1000),
            chance.choice((None, b"", b"key")),
            chance.choice((None, b"", b"value" * chance.randrange(40))),
            ((b"header", b"x"),) if chance.random() < 0.3 else (),
        )
        for at in range(count)
    ]
    return bytes(build_batch(records, BatchFields(codec=codec)))


def some_batches(codecs: tuple[int, ...], number: int = 30) -> list[bytes]:
    chance = random.Random(7)
    return [some_batch(chance, chance.choice(codecs), chance.choice((1, 1, 3, 20))) for _ in range(number)]


def fill(twins: Twins) -> None:
    for codec in ("gzip", "snappy", "lz4"):
        twins.produce(codec, *some_batches((CODECS[codec],)))
    twins.produce("plain", *some_batches((0,)))
    twins.produce("mixed", *some_batches((0, 1, 2, 3), 60))
    twins.produce("stamped", *some_batches((0, 1)))
    twins.produce("zstd", *some_batches((0,), 5), *some_batches((4,), 2), *some_batches((0,), 5))
    twins.produce("to-zstd", *some_batches((0,), 3))
    twins.produce("refused", *some_batches((0,), 3))
    # Several chunks of 128 KiB, with batches that are larger than one.
    value = [RecordData(at, START_MS, None, random.Random(at).randbytes(1000)) for at in range(200)]
    large, small = bytes(build_batch(value)), bytes(build_batch(value[:30]))
    twins.produce("large", small, *[large, small] * 3)


def write_transactions(bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "writer", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for at in range(2):
            producer.produce("transactions", b"%d-%d" % (number, at), partition=0, timestamp=START_MS + at)
            producer.flush(60)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(60)


@pytest.fixture(scope="module")
def twins(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with (
        ZooKeeperBroker(tmp_path_factory.mktemp("kafka"), CONFIG, kafka3) as kafka,
        klog.testing.broker(CONFIG) as ours,
        Channel("127.0.0.1", kafka.port) as first,
        Channel("127.0.0.1", ours.ports["PLAINTEXT"]) as second,
    ):
        found = Twins([first, second])
        topics = [create.wanted(name, 1, 1, configs=configs) for name, configs in TOPICS.items()]
        request = build(request_class(ApiKey.CREATE_TOPICS, 7), **create.values(*topics))
        for channel in found.channels:
            assert {each.error_code for each in channel.send(request).topics} == {ErrorCode.NONE}
        fill(found)
        for bootstrap in (kafka.bootstrap, ours.bootstrap_servers):
            write_transactions(bootstrap)
        eventually(lambda: len({only_partition(0, body).high_watermark for body in ends(found)}) == 1)
        yield found


def ends(twins: Twins) -> list[bytes]:
    return twins.fetch(0, ("transactions", wants(10**6)))


def only_partition(version: int, body: bytes) -> PartitionFetched:
    (topic,) = decode_fetch_response(version, memoryview(body)).topics
    (partition,) = topic.partitions
    return partition


def content(records: memoryview, *, with_times: bool = True) -> list[tuple]:
    """The whole messages: (magic, codec, time type, wrapper's offset and time, inner messages)."""
    table, found = BatchTable(), []
    kernel.scan(records, 0, False, table)
    for row in range(len(table)):
        inner = RecordTable()
        payload = bytes(decode_one(records, table, row, inner))

        def span(start: int, size: int, payload: bytes = payload) -> bytes | None:
            return None if size < 0 else payload[start : start + size]

        messages = [
            (
                inner.offset[at],
                inner.timestamp[at] if with_times else None,
                inner.message_magic(at, payload),
                span(inner.key_start[at], inner.key_size[at]),
                span(inner.value_start[at], inner.value_size[at]),
            )
            for at in range(len(inner))
        ]
        time = table.max_timestamp[row] if with_times else None
        found.append((table.magic[row], table.attributes[row], table.last_offset[row], time, messages))
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["plain", "transactions", "large", "empty", "refused", "to-zstd", "zstd"])
def test_answers_without_compression_are_the_same_bytes(twins: Twins, topic: str, version: int) -> None:
    last = only_partition(0, twins.fetch(0, (topic, wants(0)))[0]).high_watermark
    offsets = {0, 1, 2, 3, 5, 6, 100, 229, 230, 400, last - 1, last, last + 1, -1}
    if topic == "transactions":
        offsets -= {2, 5, 8}  # markers: see above
    for offset in sorted(offsets):
        for max_bytes in (NO_LIMIT, 300_000, 131_072, 40_000, 1000, 100, 1, 0):
            kafka, ours = twins.fetch(version, (topic, wants(offset, max_bytes)))
            assert ours == kafka, (offset, max_bytes)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", ["gzip", "snappy", "lz4", "mixed", "stamped"])
def test_answers_with_compression_hold_the_same_messages(twins: Twins, topic: str, version: int) -> None:
    for offset in (0, 1, 2, 17, 40, 100):
        for max_bytes in (NO_LIMIT, 4000, 600, 61):
            bodies = twins.fetch(version, (topic, wants(offset, max_bytes)))
            kafka, ours = (only_partition(version, body) for body in bodies)
            assert ours._replace(records=None) == kafka._replace(records=None)
            messages = [content(each.records, with_times=topic != "stamped") for each in (kafka, ours)]
            # How many fit depends on the compressor.
            least = min(map(len, messages))
            assert max(map(len, messages)) - least <= 1
            assert messages[1][:least] == messages[0][:least]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_s_time_is_that_of_all_messages(twins: Twins, version: int) -> None:
    for body in twins.fetch(version, ("stamped", wants(0))):
        messages = content(only_partition(version, body).records)
        if version < 2:
            assert {(each[0], each[1] & 8, each[3]) for each in messages} == {(0, 0, -1)}
        else:
            assert {(each[0], each[1] & 8) for each in messages} == {(1, 8)}
            assert all({inner[1] for inner in each[4]} == {each[3]} for each in messages)
            assert min(each[3] for each in messages) > START_MS


@pytest.mark.parametrize("version", VERSIONS)
def test_sizes_of_several_partitions(twins: Twins, version: int) -> None:
    topics = ("plain", "large", "refused", "absent", "to-zstd", "transactions", "empty")
    for max_bytes in (0, 1, 500, 5000, 50_000, NO_LIMIT):
        for part_bytes in (0, 100, 3000, NO_LIMIT):
            asked = [(topic, wants(0, part_bytes)) for topic in topics]
            kafka, ours = twins.fetch(version, *asked, max_bytes=max_bytes)
            assert ours == kafka, (max_bytes, part_bytes)


@pytest.mark.parametrize("version", [*VERSIONS, 4, 11])
def test_negative_sizes_fail_the_read_of_records(twins: Twins, version: int) -> None:
    last = only_partition(0, twins.fetch(0, ("plain", wants(0)))[0]).high_watermark
    for offset in (0, 5, last, last + 1):
        for part_bytes in (-1, -(2**31)):
            kafka, ours = twins.fetch(version, ("plain", wants(offset, part_bytes)))
            assert ours == kafka, (offset, part_bytes)
            failed = only_partition(version, kafka).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert failed == (offset < last)
    for max_bytes in (-1, -1000):
        asked = [(topic, wants(0, part_bytes)) for topic in ("plain", "large") for part_bytes in (-5, 1000)]
        for topics in ([asked[0], asked[3]], [asked[1], asked[3]], [asked[1], asked[2]]):
            kafka, ours = twins.fetch(version, *topics, max_bytes=max_bytes)
            assert ours == kafka, (topics, max_bytes)


@pytest.mark.parametrize("version", range(3))
def test_a_first_batch_that_is_too_large_is_answered_without_waiting(twins: Twins, version: int) -> None:
    """Kafka counts the part of it that it could send, and klog must not make the consumer wait either."""
    for part_bytes in (1, 1000):
        kafka, ours = twins.fetch(version, ("large", wants(0, part_bytes)), max_wait_ms=25_000)
        assert ours == kafka
        assert only_partition(version, ours).records == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_served(twins: Twins, version: int) -> None:
    for topic, part in (
        ("absent", wants(0)),
        ("plain", wants(0, partition=7)),
        ("plain", wants(0, partition=-1)),
        ("refused", wants(10**6)),
        ("to-zstd", wants(10**6)),
    ):
        kafka, ours = twins.fetch(version, (topic, part))
        assert ours == kafka, (topic, part)


def test_markers_are_no_messages_and_nothing_is_sent_twice(twins: Twins) -> None:
    kafka, ours = (
        [each[2] for each in content(only_partition(3, body).records)]
        for body in twins.fetch(3, ("transactions", wants(2)))
    )
    assert ours == [3, 4, 6, 7, 9, 10]
    assert kafka == [3, *ours]


def test_only_markers_are_an_answer_that_is_noticed(twins: Twins) -> None:
    for version in VERSIONS:
        kafka, ours = twins.fetch(version, ("transactions", wants(11)))
        assert ours == kafka
        assert len(only_partition(version, ours).records) == struct.calcsize(">qi")
