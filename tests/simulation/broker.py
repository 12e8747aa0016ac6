"""One process of the simulated cluster: the broker's parts as the real broker connects them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.controller.core import ControllerCore
from klog.controller.events import (
    Event,
    RebalanceDue,
    SessionExpired,
    SessionRenewed,
    Startup,
    preempt,
)
from klog.coordinator.transactions.values import Producer
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.metadata import cluster
from klog.metadata.cache import MetadataCache
from klog.metadata.control_requests import ControlRequest, ControlResponse
from klog.metadata.errors import MetadataError, SessionExpiredError
from klog.metadata.store import SessionState
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest
from klog.replication.acknowledging import DelayedProduce
from klog.replication.fetching.values import AskEpochEnds, AskOffsets, Fetch, FetcherRequest
from klog.replication.partition import ALL_IN_SYNC, PartitionError, ReplicaContext
from klog.replication.purgatory import Purgatory, Timer
from klog.replication.replica_manager import ReplicaManager
from klog.replication.replica_waits import PartitionWait
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.data.fetch import FetchHandler
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.logs.topic_reads import read_topic_ids
from klog.server.transactions.verification import Verified, produce_refusal
from klog.storage.log.append_values import AppendError
from klog.storage.log.manager_values import Progress
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.verification import UNCHECKED
from tests.simulation.bytes_requests import ByteRequest
from tests.simulation.control_sending import Sender
from tests.simulation.coordinators import Coordinators
from tests.simulation.disk import Disk, Tasks
from tests.simulation.following import answer_epoch_ends, answer_offsets, encoded, follow
from tests.simulation.history import Seen
from tests.simulation.isr_loop import MAX_LAG_MS, IsrLoop
from tests.simulation.scheduler import US_PER_MS, Process, stream
from tests.simulation.tree import TREE, SimulatedSession

if TYPE_CHECKING:
    from tests.simulation.world import World

PRODUCE_TIMEOUT_MS = 1_500
_RETRY_MS = 100
_REBALANCE_MS = 5_000
_FETCH = 1
_PRODUCE_VERSION = 11

Key = tuple[str, int]
Answer = Callable[[Any], None]


class Within(NamedTuple):
    """The transaction that a batch is part of."""

    transactional_id: str
    producer: Producer
    sequence: int


class SimulatedBroker:
    """A broker that runs. It ends by `crash`; what it leaves is on its disk."""

    def __init__(self, world: World, broker_id: int, disk: Disk) -> None:
        self.world = world
        self.broker_id = broker_id
        self.process = Process(f"b{broker_id}")
        self.epoch = -1
        self.seen: dict[tuple[str, int], Seen] = {}
        self.random = stream(world.schedule.seed, "broker", broker_id, world.starts)
        # No two machines have the same clocks.
        self._clock_ahead_ms = self.random.randrange(100_000)
        self.wall_ahead_ms = 0
        self.disk = disk
        self.cache = MetadataCache()
        self.session = SimulatedSession(
            world.shared,
            world.scheduler,
            world.server,
            self.process,
            lambda: int(self.random.expovariate(1 / 600)) + 50,
            self._loses,
        )
        self.session.on_connected = self._work
        self._events: deque[Event] = deque()
        self._is_working = False
        self._senders: dict[int, Sender] = {}
        self.core = ControllerCore(
            lambda: replace(world.settings, broker_id=broker_id),
            self.session,
            self,
            self.put,
            self._register,
            self.wall_ms,
            world.times,
        )
        cluster.create_persistent_nodes(self.session)
        self._register()
        self._open()
        self.session.add_session_listener(self._on_session)
        self.put(Startup())
        self.after(_REBALANCE_MS * US_PER_MS, self._rebalance)
        if world.network.is_cut(self.process.name, TREE):
            self.session.disconnect()

    def _open(self) -> None:
        world = self.world
        self.logs = self.disk.open(
            Tasks(world.scheduler, self.process), world.topic_config, self.wall_ms, self.broker_id, self
        )
        self._timer_due_us: int | None = None
        self.timer = Timer(self.clock_ms, self._arm_timer)
        self.produce_purgatory: Purgatory[DelayedProduce] = Purgatory("Produce", self.timer)
        self.fetch_purgatory: Purgatory[Any] = Purgatory("Fetch", self.timer)
        self.delete_purgatory: Purgatory[Any] = Purgatory("DeleteRecords", self.timer)
        self.replicas = ReplicaManager(
            ReplicaContext(
                self.broker_id,
                self.clock_ms,
                lambda: self.cache.snapshot.brokers,
                MAX_LAG_MS,
                self._propose_isr,
            ),
            self.logs,
            self.produce_purgatory,
            self.fetch_purgatory,
            self.delete_purgatory,
            lambda names: read_topic_ids(self.session, names),
        )
        follow(self)
        self.isr = IsrLoop(self)
        self.lookup = PartitionLookup(self.replicas, self.cache)
        self._fetches = FetchHandler(
            self.lookup,
            FetchSessions(100, self.clock_ms, lambda: self.random.randrange(1, 1 << 31)),
            self.fetch_purgatory,
            self.clock_ms,
            10 << 20,
            BrokerTopicStats(),
        )
        if world.internal_partitions:
            self.coordinators = Coordinators(self, world.internal_partitions)

    def _propose_isr(self, key: TopicPartition) -> None:
        self.isr.propose(key)

    # -- time ------------------------------------------------------------------------------------------------

    def clock_ms(self) -> int:
        return self.world.scheduler.now_ms + self._clock_ahead_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.world.scheduler.now_ms + self.wall_ahead_ms

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        self.world.scheduler.after(delay_us, self.process, call)

    def _arm_timer(self) -> None:
        wait_ms = self.timer.wait_ms()
        if wait_ms is None:
            return
        due_us = self.world.scheduler.now_us + (wait_ms + 1) * US_PER_MS
        if self._timer_due_us is None or due_us < self._timer_due_us:
            self._timer_due_us = due_us
            self.after((wait_ms + 1) * US_PER_MS, self._advance_timer)

    def _advance_timer(self) -> None:
        self._timer_due_us = None
        self.timer.advance()
        self._arm_timer()

    # -- the tree and the controller -------------------------------------------------------------------------

    def _loses(self) -> int:
        if self.world.is_calm or self.random.random() > self.world.schedule.loss:
            return 0
        return self.random.choice((-1, 1))

    def _register(self) -> None:
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", self.process.name, 9092)
        registration = BrokerRegistration(self.broker_id, (endpoint,))
        self.epoch = cluster.register_broker(self.session, registration)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            dropped, self._events = self._events, deque()
            self.put(SessionExpired())
            for event in dropped:
                preempt(event)
        else:
            self.put(SessionRenewed())

    def put(self, event: Event) -> None:
        """Queue an event for the controller of this broker."""
        self._events.append(event)
        self._work()

    def _work(self) -> None:
        if not self._is_working and self._events:
            self._is_working = True
            self.after(int(self.random.expovariate(1 / 300)) + 10, self._handle)

    def _handle(self) -> None:
        self._is_working = False
        if not self._events:
            return
        if not self.session.connected and not isinstance(self._events[0], SessionExpired):
            return  # it waits for the tree; `on_connected` goes on
        failures = self.core.failures
        self.core.handle(self._events.popleft())
        self.world.note_controller(self)
        if self.core.failures > failures:
            self._is_working = True
            self.after(_RETRY_MS * US_PER_MS, self._handle)
        else:
            self._work()

    def _rebalance(self) -> None:
        if self.core.is_active:
            self.put(RebalanceDue())
        self.after(_REBALANCE_MS * US_PER_MS, self._rebalance)

    # -- the BrokerRequestQueue of the controller ------------------------------------------------------------

    def add_broker(self, broker: BrokerRegistration) -> None:
        self._senders.setdefault(broker.broker_id, Sender(self, broker.broker_id))

    def remove_broker(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.stop()

    def send(self, broker_id: int, request: ControlRequest) -> None:
        sender = self._senders.get(broker_id)
        if sender is not None:
            sender.put(request)

    def close(self) -> None:
        for broker_id in list(self._senders):
            self.remove_broker(broker_id)

    # -- the controller's requests ---------------------------------------------------------------------------

    def obey(self, request: ControlRequest, answer: Answer) -> None:
        """What `ControlHandler` does."""
        if request.broker_epoch != -1 and request.broker_epoch < self.epoch:
            answer(ControlResponse(ErrorCode.STALE_BROKER_EPOCH))
            return
        match request:
            case LeaderAndIsrRequest():
                response = self.replicas.leader_and_isr(request)
            case StopReplicaRequest():
                response = self.replicas.stop_replicas(request)
            case UpdateMetadataRequest():
                response = ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
                if self.replicas.accepts(request.controller_epoch):
                    self.cache.update(request)
                    response = ControlResponse()
        answer(response)

    # -- clients and followers -------------------------------------------------------------------------------

    def led_log(self, key: Key, leader_epoch: int = -1) -> tuple[int, PartitionLog | None]:
        """The log of a partition that this broker leads, or an error."""
        try:
            return 0, self.lookup.partition(key).require_leader(leader_epoch)
        except PartitionError as refused:
            return int(refused.error), None

    def answer_follower(self, request: FetcherRequest, answer: Answer) -> None:
        match request:
            case Fetch():
                body = encoded(request)
                self._fetches.handle(ByteRequest(_FETCH, request.version, body, answer))  # type: ignore[arg-type]
            case AskEpochEnds():
                answer_epoch_ends(self, request, answer)
            case AskOffsets():
                answer_offsets(self, request, answer)

    def fetch(self, version: int, body: bytes, answer: Answer) -> None:
        """A consumer's fetch."""
        self._fetches.handle(ByteRequest(_FETCH, version, body, answer))  # type: ignore[arg-type]

    def produce(
        self,
        key: Key,
        data: bytearray,
        acks: int,
        record_id: int,
        answer: Answer,
        within: Within | None = None,
    ) -> None:
        """Append one batch, and answer (error, offset) when it is as safe as `acks` wants.

        A batch of a transaction is verified first, as `ProduceHandler` does.
        """
        if within is None:
            self._append(key, data, acks, record_id, answer, UNCHECKED)
            return

        def verified(found: Verified) -> None:
            for error in found.errors.values():
                answer((produce_refusal(error, _PRODUCE_VERSION)[0], -1))
                return
            self._append(key, data, acks, record_id, answer, found.guards.get(key))

        verification = self.coordinators.verification
        verification.begin(within.transactional_id, within.producer, {key: within.sequence}, verified)

    def _append(
        self, key: Key, data: bytearray, acks: int, record_id: int, answer: Answer, guard: object | None
    ) -> None:
        try:
            partition = self.lookup.partition(key)
            info, moved = partition.append(memoryview(data), acks, self.wall_ms(), guard=guard)
        except PartitionError as refused:
            answer((refused.error, -1))
            return
        except AppendError as refused:
            answer((ErrorCode[refused.error], -1))
            return
        except (KlogError, OSError):
            answer((ErrorCode.KAFKA_STORAGE_ERROR, -1))
            return
        self.replicas.appended(key, moved)
        epoch, topic_id = partition.state.leader_epoch, str(partition.log.topic_id)
        if acks != ALL_IN_SYNC:
            answer((ErrorCode.NONE, info.first_offset))
            return

        def finished(waits: Any) -> None:
            error = waits[key].error
            if error is ErrorCode.NONE:
                self.world.acknowledged(self, topic_id, key, epoch, info.first_offset, record_id)
            answer((error, info.first_offset))

        wait = PartitionWait(info.last_offset + 1)
        due_ms = self.clock_ms() + PRODUCE_TIMEOUT_MS
        operation = DelayedProduce(due_ms, self.replicas, {key: wait}, self.lookup.missing, finished)
        self.produce_purgatory.try_complete_else_watch(operation, [key])

    # -- the listener of the log manager ---------------------------------------------------------------------

    def loaded(self, progress: Progress) -> None: ...

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """What `LogEvents` does."""
        assert directory in self.world.failing, f"{directory} has failed: {why}"
        self.replicas.directory_failed(partitions)
        self.after(US_PER_MS, self._announce_failure)

    def _announce_failure(self) -> None:
        try:
            cluster.announce_log_dir_failure(self.session, self.broker_id)
        except SessionExpiredError:
            pass  # the controller asks for all replicas of a broker that comes back
        except MetadataError:
            self.after(_RETRY_MS * US_PER_MS, self._announce_failure)

    def all_directories_failed(self) -> None:
        self.after(US_PER_MS, self._stop_without_disks)

    def _stop_without_disks(self) -> None:
        self.world.crash(self.broker_id, power=False)
        self.world.start(self.broker_id)  # the disks are replaced while its old session ends

    # -- the end ---------------------------------------------------------------------------------------------

    def checkpoint(self, log: PartitionLog) -> None:
        """A log was truncated."""
        self.logs.checkpoint(os.path.dirname(log.directory))

    def end(self) -> None:
        """The process is gone: nothing more is written."""
        self.process.end()
        self.logs.release()
