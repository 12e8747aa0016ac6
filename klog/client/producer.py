"""Writing records to one topic: batches a partition, one request in flight a leader, every outcome counted.

Rules: the protocol guide on Produce, KIP-98 (idempotence: producer id and sequences), KIP-467 (which records
of a batch were refused: those alone fail here, the others are sent again), KIP-126 (a batch that is too large
is cut in two). Sequence numbers are taken when a batch has been written, so a refused batch leaves no gap.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.client.cluster import NO_LEADER, Cluster
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.partitioner import partition_of_key
from klog.client.patience import Patience
from klog.client.producer_id import NO_PRODUCER, ProducerId, new_producer_id
from klog.formats import compression
from klog.formats.batch_builder import BatchFields, Headers, RecordData, build_batch
from klog.formats.constants import NO_SEQUENCE
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import ChannelError, MalformedMessageError, UnexpectedResponseError
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import PartitionProduced, decode_produce_response

ALL_IN_SYNC: Final = -1
_MAGIC_2_FROM: Final = 3
_BATCH_BYTES: Final = 512 << 10  # half of what brokers take by default
_PENDING_BYTES: Final = 1 << 20
_RECORD_OVERHEAD_BYTES: Final = 16
_CREATION_MS: Final = 3_000  # how long a broker that creates topics by itself may take to do it
_SEQUENCE_MASK: Final = (1 << 31) - 1
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to write. `acks` is 0, 1 or ALL_IN_SYNC; idempotence needs the last."""

    codec: int = compression.NONE
    level: int | None = None
    acks: int = ALL_IN_SYNC
    idempotent: bool = True
    batch_bytes: int = _BATCH_BYTES


