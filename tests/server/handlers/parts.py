"""The parts that handlers are given, around real logs: a broker without sockets, threads and a clock."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from uuid import UUID

from klog.config.topic import default_topic_config
from klog.coordinator.transactions.values import Producer
from klog.drivers.isr_changes import IsrDriver
from klog.formats.names import TopicPartition, decode_uuid
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.markers import Marker, build_marker
from klog.metadata.cache import MetadataCache
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.protocol.error_codes import ErrorCode
from klog.protocol.file_slice import BodyPart, FileSlice, LazyBytes
from klog.protocol.messages import build, decode_response, encode_request, request_class
from klog.replication.follower import FollowerFetch
from klog.replication.isr import IsrState
from klog.replication.partition import Partition, ReplicaContext
from klog.replication.purgatory import Purgatory, Timer
from klog.replication.reading import FetchEntry, FetchLimits, read_one
from klog.replication.replica_manager import ReplicaManager
from klog.security.principal import ANONYMOUS, KafkaPrincipal
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.data.produce import ProduceHandler
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.request import Charge, Unsent
from klog.server.transactions.verification import Verification
from klog.storage.log.append_values import Origin
from klog.storage.log.loading import LoadSettings, create_log
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.second_opinions import SecondOpinions
from tests.control_requests import (
    leader_and_isr,
    leader_and_isr_state,
    update_metadata,
    update_metadata_state,
)
from tests.entity_structs import request_struct

BROKER = 1
OTHER_BROKER = 2
MAX_LAG_MS = 30_000
LISTENER = "PLAINTEXT"
TOPIC = "orders"
TOPIC_ID = "t0p1cAAAAAAAAAAAAAAAAA"
TOPIC_UUID = UUID(bytes=decode_uuid(TOPIC_ID))


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class NoBackground:
    """Nothing is done later; what failed is kept."""

    def __init__(self) -> None:
        self.failures = []
        self.opinions = SecondOpinions()

    def flush(self, log, up_to_offset) -> None: ...

    def delete_later(self, log, paths, delay_ms) -> None: ...

    def failed(self, log, error) -> None:
        self.failures.append((log.partition, error))


class FakeVerifier:
    """Stands for the coordinator: knows the partitions of transactions, or has an error for every question.

    If it is `slow`, it is another broker: questions wait in `waiting` until `answer` is called.
    """

    def __init__(self) -> None:
        self.is_enabled = True
        self.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.added: set[tuple[str, int]] | None = None
        self.slow = False
        self.waiting: list[Callable[[], None]] = []
        self.asked: list[tuple[str, Producer, list[TopicPartition]]] = []

    def verify(self, transactional_id, producer, partitions, on_done) -> None:
        self.asked.append((transactional_id, producer, sorted(partitions)))

        def answer() -> None:
            on_done({each: self._error(producer, each) for each in partitions})

        if self.slow:
            self.waiting.append(answer)
        else:
            answer()

    def is_verified_here(self, transactional_id, producer, partition) -> bool:
        return not self.slow and self._error(producer, partition) is ErrorCode.NONE

    def _error(self, producer: Producer, key: TopicPartition) -> ErrorCode:
        if self.added is None:
            return self.error
        return ErrorCode.NONE if key in self.added else ErrorCode.TRANSACTION_ABORTABLE

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer()


@dataclass
class FakeRequest:
    """A request whose answer is kept. `body` is what came after the header."""

    api_key: int
    api_version: int
    body: memoryview
    client_id: str | None = "test"
    listener: str = LISTENER
    peer_address: str = "127.0.0.1"
    received_ms: int = 0
    queued_ns: int = 0
    size_bytes: int = 0
    charge: Charge | None = None
    principal: KafkaPrincipal = ANONYMOUS
    throttle_ms: int = 0
    before_answer: Callable[[FakeRequest, Sequence[BodyPart] | None], Sequence[BodyPart] | None] | None = None
    on_answered: Callable[[], None] | None = None
    entity: object = None
    amend: Callable | None = None
    on_io_thread: bool = True
    from_follower: bool = False
    answered: bool = False
    answered_ns: int = 0
    closed: bool = False
    parts: Sequence[BodyPart] | None = None
    unsent: list[Unsent] = field(default_factory=list)
    later: list[Callable[[], None]] | None = None

    def soon(self, run: Callable[[], None]) -> None:
        """Run it now; with a list of what is to be done `later`, note it there."""
        if self.later is None:
            run()
        else:
            self.later.append(run)

    @property
    def connection(self) -> FakeRequest:
        """It stands for its connection, too."""
        return self

    @property
    def peer(self) -> tuple[str, int]:
        return self.peer_address, 0

    def send(self, took_ns: int) -> None:
        """The socket takes what is to be sent."""
        for counter, requests, spent_ns, _ in self.unsent:
            counter.sent(requests, spent_ns, took_ns)
        self.unsent.clear()

    def respond(self, parts: Sequence[BodyPart] | None) -> None:
        assert not self.answered, "answered twice"
        if self.before_answer is not None:
            parts = self.before_answer(self, parts)
        self.answered = True
        self.parts = parts

    def close_connection(self) -> None:
        assert not self.answered, "answered twice"
        self.answered = self.closed = True

    @property
    def answer(self) -> memoryview:
        """The body that the client would see: file slices read, and all bytes made."""
        assert self.parts is not None, "no answer yet"
        out = bytearray()
        for part in self.parts:
            if isinstance(part, FileSlice):
                data = os.pread(part.file.fileno(), part.size_bytes, part.position_bytes)
                assert len(data) == part.size_bytes
                out += data
            elif isinstance(part, LazyBytes):
                while len(part):
                    out += part.take()
            else:
                out += part
        return memoryview(out)


class Logs:
    """Logs in a directory, made when they are asked for."""

    def __init__(self, root, clock: Clock, configs: dict[str, dict[str, str]]) -> None:
        self.root = root
        self.clock = clock
        self.configs = configs
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.background = NoBackground()

    def delete(self, replicas) -> dict:
        for where in self.logs.keys() & set(replicas):
            log = self.logs.pop(where)
            log.release()
            shutil.rmtree(log.directory)
        return {}

    def get(self, where) -> PartitionLog | None:
        return self.logs.get(where)

    def set_aside_strays(self, replicas) -> dict:
        for where in replicas:
            log = self.logs.pop(where)
            log.rename_directory(f"{log.directory}.{secrets.token_hex(16)}-stray")
            log.release()
        return {}

    def creating(self):
        return nullcontext()

    def get_or_create(self, where, topic_id, *, is_new) -> PartitionLog:
        if where not in self.logs:
            directory = self.root / str(where)
            directory.mkdir()
            config = default_topic_config(self.configs.get(where.topic, {}))
            path = str(directory)
            state = create_log(path, config, LoadSettings(self.clock(), path))
            self.logs[where] = PartitionLog(
                where, path, config, state, clock_ms=self.clock, background=self.background
            )
        return self.logs[where]


@dataclass
class Broker:
    """Broker 1 of a cluster of two; its parts are wired as the real one's."""

    root: object
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_id: int = BROKER
    verifier: FakeVerifier = field(default_factory=FakeVerifier)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.timer = Timer(self.clock, wake=lambda: None)
        self.produce_purgatory = Purgatory("Produce", self.timer)
        self.fetch_purgatory = Purgatory("Fetch", self.timer)
        self.delete_purgatory = Purgatory("DeleteRecords", self.timer)
        self.logs = Logs(self.root, self.clock, self.configs)
        self.metadata = MetadataCache()
        self.replicas = ReplicaManager(
            ReplicaContext(
                self.broker_id,
                self.clock,
                lambda: self.metadata.snapshot.brokers,
                MAX_LAG_MS,
                lambda key: self.isr_proposed(key),  # noqa: PLW0108 (a test may replace it)
            ),
            self.logs,
            self.produce_purgatory,
            self.fetch_purgatory,
            self.delete_purgatory,
        )
        self.isr_changes = IsrDriver(self.replicas)
        self.isr_proposed: Callable[[TopicPartition], object] = self.isr_changes.propose
        self.lookup = PartitionLookup(self.replicas, self.metadata)
        self.topic_stats = BrokerTopicStats()
        self.verification = Verification(
            self.replicas, self.verifier, lambda: self.verifier.is_enabled, self.clock
        )

    def produce_handler(self, access: Access | None = None) -> ProduceHandler:
        """A handler of Produce requests for these logs."""
        return ProduceHandler(
            self.lookup,
            self.produce_purgatory,
            self.clock,
            self.clock,
            self.topic_stats,
            self.verification,
            access,
        )

    def tell(
        self,
        topic=TOPIC,
        partition=0,
        *,
        leader=BROKER,
        epoch=0,
        replicas=(BROKER,),
        topic_id=TOPIC_ID,
        brokers=None,
    ) -> None:
        """UpdateMetadata: the cluster has this partition, and these brokers are alive: at least both, and
        those with replicas, unless told otherwise.
        """
        where = TopicPartition(topic, partition)
        state = update_metadata_state(partition, leader, tuple(replicas), leader_epoch=epoch)
        alive = tuple(
            BrokerRegistration(each, (Endpoint(LISTENER, "PLAINTEXT", f"host{each}", 9092),), f"rack{each}")
            for each in brokers or sorted({BROKER, OTHER_BROKER, *replicas})
        )
        ids = {} if topic_id is None else {topic: topic_id}
        self.metadata.update(update_metadata({where: state}, ids, alive))

    def lead(
        self,
        topic=TOPIC,
        partition=0,
        *,
        leader=BROKER,
        epoch=0,
        replicas=(BROKER,),
        isr=None,
        adding=(),
        topic_id=TOPIC_ID,
        tell=True,
    ) -> Partition:
        """UpdateMetadata, unless told otherwise, and LeaderAndIsr."""
        if tell:
            self.tell(topic, partition, leader=leader, epoch=epoch, replicas=replicas, topic_id=topic_id)
        where = TopicPartition(topic, partition)
        state = leader_and_isr_state(
            partition, leader, tuple(replicas), leader_epoch=epoch, isr=isr, adding=adding, is_new=True
        )
        ids = {} if topic_id is None else {topic: topic_id}
        known = self.replicas.partitions.get(where)
        is_repeated = known is not None and known.state.leader_epoch == epoch
        answer = self.replicas.leader_and_isr(leader_and_isr({where: state}, ids))
        error = answer.partitions[where]
        assert not error or (is_repeated and error is ErrorCode.STALE_CONTROLLER_EPOCH), answer
        return self.replicas.partitions[where]

    def append(self, count=1, topic=TOPIC, partition=0, **fields) -> list[bytes]:
        """Write batches of one record each as a client does; returns the bytes as they stand in the log."""
        replica = self.replicas.partitions[topic, partition]
        written = []
        for _ in range(count):
            data = batch(now_ms=self.clock(), **fields)
            _, moved = replica.append(memoryview(data), -1, self.clock())
            self.replicas.appended((topic, partition), high_watermark_moved=moved)
            written.append(bytes(data))
        return written

    def end_transaction(self, *, aborted: bool, producer_id=9, epoch=0, topic=TOPIC, partition=0) -> None:
        """Write a transaction's marker as the coordinator does."""
        data = build_marker(producer_id, epoch, Marker(aborted, 0, self.clock()))
        replica = self.replicas.partitions[topic, partition]
        _, moved = replica.append(memoryview(data), -1, self.clock(), Origin.COORDINATOR)
        self.replicas.appended((topic, partition), high_watermark_moved=moved)

    def follow(
        self, offset: int, *, start_offset: int = 0, topic=TOPIC, partition=0, replica_id=OTHER_BROKER
    ) -> None:
        """The other broker fetches from this offset."""
        entry = FetchEntry((topic, partition), offset, 1 << 20, log_start_offset=start_offset)
        limits = FetchLimits(1, 1 << 20, replica_id)
        found = read_one(
            self.replicas.partitions[topic, partition], entry, limits, 1 << 20, at_least_one=True
        )
        self.replicas.record_fetch(FollowerFetch(replica_id, -1, self.clock()), (), [found])

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timer.advance()


def set_isr(partition: Partition, *isr: int) -> None:
    """The controller has confirmed another ISR."""
    with partition.lock, partition.log.lock:
        partition.state = replace(partition.state, isr=IsrState(isr))


def batch(value=b"v" * 20, *, now_ms=1_700_000_000_000, records=1, key=b"k", **fields) -> bytearray:
    """A batch as a producer sends it: offsets from 0."""
    return build_batch([RecordData(i, now_ms, key, value) for i in range(records)], BatchFields(**fields))


def request_of(api_key: int, version: int, /, *, client_id="test", **values) -> FakeRequest:
    """A request from the values of its entity."""
    entity = build(request_class(api_key, version), **values)
    return FakeRequest(api_key, version, memoryview(encode_request(entity)), client_id)


def part_of(api_key: int, version: int, name: str, /, **values):
    """A struct of a request, by the name it has in Kafka's schemas."""
    return build(request_struct(api_key, version, name), **values)


def answer_of(request: FakeRequest):
    """The response's entity."""
    return decode_response(request.api_key, request.api_version, request.answer)
