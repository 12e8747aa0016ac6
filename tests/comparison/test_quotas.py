"""Quotas throttle clients of klog as they throttle those of Kafka 3.9.1; either obeys what the other wrote.

Both brokers get the same requests at the same moments. Each request has a connection of its own, because that
of a throttled one is not read for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from tests.comparison.brokers import CONFIG, both_brokers
from tests.comparison.messages import Ask, Ids, Part
from tests.comparison.pair import Connection, Pair
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.swap.clients import Admin
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

# No request of the first ten is near the end of a window, where rates jump.
PAUSE_S = 0.3
MOST_REQUESTS = 10
TOPIC = "t2"
APART = 0.2  # of the larger throttle time
CLOSE_MS = 60  # what lies between two brokers that are asked at the same moment, for short throttle times


class Sent(NamedTuple):
    """A request, ready to be sent to any broker."""

    ask: Ask
    body: bytes


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(kafka3, tmp_path_factory.mktemp("quotas")) as opened:
        yield opened


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[Pair]:
    with closing(Pair(*ports)) as opened:
        yield opened


def alter(entity: dict[str, str | None], *, validate_only: bool = False, **ops: float | None) -> Ask:
    parts = tuple(
        Part("EntityData", {"entity_type": kind, "entity_name": name}) for kind, name in entity.items()
    )
    changes = tuple(
        Part("OpData", {"key": key, "value": value or 0.0, "remove": value is None})
        for key, value in ops.items()
    )
    entry = Part("EntryData", {"entity": parts, "ops": changes})
    return Ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": (entry,), "validate_only": validate_only})


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Ask:
    parts = tuple(
        Part("ComponentData", {"entity_type": kind, "match_type": match, "match": name})
        for kind, match, name in components
    )
    return Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": parts, "strict": strict})


# -- requests about quotas -----------------------------------------------------------------------------------


def test_changes_of_quotas_are_answered_alike(pair: Pair) -> None:
    for change in (
        alter({"user": "a"}, producer_byte_rate=1024, request_percentage=12.5),
        alter({"user": None}, consumer_byte_rate=2048),
        alter({"client-id": "c/1"}, controller_mutation_rate=1e7),
        alter({"client-id": None}, producer_byte_rate=0),
        alter({"user": "a", "client-id": "c/1"}, producer_byte_rate=7),
        alter({"user": "<default>"}, producer_byte_rate=8),
        alter({"ip": "127.0.0.9"}, connection_creation_rate=1000),
        alter({"ip": None}, connection_creation_rate=1000),
        alter({"user": "gone"}, producer_byte_rate=None),
        alter({"user": "b"}, validate_only=True, producer_byte_rate=1),
        alter({"user": "a"}, nope=1),
        alter({"user": "a"}, connection_creation_rate=1),
        alter({"user": "a"}, producer_byte_rate=1.5),
        alter({"user": "a"}, producer_byte_rate=-1),
        alter({"user": "a"}, producer_byte_rate=float("inf")),
        alter({"user": "a"}, producer_byte_rate=float("nan")),
        alter({"ip": "127.0.0.9"}, connection_creation_rate=2.0**31),
        alter({"ip": "no such host."}, connection_creation_rate=1),
        alter({"ip": "127.0.0.9", "user": "a"}, producer_byte_rate=1),
        alter({}, producer_byte_rate=1),
        alter({"user": ""}, producer_byte_rate=1),
        alter({"foo": "x"}, producer_byte_rate=1),
    ):
        pair.ask(change)


def test_quotas_are_described_alike(pair: Pair) -> None:
    test_changes_of_quotas_are_answered_alike(pair)
    for question in (
        describe(),
        describe(strict=True),
        *(
            describe((kind, match, name if match == 0 else None), strict=strict)
            for kind, name in (("user", "a"), ("client-id", "c/1"), ("ip", "127.0.0.9"), ("user", "none"))
            for match in (0, 1, 2)
            for strict in (False, True)
        ),
        describe(("user", 2, None), ("client-id", 2, None)),
        describe(("user", 2, None), ("user", 1, None)),
        describe(("user", 2, None), ("ip", 1, None)),
        describe(("foo", 2, None)),
        describe(("", 2, None)),
    ):
        pair.ask(question)
    # The next test begins without quotas.
    for entity in ({"user": "a"}, {"user": None}, {"client-id": "c/1"}, {"client-id": None}):
        pair.ask(alter(entity, **dict.fromkeys(("producer_byte_rate", "request_percentage"))))
        pair.ask(alter(entity, **dict.fromkeys(("consumer_byte_rate", "controller_mutation_rate"))))
    pair.ask(alter({"user": "a", "client-id": "c/1"}, producer_byte_rate=None))
    pair.ask(alter({"user": "<default>"}, producer_byte_rate=None))
    assert len(pair.ask(describe(("ip", 2, None)))["entries"]) == 2
    assert len(pair.ask(describe())["entries"]) == 2


# -- throttle times ------------------------------------------------------------------------------------------


def played(ports: Sequence[int], client_id: str, requests: Sequence[Sent]) -> list[list[Any]]:
    """The answers of each broker, request by request."""
    assert len(requests) <= MOST_REQUESTS
    found: list[list[Any]] = [[] for _ in ports]
    begin_s = time.monotonic()
    for number, (ask, body) in enumerate(requests):
        connections = [Connection(port, client_id) for port in ports]
        time.sleep(max(0, begin_s + number * PAUSE_S - time.monotonic()))
        for connection in connections:
            connection.send(ask, body)
        for connection, answers in zip(connections, found, strict=True):
            answer = None
            while answer is None:
                answer = connection.receive()
            answers.append(answer)
            connection.close()
    return found


def throttle_ms(answer: Any) -> int:
    time_of = getattr(answer, "throttle_time", None)
    return answer.throttle_time_ms if time_of is None else time_of // timedelta(milliseconds=1)


def agreed_throttle_times(answers: Sequence[Sequence[Any]]) -> list[int]:
    """The throttle times of both brokers, which are close to each other."""
    kafka, klog = ([throttle_ms(each) for each in of_broker] for of_broker in answers)
    apart = [
        (ours, theirs)
        for ours, theirs in zip(klog, kafka, strict=True)
        if abs(ours - theirs) > max(CLOSE_MS, APART * max(ours, theirs))
    ]
    assert not apart, f"klog {klog}\nKafka {kafka}"
    return kafka


def produced(size_bytes: int) -> Sent:
    batch = build_batch([RecordData(0, 1_700_000_000_000, b"k", os.urandom(size_bytes))], BatchFields())
    topics = [(TOPIC, [(0, memoryview(batch))])]
    body = b"".join(encode_produce_request(9, ProduceRequest(None, 1, 30_000, topics)))
    return Sent(Ask(ApiKey.PRODUCE, 9, {}), body)


def fetched(max_bytes: int) -> Sent:
    part = FetchPartition(0, -1, 0, -1, -1, max_bytes)
    body = encode_fetch_request(12, FetchRequest(0, 0, 1 << 30, 0, [FetchTopic(TOPIC, None, [part])]))
    return Sent(Ask(ApiKey.FETCH, 12, {}), bytes(body))


def created(version: int, name: str, partitions: int) -> Sent:
    topic = Part(
        "CreatableTopic",
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": (),
        },
    )
    ask = Ask(
        ApiKey.CREATE_TOPICS,
        version,
        {"topics": (topic,), "timeout": timedelta(seconds=10), "validate_only": False},
    )
    return Sent(ask, Ids().body(ask))


def limited(pair: Pair, client_id: str, **limits: float) -> None:
    """Gives a client a quota; it holds a moment after the answer."""
    pair.ask(alter({"client-id": client_id}, **limits))
    time.sleep(0.3)


def test_producers_are_throttled_alike(pair: Pair, ports: tuple[int, int]) -> None:
    limited(pair, "producer", producer_byte_rate=10_000)
    answers = played(ports, "producer", [produced(20_000)] * 10)
    kafka = agreed_throttle_times(answers)
    assert kafka[:5] == [0, 0, 0, 0, 0]
    assert kafka[-1] > 8000
    assert all(not each.topics[0][1][0].error_code for of_broker in answers for each in of_broker)


def test_consumers_are_throttled_alike_and_get_the_same_records(pair: Pair, ports: tuple[int, int]) -> None:
    for answer in played(ports, "unlimited", [produced(20_000)] * 4):
        assert [throttle_ms(each) for each in answer] == [0, 0, 0, 0]
    limited(pair, "consumer", consumer_byte_rate=10_000)
    requests = [fetched(each) for each in (40_000, 40_000, 30_000, 1, 60_000, 1, 200_000, 1, 1, 1)]
    answers = played(ports, "consumer", requests)
    kafka, klog = (
        [sum(len(part.records or b"") for topic in each.topics for part in topic.partitions) for each in of]
        for of in answers
    )
    assert klog == kafka
    assert 0 in kafka
    assert sum(each > 0 for each in kafka) > 2
    assert any(agreed_throttle_times(answers))


@pytest.mark.parametrize("version", [4, 7])
def test_creators_of_topics_are_throttled_alike(pair: Pair, ports: tuple[int, int], version: int) -> None:
    limited(pair, f"creator{version}", controller_mutation_rate=2)
    requests = [created(version, f"created-{version}-{number}", 9) for number in range(6)]
    answers = played(ports, f"creator{version}", requests)
    kafka, klog = ([each.topics[0].error_code for each in of_broker] for of_broker in answers)
    assert klog == kafka
    assert (ErrorCode.THROTTLING_QUOTA_EXCEEDED in kafka) == (version == 7)
    assert any(agreed_throttle_times(answers))


def test_request_time_throttles_for_a_second_alike(pair: Pair, ports: tuple[int, int]) -> None:
    limited(pair, "busy", request_percentage=0.000001)
    ask = Ask(ApiKey.LIST_GROUPS, 4, {"states_filter": ()})
    answers = played(ports, "busy", [Sent(ask, Ids().body(ask))] * 3)
    assert agreed_throttle_times(answers) == [1000, 1000, 1000]


def test_a_throttled_connection_is_not_read_for_that_time(pair: Pair, ports: tuple[int, int]) -> None:
    limited(pair, "muted", producer_byte_rate=20_000)
    for port in ports:
        connection = Connection(port, "muted")
        ask, body = produced(220_000)
        connection.send(ask, body)
        answer = _received(connection)
        begin_s = time.monotonic()
        assert 900 <= throttle_ms(answer) <= 1100
        connection.send(ask, produced(10).body)
        _received(connection)
        assert time.monotonic() - begin_s > 0.8 * throttle_ms(answer) / 1000
        connection.close()


def _received(connection: Connection) -> Any:
    answer = None
    while answer is None:
        answer = connection.receive()
    return answer


# -- one tree ------------------------------------------------------------------------------------------------


def test_kafka_and_klog_obey_what_the_other_wrote(kafka3: KafkaPeer, tmp_path: Path) -> None:
    with ZooKeeperBroker(tmp_path / "kafka", CONFIG, kafka3) as kafka:
        config = {**CONFIG, "broker.id": 1, "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}"}
        with KlogBroker(tmp_path / "klog", config) as klog:
            klog.start()
            Admin(kafka.bootstrap).create({"mixed": (2, {})})
            for writer, client_id in ((kafka.port, "by-kafka/1"), (klog.port, "by-klog/2")):
                entity: dict[str, str | None] = {"user": "ANONYMOUS", "client-id": client_id}
                _ask(writer, alter(entity, request_percentage=0))
                for obeying in (kafka.port, klog.port):
                    eventually(lambda port=obeying, name=client_id: _throttled(port, name) == 1000)
                    described = _ask(obeying, describe(("client-id", 0, client_id)))
                    assert [value.value for value in described.entries[0].values] == [0.0]
            for writer, client_id in ((klog.port, "by-kafka/1"), (kafka.port, "by-klog/2")):
                _ask(writer, alter({"user": "ANONYMOUS", "client-id": client_id}, request_percentage=None))
                for obeying in (kafka.port, klog.port):
                    eventually(lambda port=obeying, name=client_id: _throttled(port, name) == 0)
                    assert not _ask(obeying, describe(("client-id", 0, client_id))).entries
            klog.stop()


def _ask(port: int, ask: Ask, client_id: str = "admin") -> Any:
    connection = Connection(port, client_id)
    with closing(connection):
        connection.send(ask, Ids().body(ask))
        answer = _received(connection)
    assert not getattr(answer, "error_code", 0)
    return answer


def _throttled(port: int, client_id: str) -> int:
    return throttle_ms(_ask(port, Ask(ApiKey.LIST_GROUPS, 4, {"states_filter": ()}), client_id))
