"""The same sequences of requests about records to Kafka 3.9 and to klog get the same answers, over the wire.

Producers that send damaged, odd and good batches; consumers with and without sessions; lookups, deletions and
epochs. Compared is every field but texts for people, times that brokers stamp, ids, addresses and what a
compressor made. Seeded: a failure is found again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

import klog.testing
from klog.formats.checksums import crc32c
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import NOT_DIVERGING, FetchResponse, decode_fetch_response
from klog.protocol.messages import build, request_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import PartitionProduced, decode_produce_response
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.server.handlers import test_create_topics as create
from tests.server.handlers.parts import part_of
from tests.server.handlers.test_against_kafka import comparable

pytestmark = pytest.mark.kafka

CONFIG = {"broker.id": 1, "log.retention.ms": -1, "message.max.bytes": 20_000, "log.cleaner.enable": "false"}
TOPICS = {
    "plain": {},
    "keyed": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "old": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
    "short": {"segment.bytes": "3000", "max.message.bytes": "1000"},
    "zstd": {"compression.type": "zstd"},
}
PARTITIONS = 2
START_MS = 1_700_000_000_000
MAX_BYTES = 1 << 20
ANY = -1
OFFSETS_OF_HEADER = {"base": (0, "q"), "size": (8, "i"), "magic": (16, "b"), "attributes": (21, "h")}
OFFSETS_OF_HEADER |= {"delta": (23, "i"), "max_time": (35, "q"), "sequence": (53, "i"), "count": (57, "i")}
CRC_FROM, CRC_AT = 21, 17


class Twins:
    """A connection to each of the two brokers, and the topics' ids there."""

    def __init__(self, channels: list[Channel]) -> None:
        self.channels = channels
        self.ids: list[dict[str, UUID]] = []
        self.names: list[dict[UUID, str]] = []
        topics = [create.wanted(name, PARTITIONS, 1, configs=configs) for name, configs in TOPICS.items()]
        request = build(request_class(ApiKey.CREATE_TOPICS, 7), **create.values(*topics))
        for channel in channels:
            made = channel.send(request).topics
            assert {each.error_code for each in made} == {ErrorCode.NONE}
            self.ids.append({each.name: each.topic_id for each in made})
            self.names.append({each.topic_id: each.name for each in made})

    def agree(self, api: ApiKey, version: int, /, **values) -> None:
        request = build(request_class(api, version), **values)
        kafka, ours = (_without_times(comparable(channel.send(request))) for channel in self.channels)
        assert ours == kafka, (api, version, values)

    def produced(self, version: int, request: ProduceRequest) -> list[list[tuple]]:
        """What each answers, without the texts."""
        answers = []
        for channel in self.channels:
            body = channel.exchange(ApiKey.PRODUCE, version, encode_produce_request(version, request))
            response = decode_produce_response(version, body)
            answers.append(
                sorted(
                    (topic, *each[:3], each.log_append_time_ms > 0, each.log_start_offset, _bad(each))
                    for topic, partitions in response.topics
                    for each in partitions
                )
            )
        return answers

    def fetched(self, version: int, requests: list[FetchRequest]) -> list[FetchResponse]:
        return [
            decode_fetch_response(
                version, channel.exchange(ApiKey.FETCH, version, [encode_fetch_request(version, request)])
            )
            for channel, request in zip(self.channels, requests, strict=True)
        ]

    def told(self, side: int, response: FetchResponse) -> list[object]:
        return [
            (
                topic.name or self.names[side].get(topic.topic_id, topic.topic_id),
                [
                    # No aborted transactions may be an empty list or null: Kafka says this and that.
                    each._replace(
                        records=_batches(each.records), aborted_transactions=each.aborted_transactions or None
                    )
                    for each in topic.partitions
                ],
            )
            for topic in response.topics
        ]


def _bad(answer: PartitionProduced) -> list[int]:
    return [index for index, _ in answer.record_errors]


def _without_times(answer):
    if isinstance(answer, dict):
        # Times that brokers stamp are those of today; a test's own lie years back.
        today = answer.get("timestamp", ANY) > START_MS + 10**10
        return {
            key: None if key == "timestamp" and today else _without_times(each)
            for key, each in answer.items()
            if key not in ("last_timestamp", "error_message")
        }
    return [_without_times(each) for each in answer] if isinstance(answer, list) else answer


