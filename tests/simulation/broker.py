"""One process of the simulated cluster: the broker's parts as the real broker connects them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from klog.config.broker import BrokerConfig
from klog.controller.core import ControllerCore
from klog.controller.events import (
    Event,
    RebalanceDue,
    SessionExpired,
    SessionRenewed,
    Startup,
    preempt,
)
from klog.formats.names import TopicPartition
from klog.metadata import cluster
from klog.metadata.cache import MetadataCache
from klog.metadata.control_requests import ControlRequest
from klog.metadata.errors import MetadataError, SessionExpiredError
from klog.metadata.store import SessionState
from klog.metadata.topics import present_topic_names
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.replication.partition import ReplicaContext
from klog.replication.purgatory import Purgatory, Timer
from klog.replication.quota import ReplicationQuota
from klog.replication.replica_manager import ReplicaManager
from klog.security.quotas.client_quotas import ClientQuotas
from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.usage import QuotaWindows
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.cluster.api_versions import ApiVersionsHandler
from klog.server.handlers.cluster.deleted_topics import DeletedTopics
from klog.server.handlers.data.fetch_sessions import FetchSessions
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.logs.cleaning import ServedLogs
from klog.server.logs.log_dir_moves import LogDirMoves
from klog.server.logs.topic_reads import read_topic_ids
from klog.server.peers.controller_channel import ToController
from klog.server.startup.purgatories import Purgatories
from klog.server.startup.routes import HandlerServices
from klog.storage.log.manager_values import Progress
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.upkeep import Upkeep
from tests.simulation.cleaning_loop import CleaningLoop
from tests.simulation.control_sending import Sender
from tests.simulation.coordinators import Coordinators
from tests.simulation.disk import Disk, Tasks
from tests.simulation.driver_loop import SimulatedWorker
from tests.simulation.following import BACKOFF_MS, follow
from tests.simulation.history import Seen
from tests.simulation.isr_loop import MAX_LAG_MS, IsrLoop
from tests.simulation.scheduler import US_PER_MS, Process, stream
from tests.simulation.serving import Serving
from tests.simulation.to_controller import ToControllerLoop
from tests.simulation.tree import TREE, SimulatedSession

if TYPE_CHECKING:
    from tests.simulation.world import World

_RETRY_MS = 100
_REBALANCE_MS = 2_500
_CLEANING_MS = 1_250
_CONFIG = BrokerConfig(
    {"log.cleaner.dedupe.buffer.size": str(1 << 20), "log.cleaner.io.buffer.size": str(1 << 16)}
)

Answer = Callable[[Any], None]


class SimulatedBroker:
    """A broker that runs. It ends by `crash`; what it leaves is on its disk."""

    def __init__(self, world: World, broker_id: int, disk: Disk) -> None:
        self.world = world
        self._scheduler = world.scheduler
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
        tasks = Tasks(world.scheduler, self.process)
        self.logs = self.disk.open(tasks, world.topic_config, self.wall_ms, self.broker_id, self)
        self.cleaning = CleaningLoop(self, _CONFIG)
        self.cleaner = self.cleaning.cleaner
        Upkeep(self.logs, self.wall_ms, self.cleaner.retention_of_others).start()
        tasks.every(_CLEANING_MS, self.cleaning.clean)
        self._timer_due_us: int | None = None
        self.timer = timer = Timer(self.clock_ms, self._arm_timer)
        self.purgatories = Purgatories(
            cast(Any, None),
            Purgatory("Produce", timer),
            Purgatory("Fetch", timer),
            Purgatory("DeleteRecords", timer),
            Purgatory("topic", timer),
            Purgatory("ElectLeader", timer),
        )
        self.replicas = ReplicaManager(
            ReplicaContext(
                self.broker_id,
                self.clock_ms,
                lambda: self.cache.snapshot.brokers,
                MAX_LAG_MS,
                self._propose_isr,
            ),
            ServedLogs(self.logs, self.cleaner, lambda _topic: None),
            self.purgatories.produce,
            self.purgatories.fetch,
            self.purgatories.delete_records,
            lambda names: read_topic_ids(self.session, names),
        )
        self.to_controller = cast(ToController, ToControllerLoop(self))
        follow(self)
        self.isr = IsrLoop(self)
        self.lookup = PartitionLookup(self.replicas, self.cache)
        self.log_dir_moves = LogDirMoves(
            self.logs,
            self.cleaner,
            self.replicas,
            self.disk.directories,
            ReplicationQuota(lambda: None),
            threads=1,
            backoff_ms=BACKOFF_MS,
            timer_ms=self.clock_ms,
            clock_ms=self.wall_ms,
            new_worker=self._new_worker,
        )
        self.coordinators = Coordinators(self, world.internal_partitions)
        self.serving = Serving(self, self._handler_services())

    def _new_worker(self, _name: str, work: Callable[[], float | None], *, retry_s: float) -> Any:
        return SimulatedWorker(self, work)

    def _handler_services(self) -> HandlerServices:
        """What the handlers of the real broker work with."""
        return HandlerServices(
            broker_id=self.broker_id,
            cluster_id="c1u5ter",
            store=self.session,
            cache=self.cache,
            config=lambda: _CONFIG,
            check_config=lambda _config: None,
            replicas=self.replicas,
            log_dir_moves=self.log_dir_moves,
            groups=self.coordinators.group_coordinator,
            transactions=self.coordinators.parts,
            controller=cast(Any, self),
            purgatories=self.purgatories,
            sessions=FetchSessions(100, self.clock_ms, lambda: self.random.randrange(1, 1 << 31)),
            topic_stats=BrokerTopicStats(),
            client_quotas=ClientQuotas(),
            ip_limits=IpLimits(QuotaWindows(), lambda name: name),
            leader_quota=ReplicationQuota(lambda: None),
            counters=self.world.request_counters,
            clock_ns=lambda: 0,
            clock_ms=self.wall_ms,
            timer_ms=self.clock_ms,
            hosted=lambda: (),
            broker_epoch=lambda: self.epoch,
            api_versions=ApiVersionsHandler(lambda: 0),
            run_in_background=lambda request, work: work(request),
            create_in_background=lambda request, work: work(request),
            deleted_topics=DeletedTopics(
                self.cache,
                lambda: present_topic_names(self.session),
                self.coordinators.group_coordinator.partitions_deleted,
                self._new_worker,
            ),
            member_id=lambda prefix: f"{prefix}-{self.random.getrandbits(64):016x}",
        )

    @property
    def is_active(self) -> bool:
        """Whether the controller of this broker is the active one."""
        return self.core.is_active

    def _propose_isr(self, key: TopicPartition) -> None:
        self.isr.propose(key)

    # -- time ------------------------------------------------------------------------------------------------

    def clock_ms(self) -> int:
        return self._scheduler.now_ms + self._clock_ahead_ms

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
        self.world.registered_ms[self.broker_id].append(self._scheduler.now_ms)

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

    # -- the listener of the log manager ---------------------------------------------------------------------

    def loaded(self, progress: Progress) -> None: ...

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """What `LogEvents` does."""
        assert directory in self.world.failing, f"{directory} has failed: {why}"
        self.cleaner.directory_failed(directory)
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
        self.cleaning.abandon()
        self.logs.release()
