"""Clients as small state machines: idempotent producers, producers that lose records, and consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from klog.protocol.fetch_response import AbortedTransactions, decode_fetch_response
from klog.replication.partition import ALL_IN_SYNC
from tests.simulation.coordinators import INPUT, INTERNAL
from tests.simulation.frames import answers_in, frame_of
from tests.simulation.group_clients import ConsumerGroup
from tests.simulation.log_content import Batch, RecordId, batch_of, batches_in, is_taken
from tests.simulation.producing import Produced, Producing
from tests.simulation.scheduler import US_PER_MS, Process, stream
from tests.simulation.transactional_clients import TransactionalProducer

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.world import World

_TRANSACTIONAL_IDS = ("t1", "t2")
_RETRY_MS = 150
_GIVE_UP_AFTER = 40
_FETCH_VERSION = 12
_PRODUCE_VERSIONS = (7, 9, 11)
# How many records a producer sends to a partition without waiting for answers.
_SENT_TOGETHER = (1, 1, 1, 1, 3)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_MAX_BYTES = 1 << 20
# The producer cannot go on with its sequence numbers.
_FATAL = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    )
)


class Clients:
    """All clients, in one process that never fails; they ask brokers that are up where leaders are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = Process("clients")
        self.random = stream(world.schedule.seed, "clients")
        self._records = 0
        # When records were made, by the clock that they carry.
        self.created_ms: dict[RecordId, int] = {}
        # Far from those that coordinators give.
        self._producer_ids = 1 << 40
        self.producing = True
        # Records of producers without idempotence.
        self.unordered: set[int] = set()
        self.producers = [Producer(self, ALL_IN_SYNC), Producer(self, ALL_IN_SYNC), Producer(self, 1)]
        self.consumers: dict[TopicPartition, Consumer] = {}
        self.transactional: list[TransactionalProducer] = []
        self.group: ConsumerGroup | None = None
        if world.has_coordinators:
            self.transactional = [TransactionalProducer(self, each) for each in _TRANSACTIONAL_IDS]
            self.group = ConsumerGroup(self)

    def start(self) -> None:
        if self.group is not None:
            self.group.start()
        for each in self.transactional:
            each.start()
        for producer in self.producers:
            producer.start()
        self.after(self.random.randrange(100), self._consume)

    def after(self, delay_ms: int, call: Any) -> None:
        self.world.scheduler.after(delay_ms * US_PER_MS, self.process, call)

    def new_record(self) -> int:
        self._records += 1
        self.created_ms[self._records] = self.wall_ms()
        return self._records

    def wall_ms(self) -> int:
        """The clock of all clients."""
        return 1_700_000_000_000 + self.world.scheduler.now_ms

    def new_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def partitions(self) -> list[TopicPartition]:
        """The partitions to which applications write, as some broker knows them."""
        cache = self._cache()
        if cache is None:
            return []
        return [
            TopicPartition(topic, each)
            for topic, found in cache.topics.items()
            if topic not in INTERNAL and topic != INPUT
            for each in found
        ]

    def _cache(self) -> Any:
        up = [each for each in self.world.brokers.values() if not each.process.paused]
        return self.random.choice(up).cache.snapshot if up else None

    def leader(self, key: TopicPartition) -> tuple[SimulatedBroker | None, int]:
        """The leader of a partition and its epoch, as some broker knows them."""
        cache = self._cache()
        state = None if cache is None else cache.partition(key)
        if state is None:
            return None, -1
        return self.world.brokers.get(state.leader), state.leader_epoch

    def _consume(self) -> None:
        for key in self.partitions():
            if key not in self.consumers:
                consumer = self.consumers[key] = Consumer(self, key)
                consumer.go_on()
        self.after(500, self._consume)


class Record(NamedTuple):
    """A record, as a batch of its own."""

    record_id: int
    batch: bytes


@dataclass(slots=True)
class Sending:
    """Records that are not acknowledged yet."""

    records: list[Record]
    attempts: int = 0


