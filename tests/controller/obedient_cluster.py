"""A simulated cluster in one thread: real controllers on a tree in memory, and brokers that only obey.

Everything that takes time in a real cluster (a watch, an event, a request) waits in a queue, and the test
chooses what happens next. `settle` lets everything happen in a fixed order. Nothing sleeps. Schedules at
random, with brokers that really replicate, are played by `tests/simulation/`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from klog.controller.core import ControllerCore
from klog.controller.events import (
    AlterPartition,
    Event,
    ResponseReceived,
    SessionExpired,
    SessionRenewed,
    Startup,
    preempt,
)
from klog.controller.settings import ControllerSettings
from klog.formats.names import TopicPartition
from klog.metadata import cluster, paths, topics, znodes
from klog.metadata.cache import MetadataCache
from klog.metadata.control_requests import ControlRequest, ControlResponse, partition_states, topic_ids
from klog.metadata.errors import StoreError
from klog.metadata.local import SharedTree
from klog.metadata.store import Check, MultiResult, Operation, SessionState
from klog.metadata.topics import new_topic_id
from klog.metadata.values import (
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    TopicAssignment,
    TopicIdPartition,
)
from klog.metadata.watches import Delivery
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, StopReplicaRequest
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest
from klog.server.peers.controller_times import ControllerTimes
from tests.metadata.memory_tree import MemorySession, NoJournal


class WitnessedSession(MemorySession):
    """A session that records which broker wrote in which controller epoch."""

    def __init__(self, world: SimulatedCluster, broker_id: int) -> None:
        self.pending: deque[Delivery] = deque()
        self._world = world
        self._broker_id = broker_id
        super().__init__(world.shared, self.pending.extend)

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[MultiResult | StoreError]:
        outcomes = super().multi_many(multis)
        for operations, outcome in zip(multis, outcomes, strict=True):
            first = operations[0]
            if (
                isinstance(first, Check)
                and first.path == paths.CONTROLLER_EPOCH
                and isinstance(outcome, list)
            ):
                self._world.witness(self._broker_id, first.version)
        return outcomes


class SimulatedBroker:
    """One process: a session, a controller core, and the broker that obeys controllers.

    Its logs are on `disk`, which outlives it.
    """

    def __init__(self, world: SimulatedCluster, broker_id: int, disk: set[TopicPartition]) -> None:
        self.world = world
        self.broker_id = broker_id
        self.disk = disk
        self.offline: set[TopicPartition] = set()
        self.hosted: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.cache = MetadataCache()
        self.controller_epoch = 0
        self.epoch = -1
        self.alive = True
        self.events: deque[Event] = deque()
        self.outgoing: dict[int, deque[ControlRequest]] = {}
        self.session = WitnessedSession(world, broker_id)
        self.session.add_session_listener(self._on_session)
        self.core = ControllerCore(
            lambda: replace(world.settings, broker_id=broker_id),
            self.session,
            self,
            self.events.append,
            self._register,
            world.now_ms,
            world.times,
        )
        cluster.create_persistent_nodes(self.session)
        self._register()
        self.events.append(Startup())

    def _register(self) -> None:
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"b{self.broker_id}", 9092)
        registration = BrokerRegistration(self.broker_id, (endpoint,))
        self.epoch = cluster.register_broker(self.session, registration)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            dropped = list(self.events)
            self.events.clear()
            self.events.append(SessionExpired())
            for event in dropped:
                preempt(event)
        elif state is SessionState.CONNECTED:
            self.events.append(SessionRenewed())

    # --- the BrokerRequestQueue of the controller ---

    def add_broker(self, broker: BrokerRegistration) -> None:
        self.outgoing.setdefault(broker.broker_id, deque())

    def remove_broker(self, broker_id: int) -> None:
        self.outgoing.pop(broker_id, None)

    def send(self, broker_id: int, request: ControlRequest) -> None:
        if broker_id in self.outgoing:
            self.outgoing[broker_id].append(request)

    def close(self) -> None:
        # Requests that were sent arrive nevertheless, late. Brokers must refuse them as an older
        # controller's.
        self.world.late.extend((to, each) for to, queue in self.outgoing.items() for each in queue)
        self.outgoing.clear()

    # --- what this process can do next ---

    def steps(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        if self.session.pending:
            steps.append(self._see)
        if self.events:
            steps.append(self._handle)
        steps += [
            lambda to=to: self._transmit(to)  # type: ignore[misc]
            for to, queue in self.outgoing.items()
            if queue and to in self.world.brokers and to != self.world.cut_off
        ]
        return steps

    def _see(self) -> None:
        self.session.pending.popleft()()

    def _handle(self) -> None:
        self.core.handle(self.events.popleft())

    def _transmit(self, to: int) -> None:
        request = self.outgoing[to].popleft()
        response = self.world.brokers[to].obey(request)
        self.events.append(ResponseReceived(to, request, response))

    # --- the broker that obeys ---

    def obey(self, request: ControlRequest) -> ControlResponse:
        if request.broker_epoch < self.epoch:
            return ControlResponse(ErrorCode.STALE_BROKER_EPOCH)
        if request.controller_epoch < self.controller_epoch:
            return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        self.world.requests.append((self.broker_id, request))
        match request:
            case LeaderAndIsrRequest():
                return ControlResponse(partitions=self._host(request))
            case StopReplicaRequest():
                return ControlResponse(partitions=self._stop(request))
            case UpdateMetadataRequest():
                self.cache.update(request)
                return ControlResponse()

    def _host(self, request: LeaderAndIsrRequest) -> dict[TopicPartition, ErrorCode]:
        errors = {}
        ids = topic_ids(request.topic_states)
        for partition, state in partition_states(request.topic_states):
            known = self.hosted.get(partition)
            self.world.witness_leader(ids[partition.topic], state)
            if partition in self.offline:
                errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif known is not None and state.leader_epoch <= known.leader_epoch:
                errors[partition] = ErrorCode.STALE_CONTROLLER_EPOCH
            else:
                assert self.broker_id in state.replicas
                self.hosted[partition] = state
                self.disk.add(partition)
                errors[partition] = ErrorCode.NONE
        return errors

    def _stop(self, request: StopReplicaRequest) -> dict[TopicPartition, ErrorCode]:
        errors = {}
        for partition, each in partition_states(request.topic_states):
            known = self.hosted.get(partition)
            fenced = known is not None and each.leader_epoch < known.leader_epoch
            if partition in self.offline:
                errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif fenced and each.leader_epoch not in (EPOCH_DURING_DELETE, -1):
                errors[partition] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                errors[partition] = ErrorCode.NONE
                if each.delete_partition:
                    self.hosted.pop(partition, None)
                    self.disk.discard(partition)
        return errors

    def led(self) -> list[TopicPartition]:
        return sorted(partition for partition, each in self.hosted.items() if each.leader == self.broker_id)

    def alter_isr(self, partition: TopicPartition, isr: tuple[int, ...]) -> bool:
        """As leader, asks the controller for another ISR. Returns False if there is no controller."""
        known = self.hosted[partition]
        active = self.world.active()
        if active is None:
            return False
        wanted = LeaderAndIsr(
            self.broker_id, known.leader_epoch, isr, LeaderRecoveryState.RECOVERED, known.partition_epoch
        )

        topic = topics.read_topics(self.session, [partition.topic]).get(partition.topic)
        if topic is None:
            return False
        asked = TopicIdPartition(topic.topic_id or "", partition.partition)

        def reply(answer: dict[TopicIdPartition, LeaderAndIsr | ErrorCode] | ErrorCode) -> None:
            outcome = answer.get(asked) if isinstance(answer, dict) else answer
            current = self.hosted.get(partition)
            if isinstance(outcome, LeaderAndIsr) and current is not None:
                newer = outcome.partition_epoch >= current.partition_epoch
                if outcome.leader_epoch == current.leader_epoch and newer:
                    self.hosted[partition] = replace(
                        current, isr=outcome.isr, partition_epoch=outcome.partition_epoch
                    )

        active.events.append(AlterPartition(self.broker_id, self.epoch, {asked: wanted}, 3, reply))
        return True

    def fail_dir(self, partitions: Iterable[TopicPartition]) -> None:
        self.offline.update(partitions)
        note = znodes.encode_log_dir_event(self.broker_id)
        self.session.create(paths.LOG_DIR_EVENT_PREFIX, note, sequential=True)


class SimulatedCluster:
    """Brokers, the tree that they share, and invariants."""

    def __init__(self, broker_ids: Iterable[int], settings: ControllerSettings | None = None) -> None:
        self.settings = settings or ControllerSettings(broker_id=-1)
        self.times = ControllerTimes()
        self.time_ms = 1_000_000
        self.shared = SharedTree(NoJournal(), self.now_ms)
        self.late: deque[tuple[int, ControlRequest]] = deque()
        self.requests: list[tuple[int, ControlRequest]] = []
        self.disks: dict[int, set[TopicPartition]] = {}
        self.brokers: dict[int, SimulatedBroker] = {}
        self._writers: dict[int, int] = {}
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._ids = 0
        # Requests to this broker are not delivered for now.
        self.cut_off: int | None = None
        self.admin = MemorySession(self.shared, lambda _deliveries: None)
        for broker_id in broker_ids:
            self.start(broker_id)

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms

    # --- what happens to the cluster ---

    def start(self, broker_id: int) -> SimulatedBroker:
        disk = self.disks.setdefault(broker_id, set())
        self.brokers[broker_id] = SimulatedBroker(self, broker_id, disk)
        return self.brokers[broker_id]

    def kill(self, broker_id: int) -> None:
        broker = self.brokers.pop(broker_id)
        broker.alive = False
        broker.close()
        broker.session.close()

    def create_topic(
        self, name: str, partitions: dict[int, list[int]], config: dict[str, str] | None = None
    ) -> None:
        self._ids += 1
        number = self._ids
        topic_id = new_topic_id(lambda count: number.to_bytes(count, "big"))
        topics.create_topic(self.admin, name, topic_id, partitions, config or {}, self.known_brokers())

    def known_brokers(self) -> set[int]:
        return set(self.brokers) | set(self.disks)

    # --- the state of the cluster ---

    def active(self) -> SimulatedBroker | None:
        """The active controller. If several think that they are, the one with the latest epoch."""
        active = [each for each in self.brokers.values() if each.core.active is not None]
        return max(active, key=lambda each: each.core.active.fenced.epoch, default=None)  # type: ignore[union-attr]

    def topic(self, name: str) -> TopicAssignment:
        return topics.read_topics(self.admin, [name])[name]

    def states(self, name: str) -> dict[int, LeaderIsrAndControllerEpoch]:
        partitions = [partition for partition, _ in self.topic(name)]
        return {
            partition.partition: each
            for partition, each in topics.read_partition_states(self.admin, partitions).items()
        }

    def state(self, name: str, partition: int = 0) -> LeaderAndIsr:
        return self.states(name)[partition].leader_and_isr

    # --- steps ---

    def steps(self) -> list[Callable[[], None]]:
        steps = [step for each in self.brokers.values() for step in each.steps()]
        if self.late:
            steps.append(self._deliver_late)
        return steps

    def _deliver_late(self) -> None:
        to, request = self.late.popleft()
        if to in self.brokers:
            self.brokers[to].obey(request)

    def settle(self, limit: int = 100_000) -> None:
        """Takes steps until there are none."""
        for _ in range(limit):
            steps = self.steps()
            if not steps:
                return
            steps[0]()
        raise AssertionError("the cluster never comes to rest")

    # --- invariants ---

    def witness(self, broker_id: int, epoch_version: int) -> None:
        """At most one controller acts in an epoch."""
        assert self._writers.setdefault(epoch_version, broker_id) == broker_id

    def witness_leader(self, topic_id: str, state: LeaderAndIsrPartitionState) -> None:
        """Each leader epoch has one leader."""
        key = (topic_id, state.partition_index, state.leader_epoch)
        assert self._leaders.setdefault(key, state.leader) == state.leader