class Record(NamedTuple):
    """A record to be written; `timestamp_ms` None is the time of sending."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Failure(NamedTuple):
    """Records that a broker refused, and its error."""

    partition: int
    records: int
    error: RefusedError


@dataclass(slots=True)
class Delivered:
    """What has been written to one partition. Offsets are -1 with acks=0, where brokers do not tell them."""

    count: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class _Pending:
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


class Producer:
    """Writes records to `topic`; `flush` sends what is pending. For one thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ProducerSettings,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._settings = settings
        self._clock_ms = clock_ms
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._partitions: Sequence[int] = ()
        self._sticky = -1
        self._producer: ProducerId = NO_PRODUCER
        self._sequences: dict[int, int] = {}
        self.accepted = 0
        self.delivered: dict[int, Delivered] = {}
        self.failures: list[Failure] = []

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
        """Records taken by `send` of which the outcome is not known."""
        return self.accepted - self.delivered_count - self.failed_count

    def open(self) -> None:
        """Find the topic's partitions. Raises UnknownTopicError, RefusedError, ChannelError."""
        patience = Patience(min(_CREATION_MS, self._cluster.timeout_ms))
        while not self._partitions:
            try:
                self._cluster.refresh([self._topic], may_create=True)
                self._partitions = sorted(self._cluster.partitions(self._topic))
                if not self._partitions:
                    raise UnknownTopicError(f"topic {self._topic} has no partitions yet")
            except UnknownTopicError as error:
                patience.failed(error)

    def send(self, record: Record, partition: int | None = None) -> None:
        """Take a record in; it goes out now or at `flush`. Raises what `flush` raises, UnknownTopicError."""
        if not self._partitions:
            self.open()
        chosen = self._choose(record.key) if partition is None else partition
        if partition is not None and partition not in self._partitions:
            raise UnknownTopicError(
                f"topic {self._topic} has {len(self._partitions)} partitions, there is no {partition}"
            )
        pending = self._pending.setdefault(chosen, _Pending())
        size_bytes = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        pending.records.append(record)
        pending.size_bytes += size_bytes
        self._pending_bytes += size_bytes
        self.accepted += 1
        if pending.size_bytes >= self._settings.batch_bytes or self._pending_bytes >= _PENDING_BYTES:
            self.flush()

    def _choose(self, key: bytes | None) -> int:
        if key is not None:
            return partition_of_key(key, len(self._partitions))
        if self._sticky < 0:
            led = [number for number in self._partitions if self._leader(number) != NO_LEADER]
            self._sticky = random.choice(led or self._partitions)  # noqa: S311 (balance, no secret)
        return self._sticky

    def _leader(self, partition: int) -> int:
        return self._cluster.leader((self._topic, partition))

    def flush(self) -> None:
        """Send everything that is pending and wait for the answers.

        What a broker refuses is in `failures`. Raises ChannelError and ClientError when the cluster cannot be
        reached or leaders stay away for too long: the outcome of what is left is then unknown.
        """
        waiting = {number: [pending.records] for number, pending in self._pending.items()}
        self._pending.clear()
        self._pending_bytes = 0
        self._sticky = -1
        patience = Patience(self._cluster.timeout_ms)
        while waiting:
            try:
                self._settle_producer()
                before = self.unsettled_count
                self._send_first(waiting)
                if self.unsettled_count < before:
                    patience.succeeded()
            except (ClientError, ChannelError) as error:
                if isinstance(error, RefusedError) and not error.code.retriable:
                    raise
                self._try_again(patience, error)

    def _try_again(self, patience: Patience, error: KlogError) -> None:
        patience.failed(error)
        try:
            self._cluster.refresh([self._topic])
        except ChannelError as lost:
            patience.failed(lost)

    def _settle_producer(self) -> None:
        if self._settings.idempotent and self._producer == NO_PRODUCER:
            self._producer = new_producer_id(self._cluster.any_channel())
            self._sequences.clear()

    def _send_first(self, waiting: dict[int, list[list[Record]]]) -> None:
        """The first batch of each partition to its leader; what is settled leaves `waiting`.

        Raises the last error that is worth another try.
        """
        failure: KlogError | None = None
        for node_id, numbers in self._by_leader(waiting).items():
            try:
                if node_id == NO_LEADER:
                    raise ClientError(
                        f"{self._topic}-{numbers[0]} has no leader",
                        cure=f"klog topics describe {self._topic} shows why",
                    )
                batches = {number: self._batch(number, waiting[number][0]) for number in numbers}
                answers = self._produce(self._cluster.channel(node_id), batches)
            except (ClientError, ChannelError) as error:
                failure = error
                continue
            for answer in answers:
                failure = self._settle(answer, waiting) or failure
        if failure is not None:
            raise failure

    def _by_leader(self, waiting: Mapping[int, object]) -> dict[int, list[int]]:
        led = self._cluster.by_leader((self._topic, number) for number in waiting)
        return {node_id: [number for _, number in partitions] for node_id, partitions in led.items()}

    def _batch(self, partition: int, records: Sequence[Record]) -> bytearray:
        settings = self._settings
        now_ms = self._clock_ms()
        fields = BatchFields(
            codec=settings.codec,
            level=settings.level,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequences.get(partition, 0) if settings.idempotent else NO_SEQUENCE,
        )
        data = [
            RecordData(offset, now_ms if stamp is None else stamp, key, value, headers)
            for offset, (key, value, headers, stamp) in enumerate(records)
        ]
        return build_batch(data, fields)

    def _produce(self, channel: Channel, batches: Mapping[int, bytearray]) -> Sequence[PartitionProduced]:
        version = channel.version_of(ApiKey.PRODUCE)
        if version < _MAGIC_2_FROM:
            raise ClientError(f"{channel} takes no records of magic 2", cure="it is older than Kafka 0.11")
        partitions = [(number, memoryview(batch)) for number, batch in batches.items()]
        timeout_ms = self._cluster.timeout_ms
        request = ProduceRequest(None, self._settings.acks, timeout_ms, [(self._topic, list(partitions))])
        body = encode_produce_request(version, request)
        if self._settings.acks == 0:
            channel.post(ApiKey.PRODUCE, version, body)
            return [PartitionProduced(number) for number in batches]
        answer = channel.exchange(ApiKey.PRODUCE, version, body, 2 * timeout_ms)
        try:
            response = decode_produce_response(version, answer)
        except MalformedMessageError as error:
            channel.close()
            raise UnexpectedResponseError(f"the answer of {channel} cannot be read: {error}") from error
        return [partition for _, answered in response.topics for partition in answered]

    def _settle(
        self, answer: PartitionProduced, waiting: dict[int, list[list[Record]]]
    ) -> RefusedError | None:
        """Take one partition's answer in; the error where the same batch is to be sent again."""
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
            return RefusedError(f"writing to {self._topic}-{number}", code, message=answer.error_message)
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
        """Count what failed; what is left of the batch to be sent again."""
        place = f"writing to {self._topic}-{answer.partition}"
        bad = {index: message for index, message in answer.record_errors if index < len(records)}
        if len(bad) in (0, len(records)):
            said = answer.error_message or next(iter(bad.values()), None)
            error = RefusedError(place, code, message=said)
            self.failures.append(Failure(answer.partition, len(records), error))
            if not bad and code not in _TOO_LARGE:
                self._producer = NO_PRODUCER  # sequences may be what it does not like: begin anew
            return []
        for message in bad.values():
            self.failures.append(Failure(answer.partition, 1, RefusedError(place, code, message=message)))
        return [[record for index, record in enumerate(records) if index not in bad]]
