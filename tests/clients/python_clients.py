"""One interface for confluent-kafka, kafka-python and aiokafka, each used as its documentation says.

`write` sends records and waits for their offsets, or raises `Refused` with Kafka's name of the first error.
`read` reads a partition from an offset to the end that it has when reading starts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka

# Long enough for a busy machine; only a test that fails waits so long.
TIMEOUT_S = 60
_POLL_MS = 500


class Sent(NamedTuple):
    """A record to write; without a timestamp the client sets it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class Read(NamedTuple):
    """A record as a consumer got it; timestamp type 0: create time, 1: log append time, -1: it has none."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Refused(Exception):  # noqa: N818 (an outcome)
    """The broker's error by Kafka's name, as MESSAGE_TOO_LARGE."""


class Client(Protocol):
    """What the tests need of each client."""

    name: str
    sends_nothing: bool
    """Whether it can send records without key and value, and headers without a value."""
    no_names_for: frozenset[str]
    """Errors that it reports as UNKNOWN."""

    def write(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        partition: int = 0,
    ) -> list[int]: ...

    def read(
        self,
        topic: str,
        *,
        partition: int = 0,
        start: int = 0,
        isolation: str = "read_uncommitted",
        reset: str = "error",
    ) -> list[Read]: ...


class ConfluentKafka:
    """librdkafka."""

    name = "confluent-kafka"
    sends_nothing = True
    no_names_for = frozenset()

    def __init__(self, bootstrap: str, **config: object) -> None:
        self.config = {"bootstrap.servers": bootstrap, "log_level": 0, **config}

    def write(self, topic, records, *, codec="none", acks=-1, idempotent=False, partition=0):
        producer = confluent_kafka.Producer(
            {
                **self.config,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "message.max.bytes": 50_000_000,
                "delivery.timeout.ms": TIMEOUT_S * 1000,
            }
        )
        offsets, errors = [], []

        def delivered(error, message) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                errors.append(error)

        for record in records:
            extra = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            producer.produce(
                topic, record.value, record.key, partition, delivered, headers=list(record.headers), **extra
            )
        assert producer.flush(TIMEOUT_S) == 0, "records were left"
        if errors:
            raise Refused(_LIBRDKAFKA.get(errors[0].name(), errors[0].name()))
        return offsets

    def read(self, topic, *, partition=0, start=0, isolation="read_uncommitted", reset="error"):
        consumer = confluent_kafka.Consumer(
            {
                **self.config,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
            return list(_until_eof(consumer))
        finally:
            consumer.close()


_LIBRDKAFKA = {"MSG_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE", "_AUTO_OFFSET_RESET": "OFFSET_OUT_OF_RANGE"}


_TIMESTAMP_TYPES = {
    confluent_kafka.TIMESTAMP_NOT_AVAILABLE: -1,
    confluent_kafka.TIMESTAMP_CREATE_TIME: 0,
    confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: 1,
}


def _until_eof(consumer):
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "nothing came"
        if message.error() is not None:
            if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return
            raise Refused(_LIBRDKAFKA.get(message.error().name(), message.error().name()))
        kind, timestamp_ms = message.timestamp()
        yield Read(
            message.offset(),
            timestamp_ms,
            _TIMESTAMP_TYPES[kind],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )


def _error_name(error: Exception) -> str:
    """`MessageSizeTooLargeError` and `RecordTooLargeError` by Kafka's name of the error."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).upper()
    return {"MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE"}.get(words, words)


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    sends_nothing = False
    no_names_for = frozenset()

    def __init__(self, bootstrap: str, **config: object) -> None:
        self.config = {"bootstrap_servers": bootstrap, **config}

    def write(self, topic, records, *, codec="none", acks=-1, idempotent=False, partition=0):
        producer = kafka.KafkaProducer(
            **self.config,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=idempotent,
            linger_ms=20,
            max_request_size=50_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic, record.value, record.key, list(record.headers), partition, record.timestamp_ms
                )
                for record in records
            ]
            producer.flush(TIMEOUT_S)
            return [future.get(TIMEOUT_S).offset for future in futures]
        except kafka.errors.BrokerResponseError as error:
            raise Refused(_error_name(error)) from error
        finally:
            producer.close(timeout=TIMEOUT_S)

    def read(self, topic, *, partition=0, start=0, isolation="read_uncommitted", reset="error"):
        consumer = kafka.KafkaConsumer(
            **self.config,
            group_id=None,
            auto_offset_reset="none" if reset == "error" else reset,
            isolation_level=isolation,
            fetch_max_wait_ms=50,
        )
        where = kafka.TopicPartition(topic, partition)
        try:
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            consumer.seek(where, start)
            found = []
            while not found or found[-1].offset < end - 1:
                if consumer.position(where, timeout_ms=TIMEOUT_S * 1000) == end:
                    break
                # It waits for a record also if only the markers of transactions are left.
                found += map(_of_kafka_python, consumer.poll(_POLL_MS).get(where, ()))
            return found
        except kafka.errors.OffsetOutOfRangeError as error:
            raise Refused("OFFSET_OUT_OF_RANGE") from error
        finally:
            consumer.close()


def _of_kafka_python(message) -> Read:
    return Read(
        message.offset,
        message.timestamp,
        message.timestamp_type,
        message.key,
        message.value,
        tuple(message.headers or ()),
    )


class AioKafka:
    """aiokafka."""

    name = "aiokafka"
    sends_nothing = False
    no_names_for = frozenset({"INVALID_RECORD"})

    def __init__(self, bootstrap: str, **config: object) -> None:
        self.config = {"bootstrap_servers": bootstrap, **config}

    def write(self, topic, records, *, codec="none", acks=-1, idempotent=False, partition=0):
        async def run():
            producer = aiokafka.AIOKafkaProducer(
                **self.config,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == -1 else acks,
                enable_idempotence=idempotent,
                linger_ms=20,
                max_request_size=50_000_000,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        record.timestamp_ms,
                        list(record.headers),
                    )
                    for record in records
                ]
                await producer.flush()
                done = await asyncio.gather(*futures)
                return [] if acks == 0 else [each.offset for each in done]
            finally:
                await producer.stop()

        try:
            return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
        except aiokafka.errors.BrokerResponseError as error:
            raise Refused(_error_name(error)) from error

    def read(self, topic, *, partition=0, start=0, isolation="read_uncommitted", reset="error"):
        async def run():
            consumer = aiokafka.AIOKafkaConsumer(
                **self.config,
                group_id=None,
                auto_offset_reset="none" if reset == "error" else reset,
                isolation_level=isolation,
                fetch_max_wait_ms=50,
            )
            where = aiokafka.TopicPartition(topic, partition)
            await consumer.start()
            try:
                consumer.assign([where])
                end = (await consumer.end_offsets([where]))[where]
                consumer.seek(where, start)
                found = []
                while not found or found[-1].offset < end - 1:
                    if await consumer.position(where) == end:
                        break
                    batches = await consumer.getmany(where, timeout_ms=_POLL_MS)
                    found += [_of_kafka_python(message) for message in batches.get(where, ())]
                return found
            finally:
                await consumer.stop()

        try:
            return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
        except aiokafka.errors.OffsetOutOfRangeError as error:
            raise Refused("OFFSET_OUT_OF_RANGE") from error


CLIENTS = {each.name: each for each in (ConfluentKafka, KafkaPython, AioKafka)}
