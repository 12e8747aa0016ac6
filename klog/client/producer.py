"""Writes records to one topic in batches, with one request in flight per leader, and counts every outcome.

Rules: the protocol guide on Produce, KIP-98 (idempotence: producer id and sequences), KIP-467 (the answer
says which records of a batch were refused; the others are sent again), KIP-126 (a batch that is too large is
cut in two). A batch uses up sequence numbers only when it has been written, so a refused batch leaves no gap.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.client.admin import Resource, ResourceType, describe_configs
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.producer_id import NO_PRODUCER, ProducerId, new_producer_id
from klog.client.retry import Retry
from klog.client.transactions import Transaction
from klog.formats import compression
from klog.formats.constants import NO_LEADER, NO_SEQUENCE
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields, Headers, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import PartitionProduced, decode_produce_response

ALL_IN_SYNC: Final = -1
_BATCH_BYTES: Final = 512 << 10  # half of the size that brokers accept by default
_PENDING_BYTES: Final = 1 << 20
_RECORD_OVERHEAD_BYTES: Final = 16
_CREATION_TIMEOUT_MS: Final = 15_000  # for brokers that create topics by themselves
_MAYBE_CREATION_TIMEOUT_MS: Final = 3_000  # for brokers that do not say whether they do
_SEQUENCE_MASK: Final = (1 << 31) - 1
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to write. `acks` is 0, 1 or ALL_IN_SYNC; idempotence needs ALL_IN_SYNC."""

    codec: int = compression.NONE
    level: int | None = None
    acks: int = ALL_IN_SYNC
    idempotent: bool = True
    batch_bytes: int = _BATCH_BYTES


class Record(NamedTuple):
    """A record to write; `timestamp_ms` None means the time of sending."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Failure(NamedTuple):
    """Records that a broker refused, and the broker's error."""

    partition: int
    records: int
    error: RefusedError