class Producer:
    """Sends records. With acks=all it is idempotent and retries, with acks=1 it does neither."""

    def __init__(self, clients: Clients, acks: int) -> None:
        self._clients = clients
        self._acks = acks
        self._version = clients.random.choice(_PRODUCE_VERSIONS)
        self._producer_id = clients.new_producer_id() if acks == ALL_IN_SYNC else -1
        self._sequences: dict[TopicPartition, int] = {}
        self._sending: dict[TopicPartition, Sending] = {}

    def start(self) -> None:
        self._clients.after(self._clients.random.randrange(200), self._tick)

    def _tick(self) -> None:
        clients = self._clients
        if not clients.producing:
            return
        free = [each for each in clients.partitions() if each not in self._sending]
        if free:
            self._send_new(clients.random.choice(free), clients.random.choice(_SENT_TOGETHER))
        tick_ms = clients.world.schedule.tick_ms
        clients.after(clients.random.randrange(tick_ms * 3 // 5, tick_ms * 11 // 5), self._tick)

    def _send_new(self, key: TopicPartition, count: int) -> None:
        sequence = self._sequences.get(key, 0)
        self._sending[key] = Sending([self._new_record(sequence + each) for each in range(count)])
        self._sequences[key] = sequence + count
        self._send(key)

    def _new_record(self, sequence: int) -> Record:
        clients = self._clients
        record_id = clients.new_record()
        fields = BatchFields()
        if self._acks != ALL_IN_SYNC:
            clients.unordered.add(record_id)
        else:
            fields = BatchFields(producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)
        return Record(record_id, bytes(batch_of(record_id, clients.wall_ms(), fields)))

    def _send(self, key: TopicPartition) -> None:
        clients, sending = self._clients, self._sending[key]
        leader, _ = clients.leader(key)
        sending.attempts += 1
        if leader is None:
            clients.after(_RETRY_MS, lambda: self._failed(key, sending))
            return
        record_ids, batches = zip(*sending.records, strict=True)
        producing = Producing(key, self._version, self._acks, record_ids, batches)
        clients.world.network.request(
            clients.process,
            leader.process,
            lambda answer: producing.send(leader, answer),
            lambda answered: self._answered(key, sending, answered),
            lambda: self._failed(key, sending),
        )

    def _answered(self, key: TopicPartition, sending: Sending, answered: list[Produced]) -> None:
        if self._sending.get(key) is not sending:
            return
        left = []
        for record, (error, offset) in zip(sending.records, answered, strict=True):
            if error is ErrorCode.NONE:
                self._clients.world.note("clients: record %d of %s at %d", record.record_id, key, offset)
            else:
                left.append(record)
        if not left:
            del self._sending[key]
        elif any(error in _FATAL for error, _ in answered):
            self._begin_again(key)
        else:
            sending.records = left
            self._clients.after(_RETRY_MS, lambda: self._failed(key, sending))

    def _failed(self, key: TopicPartition, sending: Sending) -> None:
        if self._sending.get(key) is not sending:
            return
        if self._acks != ALL_IN_SYNC:
            del self._sending[key]
        elif sending.attempts > _GIVE_UP_AFTER or not self._clients.producing:
            self._begin_again(key)
        else:
            self._send(key)

    def _begin_again(self, key: TopicPartition) -> None:
        """Give up records: they may be in the log or not. Go on as a new producer."""
        del self._sending[key]
        self._clients.world.counts["given up"] += 1
        self._sequences = {}
        # What is under way goes on with its old producer id and must not be followed by a higher sequence.
        self._sending.clear()
        self._producer_id = self._clients.new_producer_id()


class Consumer:
    """Reads one partition from its leader, from the beginning on.

    Half of them read committed records only: they get all, and leave out what is aborted, as clients do.
    """

    def __init__(self, clients: Clients, key: TopicPartition) -> None:
        self._clients = clients
        self._key = key
        self._offset = 0
        self._isolation = clients.random.randrange(2) if clients.transactional else READ_UNCOMMITTED

    def go_on(self) -> None:
        clients = self._clients
        leader, epoch = clients.leader(self._key)
        if leader is None:
            self._later()
            return
        partition = FetchPartition(self._key.partition, epoch, self._offset, -1, -1, _MAX_BYTES)
        topic = FetchTopic(self._key.topic, None, [partition])
        request = FetchRequest(300, 1, _MAX_BYTES, self._isolation, [topic])
        frame = frame_of(ApiKey.FETCH, _FETCH_VERSION, (encode_fetch_request(_FETCH_VERSION, request),))
        clients.world.network.request(
            clients.process,
            leader.process,
            lambda answer: leader.serving.serve(frame, lambda read: answer((read, self._topic_id(leader)))),
            lambda answered: self._answered(leader, epoch, *answered),
            self._later,
        )

    def _later(self) -> None:
        self._clients.after(300, self.go_on)

    def _topic_id(self, leader: SimulatedBroker) -> str:
        partition = leader.replicas.partitions.get(self._key)
        return "" if partition is None else str(partition.log.topic_id)

    def _answered(self, leader: SimulatedBroker, epoch: int, answered: bytes, topic_id: str) -> None:
        (body,) = answers_in(ApiKey.FETCH, _FETCH_VERSION, answered)
        found = decode_fetch_response(_FETCH_VERSION, body).topics[0].partitions[0]
        if found.error_code == ErrorCode.NONE:
            is_compacted = self._clients.world.topic_config(self._key.topic).compact
            data = bytes(found.records or b"")  # type: ignore[arg-type]
            batches = batches_in(data, self._offset, may_lack=is_compacted)
            if batches:
                self._read(epoch, topic_id, batches, found.aborted_transactions)
                self._offset = batches[-1].offset + 1
            elif data and is_compacted:
                self._offset = found.high_watermark  # nothing but empty batches
        elif found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._offset = max(found.log_start_offset, 0)
        self._clients.after(self._clients.random.randrange(50, 700), self.go_on)

    def _read(self, epoch: int, topic_id: str, batches: list[Batch], aborted: AbortedTransactions) -> None:
        world = self._clients.world
        model = world.history.of(topic_id, self._key.partition, self._key.topic)
        world.history.consumed(model, epoch, ((each.offset, each.record_id) for each in batches))
        world.counts["consumed"] += len(batches)
        # A leader that was replaced may have markers that are lost.
        if self._isolation == READ_COMMITTED and epoch >= max(model.writers, default=-1):
            for batch, taken in is_taken(batches, aborted or ()):
                world.outcomes.saw(model, batch.record_id, taken, "a reader")