def _batches(records) -> list[tuple]:
    """The whole batches by what their headers say; times and bytes only where brokers leave them alone."""
    data, found = bytes(records or b""), []
    while len(data) >= 61:
        base, size = struct.unpack_from(">qi", data)
        if len(data) < size + 12:
            break
        epoch, magic, attributes, delta = struct.unpack_from(">ib4xhi", data, 12)
        untouched = not attributes & 0b1111
        found.append(
            (base, epoch, magic, attributes, delta, data[27 : size + 12] if untouched else data[43:61])
        )
        data = data[size + 12 :]
    return found


@pytest.fixture(scope="module")
def twins(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with (
        ZooKeeperBroker(tmp_path_factory.mktemp("kafka"), CONFIG, kafka3) as kafka,
        klog.testing.broker(CONFIG) as ours,
        Channel("127.0.0.1", kafka.port) as first,
        Channel("127.0.0.1", ours.ports["PLAINTEXT"]) as second,
    ):
        yield Twins([first, second])


def some_batch(chance: random.Random) -> bytes:
    """A batch as it should be, or with a field or two that should not be so; the checksum mostly fits."""
    count = chance.choice([1, 1, 2, 5])
    key = chance.choice([None, b"k", b"k", b"kk"])
    value = chance.choice([None, b"", b"v" * chance.choice([1, 100, 1200, 25_000])])
    records = [RecordData(index, START_MS + chance.randrange(10**6), key, value) for index in range(count)]
    fields = BatchFields(codec=chance.choice([0, 0, 0, 1, 2, 3, 4]))
    if chance.random() < 0.2:
        epoch, sequence = chance.choice([0, 0, 1]), chance.choice([0, 0, count, 5])
        fields = BatchFields(producer_id=chance.choice([3, 4]), producer_epoch=epoch, base_sequence=sequence)
    data = build_batch(records, fields)
    for _ in range(chance.choice([0, 0, 1, 2])):
        position, kind = chance.choice(list(OFFSETS_OF_HEADER.values()))
        struct.pack_into(f">{kind}", data, position, chance.choice([-1, 0, 1, 2, 3, 13, 16, 32, 60, 100]))
    if chance.random() < 0.9:
        struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[CRC_FROM:]))
    return bytes(data)


def some_records(chance: random.Random) -> bytes:
    data = some_batch(chance)
    kind = chance.randrange(20)
    if kind == 0:
        return data[: chance.randrange(len(data))]
    if kind == 1:
        return data + some_batch(chance)
    return data + chance.choice([b"\0", b"abc" * 9, data[:40]]) if kind == 2 else data