@dataclass(slots=True)
class Delivered:
    """What has been written to one partition. With acks=0 the offsets are unknown: -1."""

    count: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class _Pending:
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class Producer:
    """Writes records to `topic`; `flush` sends what is pending. For one thread at a time.

    `choose` picks the partition of the next records without a key, at random for instance. With a
    `transaction`, all records belong to it until the caller ends it.
    """

    cluster: Cluster
    topic: str
    settings: ProducerSettings
    choose: Callable[[Sequence[int]], int]
    transaction: Transaction | None = None
    accepted: int = field(default=0, init=False)
    delivered: dict[int, Delivered] = field(default_factory=dict, init=False)
    failures: list[Failure] = field(default_factory=list, init=False)
    _pending: dict[int, _Pending] = field(default_factory=dict, init=False)
    _pending_bytes: int = field(default=0, init=False)
    _partitions: Sequence[int] = field(default=(), init=False)
    _sticky: int = field(default=-1, init=False)
    _producer: ProducerId = field(default=NO_PRODUCER, init=False)
    _sequences: dict[int, int] = field(default_factory=dict, init=False)

    @property
    def delivered_count(self) -> int:
        """How many records have been written."""
        return sum(partition.count for partition in self.delivered.values())

    @property
    def failed_count(self) -> int:
        """How many records brokers have refused."""
        return sum(failure.records for failure in self.failures)

    @property
    def unsettled_count(self) -> int:
        """How many records that `send` accepted have no known outcome."""
        return self.accepted - self.delivered_count - self.failed_count

    def open(self) -> None:
        """Find the topic's partitions. Raises UnknownTopicError, RefusedError, ChannelError."""
        retry: Retry | None = None
        while not self._partitions:
            try:
                self.cluster.refresh([self.topic], may_create=True)
                self._partitions = sorted(self.cluster.partitions(self.topic))
                if not self._partitions:
                    raise UnknownTopicError(f"topic {self.topic} has no partitions yet")
            except UnknownTopicError as error:
                retry = retry or self._retry_while_created(error)
                retry.failed(error)

    def _retry_while_created(self, error: UnknownTopicError) -> Retry:
        """How long to wait for a topic that brokers may be creating. Raises `error` if they create none."""
        created = creates_topics(self.cluster)
        if created is False:
            raise error
        timeout_ms = _CREATION_TIMEOUT_MS if created else _MAYBE_CREATION_TIMEOUT_MS
        return self.cluster.new_retry(min(timeout_ms, self.cluster.timeout_ms))

    def send(self, record: Record, partition: int | None = None) -> None:
        """Accept a record, to send it now or at `flush`. Raises what `flush` raises, UnknownTopicError."""
        if not self._partitions:
            self.open()
        chosen = self._partition_of(record.key) if partition is None else partition
        if partition is not None and partition not in self._partitions:
            raise UnknownTopicError(
                f"topic {self.topic} has {len(self._partitions)} "
                f"partition{'' if len(self._partitions) == 1 else 's'}, there is no {partition}"
            )
        pending = self._pending.setdefault(chosen, _Pending())
        size_bytes = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        pending.records.append(record)
        pending.size_bytes += size_bytes
        self._pending_bytes += size_bytes
        self.accepted += 1
        if pending.size_bytes >= self.settings.batch_bytes or self._pending_bytes >= _PENDING_BYTES:
            self.flush()

    def _partition_of(self, key: bytes | None) -> int:
        if key is not None:
            return partition_of_key(key, len(self._partitions))
        if self._sticky < 0:
            led = [
                number
                for number in self._partitions
                if self.cluster.leader(TopicPartition(self.topic, number)) != NO_LEADER
            ]
            self._sticky = self.choose(led or self._partitions)
        return self._sticky

    def flush(self) -> None:
        """Send everything that is pending and wait for the answers.

        `failures` lists what brokers refused. Raises ChannelError and ClientError if the cluster cannot be
        reached, or if partitions have no leader for too long; the outcome of the rest is then unknown.
        """
        waiting = {number: [pending.records] for number, pending in self._pending.items()}
        self._pending.clear()
        self._pending_bytes = 0
        self._sticky = -1
        retry = self.cluster.new_retry()
        while waiting:
            try:
                self._require_producer_id()
                before = self.unsettled_count
                self._send_first(waiting)
                if self.unsettled_count < before:
                    retry.succeeded()
            except (ClientError, ChannelError) as error:
                self.cluster.pause_and_refresh(error, [self.topic], retry)

    def _require_producer_id(self) -> None:
        if self.transaction is not None:
            if self.transaction.producer == NO_PRODUCER:
                self.transaction.open()
            self._producer = self.transaction.producer
        elif self.settings.idempotent and self._producer == NO_PRODUCER:
            self._producer = new_producer_id(self.cluster.any_connection())
            self._sequences.clear()

    def _send_first(self, waiting: dict[int, list[list[Record]]]) -> None:
        """Send the first batch of each partition to its leader; what has an outcome leaves `waiting`.

        Raises the last error that a retry may cure.
        """
        failure: KlogError | None = None
        led = self.cluster.by_leader(TopicPartition(self.topic, number) for number in waiting)
        for leader_id, partitions in led.items():
            try:
                answers = self._send_batches(leader_id, partitions, waiting)
            except (ClientError, ChannelError) as error:
                failure = error
                continue
            for answer in answers:
                failure = self._settle(answer, waiting) or failure
        if failure is not None:
            raise failure

    def _send_batches(
        self,
        leader_id: int,
        partitions: Sequence[TopicPartition],
        waiting: Mapping[int, Sequence[Sequence[Record]]],
    ) -> list[PartitionProduced]:
        connection = self.cluster.leader_connection(leader_id, partitions)
        if self.transaction is not None:
            self.transaction.add(partitions)
        numbers = [partition.partition for partition in partitions]
        batches = [(number, memoryview(self._batch(number, waiting[number][0]))) for number in numbers]
        timeout_ms = self.cluster.timeout_ms
        name = None if self.transaction is None else self.transaction.transactional_id
        request = ProduceRequest(name, self.settings.acks, timeout_ms, [(self.topic, list(batches))])
        topics = produce(connection, request, 2 * timeout_ms)
        return [answer for _, answers in topics for answer in answers]

    def _batch(self, partition: int, records: Sequence[Record]) -> bytearray:
        settings = self.settings
        now_ms = self.cluster.clock.wall_ms()
        fields = BatchFields(
            codec=settings.codec,
            level=settings.level,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequences.get(partition, 0) if settings.idempotent else NO_SEQUENCE,
            is_transactional=self.transaction is not None,
        )
        data = [
            RecordData(offset, now_ms if stamp is None else stamp, key, value, headers)
            for offset, (key, value, headers, stamp) in enumerate(records)
        ]
        return build_batch(data, fields)

    def _settle(
        self, answer: PartitionProduced, waiting: dict[int, list[list[Record]]]
    ) -> RefusedError | None:
        """Apply the answer of one partition; gives the error if the same batch must be sent again."""
        number, queue = answer.partition, waiting[answer.partition]
        records = queue[0]
        code = error_code(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._count(number, len(records), answer.base_offset)
            queue.pop(0)
        elif code in _TOO_LARGE and len(records) > 1:
            half = len(records) // 2
            queue[:1] = [records[:half], records[half:]]
        elif code.retriable:
            return RefusedError(f"writing to {self.topic}-{number}", code, message=answer.error_message)
        else:
            queue[:1] = self._refused(answer, code, records)
        if not queue:
            del waiting[number]
        return None

    def _count(self, partition: int, count: int, base_offset: int) -> None:
        delivered = self.delivered.setdefault(partition, Delivered())
        delivered.count += count
        if base_offset >= 0:
            if delivered.first_offset < 0:
                delivered.first_offset = base_offset
            delivered.last_offset = base_offset + count - 1
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) & _SEQUENCE_MASK

    def _refused(
        self, answer: PartitionProduced, code: ErrorCode, records: list[Record]
    ) -> list[list[Record]]:
        """Count the records that failed; gives the batches of those that must be sent again."""
        place = f"writing to {self.topic}-{answer.partition}"
        bad = {index: message for index, message in answer.record_errors if index < len(records)}
        if not bad:
            error = RefusedError(place, code, message=answer.error_message)
            self.failures.append(Failure(answer.partition, len(records), error))
            if code not in _TOO_LARGE:
                self._producer = NO_PRODUCER  # the broker may have refused the sequence: start with a new id
            return []
        for message in bad.values():
            error = RefusedError(place, code, message=message or answer.error_message)
            self.failures.append(Failure(answer.partition, 1, error))
        left = [record for index, record in enumerate(records) if index not in bad]
        return [left] if left else []


