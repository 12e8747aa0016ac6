"""Writes to and reads from any broker with real clients (librdkafka's), and remembers the records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

TIMEOUT_S: Final = 60
# librdkafka logs every connection that a broker closes to stderr.
_STATISTICS_MS: Final = 5_000
_SILENT: Final = {"log_level": 0, "error_cb": lambda error: None}


Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record as a client sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]


Written = dict[tuple[str, int], dict[int, Record]]


def _record(message: Message) -> Record:
    return Record(message.key(), message.value(), tuple(message.headers() or ()), tuple(message.timestamp()))


class Writer:
    """An idempotent producer that remembers the acknowledged records with their offsets."""

    def __init__(self, bootstrap: str, acknowledged: Written, **config: str | int) -> None:
        self.acknowledged = acknowledged
        self.refused: list[KafkaError] = []
        self._statistics = "{}"
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": TIMEOUT_S * 1000,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 2,
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self._counted,
                **_SILENT,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )

    def write(self, topic: str, value: bytes | None, key: bytes | None = None, headers: Headers = ()) -> None:
        # A delivery report does not contain the headers.
        report = partial(self._delivered, tuple(headers))
        deadline_s = time.monotonic() + 2 * TIMEOUT_S
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers), on_delivery=report)
            except BufferError:
                assert time.monotonic() < deadline_s, "no record is acknowledged or refused any more"
                self._producer.poll(0.05)
                continue
            self._producer.poll(0)
            return

    def _delivered(self, headers: Headers, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
            return
        offsets = self.acknowledged.setdefault((message.topic(), message.partition()), {})
        assert message.offset() not in offsets, "two records were acknowledged at one offset"
        offsets[message.offset()] = _record(message)._replace(headers=tuple(headers))

    def flush(self, timeout_s: float = TIMEOUT_S) -> int:
        """Waits for acknowledgements. Returns how many records still have none."""
        return int(self._producer.flush(timeout_s))

    def abandon(self) -> None:
        """Drops all records that are not acknowledged."""
        self._producer.purge(in_queue=True, in_flight=True)
        self._producer.flush(1)

    def finish(self, timeout_s: float = TIMEOUT_S) -> None:
        left = self.flush(timeout_s)
        assert left == 0, f"{left} records have no answer after {timeout_s} s. {self._waits()}"
        assert not self.refused, self.refused[0].str()

    def _counted(self, statistics: str) -> None:
        self._statistics = statistics

    def _waits(self) -> str:
        """Which leaders the client knows, and where requests wait."""
        known = json.loads(self._statistics)
        leaders = {
            f"{name}-{number}": (each["leader"], each["msgq_cnt"], each["xmit_msgq_cnt"])
            for name, topic in known.get("topics", {}).items()
            for number, each in topic["partitions"].items()
            if number != "-1"
        }
        brokers = {
            name: (each["state"], each["waitresp_cnt"]) for name, each in known.get("brokers", {}).items()
        }
        return f"Leaders and records in queues: {leaders}. Brokers and requests without answers: {brokers}"


@contextmanager
def consumer(bootstrap: str, isolation: str = "read_uncommitted") -> Iterator[Consumer]:
    """A consumer without a group: the caller assigns its partitions."""
    opened = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            **_SILENT,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def read(
    bootstrap: str, partitions: Iterable[tuple[str, int]], isolation: str = "read_uncommitted"
) -> Written:
    """Every record of the partitions, from the log start offset to the end that the consumer reaches."""
    found: Written = {}
    with consumer(bootstrap, isolation) as reader:
        waiting: set[tuple[str, int]] = set()
        assigned = []
        for topic, number in partitions:
            low, _ = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
            assigned.append(TopicPartition(topic, number, low))
            waiting.add((topic, number))
            found[topic, number] = {}
        reader.assign(assigned)
        deadline_s = time.monotonic() + TIMEOUT_S
        while waiting:
            assert time.monotonic() < deadline_s, f"not read to the end: {waiting}"
            for message in reader.consume(1000, 0.1):
                _take(message, found, waiting)
    return found


def _take(message: Message, found: Written, waiting: set[tuple[str, int]]) -> None:
    partition, error = (message.topic(), message.partition()), message.error()
    if error is None:
        offsets = found[partition]
        assert not offsets or message.offset() > next(reversed(offsets)), "offsets are not monotonic"
        offsets[message.offset()] = _record(message)
    elif error.code() == KafkaError._PARTITION_EOF:
        waiting.discard(partition)
    elif not error.retriable() and error.code() >= 0:
        raise KafkaException(error)


class Admin:
    """The admin client. Every call waits for its result."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap, **_SILENT})

    def create(
        self,
        topics: Mapping[str, tuple[int, Mapping[str, str]]],
        replicas: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Creates topics; `topics` has the number of partitions and the configs by name.

        `assignment` has the replicas of each partition; without it the controller chooses.
        """
        placed = (
            {"replication_factor": replicas} if assignment is None else {"replica_assignment": assignment}
        )
        new = [
            NewTopic(name, count, config=dict(config), **placed) for name, (count, config) in topics.items()
        ]
        self._all(self._client.create_topics(new, operation_timeout=TIMEOUT_S))

    def delete(self, topics: Sequence[str]) -> None:
        self._all(self._client.delete_topics(list(topics), operation_timeout=TIMEOUT_S))

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in before.items()]
        self._all(self._client.delete_records(wanted))

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._all(self._client.incremental_alter_configs([resource]))

    def own_configs(self, topic: str) -> dict[str, str]:
        """The configs that the topic itself sets, without defaults."""
        (future,) = self._client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        entries = future.result(TIMEOUT_S).values()
        return {entry.name: entry.value for entry in entries if not entry.is_default and entry.source == 1}

    def topics(self) -> set[str]:
        return set(self._client.list_topics(timeout=TIMEOUT_S).topics)

    def led(self) -> set[tuple[str, int]]:
        """The partitions that have a leader."""
        return {partition for partition, leader in self.leaders().items() if leader >= 0}

    def leaders(self) -> dict[tuple[str, int], int]:
        """The leader of each partition, -1 if it has none."""
        topics = self._client.list_topics(timeout=TIMEOUT_S).topics
        return {
            (name, number): partition.leader
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
        }

    def brokers(self) -> set[int]:
        """The brokers that the asked one knows."""
        return set(self._client.list_topics(timeout=TIMEOUT_S).brokers)

    def controller(self) -> int:
        """The controller's id, -1 if the broker knows none."""
        return int(self._client.list_topics(timeout=TIMEOUT_S).controller_id)

    def _all(self, futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(TIMEOUT_S)