@pytest.mark.parametrize("seed", range(4))
def test_what_producers_send_is_judged_alike(twins: Twins, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        version = chance.choice([*range(3, 12), 9, 11])
        names = chance.sample([*TOPICS, "unknown", "a/b"], chance.choice([1, 1, 1, 2]))
        topics = [
            (name, [(index, memoryview(some_records(chance))) for index in chance.sample([0, 1, 7], 1)])
            for name in names
        ]
        acks = chance.choice([1, 1, 1, -1, -1, 2])
        kafka, ours = twins.produced(version, ProduceRequest(None, acks, 1000, topics))
        assert ours == kafka, (version, acks, topics)
    twins.agree(ApiKey.DESCRIBE_PRODUCERS, 0, topics=_all_partitions("TopicRequest", "partition_indexes"))


def _all_partitions(kind: str, field: str) -> tuple:
    return tuple(
        part_of(ApiKey.DESCRIBE_PRODUCERS, 0, kind, name=name, **{field: tuple(range(PARTITIONS))})
        for name in TOPICS
    )


def some_wants(chance: random.Random) -> FetchPartition:
    return FetchPartition(
        chance.choice([0, 0, 0, 1, 1, 7]),
        chance.choice([ANY, ANY, ANY, 0, 5]),
        chance.choice([0, 1, 3, 9, 30, 10**6, -1]),
        chance.choice([ANY, ANY, ANY, 0, 5]),
        ANY,
        chance.choice([0, 1, 500, MAX_BYTES]),
    )


def some_fetch(chance: random.Random, twins: Twins, version: int, session: list[int], epoch: int) -> list:
    """The same fetch for each broker."""
    limit = chance.choice([0, 1, 4000, MAX_BYTES])
    # How much of what a broker has compressed anew fits into a limit is the compressor's matter.
    topics = TOPICS.keys() - ({"zstd"} if version >= 10 or limit == 4000 else set())
    named = chance.sample([*sorted(topics), "unknown"], chance.choice([0, 1, 1, 2]) if epoch > 0 else 2)
    wanted = {
        name: list({each.partition: each for each in (some_wants(chance), some_wants(chance))}.values())
        for name in named
    }
    isolation = chance.choice([0, 1])
    return [
        FetchRequest(
            0,
            1,
            limit,
            isolation,
            [FetchTopic(name, twins.ids[side].get(name, UUID(int=9)), each) for name, each in wanted.items()],
            session[side],
            epoch,
        )
        for side in range(2)
    ]


@pytest.mark.parametrize("version", range(4, 18))
def test_what_consumers_fetch_is_told_alike(twins: Twins, version: int) -> None:
    chance = random.Random(version)
    session, epoch = [0, 0], -1
    diverged: set[object] = set()
    for _ in range(40):
        if version >= 7 and chance.random() < 0.2:
            epoch = chance.choice([0, 0, 0, -1, 77])
        requests = some_fetch(chance, twins, version, session, epoch)
        kafka, ours = twins.fetched(version, requests)
        told, expected = twins.told(1, ours), twins.told(0, kafka)
        if told != expected:
            told, expected = without_repeated(told, expected, diverged), by_partition(expected)
        assert (ours.error_code, told) == (kafka.error_code, expected), requests
        for topic, partitions in twins.told(0, kafka):
            for each in partitions:
                key = topic, each.partition
                (diverged.discard if each.diverging_epoch == NOT_DIVERGING else diverged.add)(key)
        assert bool(ours.session_id) == bool(kafka.session_id)
        if epoch < 0 or kafka.error_code or not kafka.session_id:
            session, epoch = [0, 0], -1
        else:
            session, epoch = [kafka.session_id, ours.session_id], epoch + 1


def by_partition(told):
    return [(topic, each) for topic, partitions in told for each in partitions]


def without_repeated(told, expected, diverged):
    """What klog tells, without what it tells again in a session after a diverging epoch and Kafka does not.

    A follower takes no high watermark from the answer with the diverging epoch.
    """
    theirs = {(topic, each.partition) for topic, each in by_partition(expected)}
    return [
        (topic, each)
        for topic, each in by_partition(told)
        if (topic, each.partition) in theirs
        or (topic, each.partition) not in diverged
        or each.error_code
        or each.records
    ]


@pytest.mark.parametrize("version", range(10))
def test_offsets_are_found_alike(twins: Twins, version: int) -> None:
    chance = random.Random(version)
    times = [-1, -2, -3, -4, -5, -6, 0, START_MS, START_MS + 500_000, START_MS + 10**6, 2**62]
    for _ in range(40):
        partitions = tuple(
            part_of(
                ApiKey.LIST_OFFSETS,
                version,
                "ListOffsetsPartition",
                partition_index=index,
                current_leader_epoch=chance.choice([ANY, ANY, 0, 5]),
                timestamp=chance.choice(times),
                max_num_offsets=chance.randint(-1, 3),
            )
            for index in chance.choices([0, 1, 7], k=2)
        )
        name = chance.choice([*TOPICS, "unknown"])
        topic = part_of(ApiKey.LIST_OFFSETS, version, "ListOffsetsTopic", name=name, partitions=partitions)
        twins.agree(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=chance.choice([ANY, ANY, -2, -3]),
            isolation_level=chance.choice([0, 1, 2]),
            topics=(topic,),
        )


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_alike(twins: Twins, version: int) -> None:
    chance = random.Random(version)
    for _ in range(15):
        partitions = tuple(
            part_of(
                ApiKey.DELETE_RECORDS,
                version,
                "DeleteRecordsPartition",
                partition_index=index,
                offset=chance.choice([-1, -2, 0, 1, 2, 10**6]),
            )
            for index in chance.choices([0, 1, 7], k=2)
        )
        name = chance.choice(["plain", "keyed", "unknown"])
        topic = part_of(
            ApiKey.DELETE_RECORDS, version, "DeleteRecordsTopic", name=name, partitions=partitions
        )
        twins.agree(ApiKey.DELETE_RECORDS, version, topics=(topic,), timeout=timedelta(seconds=60))


@pytest.mark.parametrize("version", range(SERVED[ApiKey.OFFSET_FOR_LEADER_EPOCH].min_version, 5))
def test_epochs_end_alike(twins: Twins, version: int) -> None:
    chance = random.Random(version)
    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    for _ in range(30):
        partition = part_of(
            api,
            version,
            "OffsetForLeaderPartition",
            partition=chance.choice([0, 1, 7]),
            current_leader_epoch=chance.choice([ANY, 0, 5]),
            leader_epoch=chance.choice([ANY, 0, 5]),
        )
        topic = part_of(
            api,
            version,
            "OffsetForLeaderTopic",
            topic=chance.choice([*TOPICS, "unknown"]),
            partitions=(partition,),
        )
        twins.agree(api, version, replica_id=chance.choice([ANY, -2]), topics=(topic,))