# -- Asks brokers whether they create a topic by themselves when a producer asks for it ----------------------

_CONFIG: Final = "auto.create.topics.enable"


def creates_topics(cluster: Cluster) -> bool | None:
    """What `auto.create.topics.enable` says; None if no broker tells this client."""
    try:
        brokers = [Resource(ResourceType.BROKER, str(each)) for each in broker_ids(cluster)[:1]]
        described = describe_configs(cluster, brokers, names=[_CONFIG])
    except KlogError:
        return None
    values = [each.value for _, configs in described for each in configs if each.name == _CONFIG]
    return values[0] == "true" if values else None


# -- Sends one Produce request to one broker and reads its answer (the protocol guide on Produce) ------------

_MAGIC_2_FROM: Final = 3


def produce(
    connection: Connection, request: ProduceRequest, timeout_ms: int
) -> Sequence[tuple[str, Sequence[PartitionProduced]]]:
    """Send batches of magic 2 and wait for the outcome of each partition, topics by name.

    With acks=0 brokers do not answer; every partition then counts as written, at an unknown offset.
    `timeout_ms` limits the answer. Raises ChannelError, UnsupportedApiError, and ClientError if the broker
    knows only older batches.
    """
    version = connection.version_of(ApiKey.PRODUCE)
    if version < _MAGIC_2_FROM:
        raise ClientError(f"{connection} takes no records of magic 2", cure="it is older than Kafka 0.11")
    body = encode_produce_request(version, request)
    if request.acks == 0:
        connection.post(ApiKey.PRODUCE, version, body)
        return [(name, [PartitionProduced(number) for number, _ in parts]) for name, parts in request.topics]
    return connection.request(ApiKey.PRODUCE, version, body, decode_produce_response, timeout_ms).topics


# -- Chooses the partition of a key as Kafka does, so that klog and Java clients agree on every key ----------
# Rules: `org.apache.kafka.clients.producer.internals.BuiltInPartitioner` (murmur2 of the key, KIP-480 and
# KIP-794 for records without one).

_WORD: Final = struct.Struct("<I")
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_UINT32: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned."""
    size = len(data)
    whole = size & ~3
    digest = _SEED ^ size
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        mixed = word * _MULTIPLIER & _UINT32
        digest = (digest * _MULTIPLIER & _UINT32) ^ ((mixed ^ mixed >> 24) * _MULTIPLIER & _UINT32)
    if size > whole:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _UINT32
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _UINT32
    return digest ^ digest >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
