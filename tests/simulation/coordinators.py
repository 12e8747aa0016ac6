"""The coordinators of a simulated broker: groups and transactions, connected as the real broker does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from klog.coordinator.groups.classic.rebalance import GroupLimits
from klog.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from klog.coordinator.groups.services import GroupServices
from klog.coordinator.groups.values import Now
from klog.coordinator.groups.writing import Writer
from klog.coordinator.transactions.coordinator import (
    TRANSACTION_STATE,
    TransactionCoordinator,
    TransactionSettings,
)
from klog.coordinator.transactions.end_waits import WAIT_MS, EndWaits
from klog.coordinator.transactions.requests import TransactionRequests
from klog.coordinator.transactions.transaction_partition import TransactionServices
from klog.coordinator.transactions.values import TransactionState
from klog.drivers.verification import Answers, Questions, VerificationDriver
from klog.formats import compression
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.metadata.producer_ids import ProducerIds
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import decode_response, encode_request
from klog.replication.internal_append import InternalAppends
from klog.server.coordinators import groups as group_wiring
from klog.server.coordinators import transaction_coordinator as transaction_wiring
from klog.server.coordinators.internal_topics import led_logs, when_replicated
from klog.server.coordinators.transaction_coordinator import BrokerTransactions
from klog.server.transactions.marker_writing import MarkerWriting
from klog.server.transactions.opening import coordinator_lookup
from klog.server.transactions.producer_id_blocks import from_controller
from klog.server.transactions.verification import Verification
from klog.server.transactions.verifying import AskingCoordinators, answers_in, request_of
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.frames import ask_frame, highest_version
from tests.simulation.marker_loop import MarkerLoop
from tests.simulation.network import REQUEST_TIMEOUT_MS
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

INTERNAL = (CONSUMER_OFFSETS, TRANSACTION_STATE)
# What groups read: they commit offsets of it. Nobody writes to it, and it is never deleted.
INPUT = "input"
INPUT_PARTITIONS = 3
APPEND_TIMEOUT_MS = 750
ABORT_CHECK_MS = 350
_LARGE = 1 << 20
_FOREVER_MS = 1 << 40


class OneAtATime:
    """The thread that loads partitions, as calls of the simulated process: one at a time, each a while
    after the one before.
    """

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._calls: deque[Callable[[], object]] = deque()

    def submit(self, call: Callable[..., object], /, *arguments: object) -> object:
        self._calls.append(partial(call, *arguments))
        if len(self._calls) == 1:
            self._go_on()
        return None

    def _go_on(self) -> None:
        self._broker.after(int(self._broker.random.expovariate(1 / 8_000)) + 100, self._run)

    def _run(self) -> None:
        self._calls[0]()
        self._calls.popleft()
        if self._calls:
            self._go_on()

    def shutdown(self, *, cancel_futures: bool) -> None:
        self._calls.clear()


class Verifier(AskingCoordinators):
    """Asks the coordinators as `Verifying` does, without its threads."""

    def __init__(self, broker: SimulatedBroker, transactions: TransactionRequests) -> None:
        super().__init__(
            broker.broker_id, coordinator_lookup(broker.cache), transactions.verify_partitions, self._go_on
        )
        self._broker = broker
        self._loops: dict[int, DriverLoop] = {}

    def _go_on(self, broker_id: int) -> None:
        loop = self._loops.get(broker_id)
        if loop is None:
            driver = VerificationDriver(self.queue, broker_id)
            loop = self._loops[broker_id] = DriverLoop(self._broker, driver, partial(self._send, broker_id))
        loop.wake()

    def _send(self, broker_id: int, questions: Questions, reply: Reply) -> None:
        version = highest_version(ApiKey.ADD_PARTITIONS_TO_TXN)

        def decode(version: int, body: memoryview) -> Answers:
            return answers_in(decode_response(ApiKey.ADD_PARTITIONS_TO_TXN, version, body), questions)

        ask_frame(
            self._broker,
            self._broker.world.brokers.get(broker_id),
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            (encode_request(request_of(version, questions)),),
            decode,
            reply,
        )


class Coordinators:
    """What one broker coordinates, and what it asks and tells other brokers about it.

    `partitions` says how many each of the internal topics has.
    """

    def __init__(self, broker: SimulatedBroker, partitions: dict[str, int]) -> None:
        self._broker = broker
        self.appends = InternalAppends(
            broker.replicas,
            broker.purgatories.produce,
            broker.lookup.known,
            clock_ms=broker.wall_ms,
            timer_ms=broker.clock_ms,
        )
        self.group_coordinator = self._open_groups(partitions[CONSUMER_OFFSETS])
        writing = MarkerWriting(self.appends, self.group_coordinator, timeout_ms=APPEND_TIMEOUT_MS)
        markers = MarkerLoop(broker, writing.write)
        self._transaction_coordinator = self._open_transactions(partitions[TRANSACTION_STATE], markers)
        self.transactions = TransactionRequests(self._transaction_coordinator)
        verifier = Verifier(broker, self.transactions)
        verification = Verification(broker.replicas, verifier, lambda: True, broker.wall_ms)
        self.parts = BrokerTransactions(
            self._transaction_coordinator,
            self.transactions,
            verification,
            cast(Any, markers),
            writing,
            cast(Any, verifier),
        )
        broker.replicas.add_listener(self._transaction_coordinator.roles_changed)
        broker.replicas.add_listener(self.group_coordinator.roles_changed)
        if broker.world.has_coordinators:
            self._abort_timed_out()

    def _open_transactions(self, partitions: int, markers: MarkerLoop) -> TransactionCoordinator:
        broker = self._broker
        services = TransactionServices(
            append=transaction_wiring._append(self.appends),
            timer=broker.timer,
            clock_ms=broker.wall_ms,
            timer_ms=broker.clock_ms,
            markers=markers,
            next_producer_id=ProducerIds(
                from_controller(
                    broker.to_controller, broker.broker_id, lambda: broker.epoch, REQUEST_TIMEOUT_MS
                ),
                wait_s=0,
            ).next_id,
            waits=EndWaits(broker.timer, broker.clock_ms, WAIT_MS),
            when_replicated=when_replicated(self.appends, TRANSACTION_STATE),
        )
        settings = TransactionSettings(
            partitions,
            _FOREVER_MS,
            _FOREVER_MS,
            _LARGE,
            ABORT_CHECK_MS,
            _FOREVER_MS,
            APPEND_TIMEOUT_MS,
            _LARGE,
        )
        log_of = led_logs(broker.replicas, TRANSACTION_STATE)
        return TransactionCoordinator(settings, services, log_of, OneAtATime(broker))

    def _open_groups(self, partitions: int) -> GroupCoordinator:
        broker = self._broker
        services = GroupServices(
            append=group_wiring._append(self.appends, APPEND_TIMEOUT_MS),
            run_append=group_wiring._RunAppend(self.appends, -1, 5000),
            timer=broker.timer,
            clock=lambda: Now(broker.wall_ms(), broker.clock_ms()),
            writer=Writer(compression.NONE),
            limits=GroupLimits(100, 100),
            commit_acks=-1,
            when_replicated=when_replicated(self.appends, CONSUMER_OFFSETS),
        )
        settings = GroupSettings(partitions, 1, _FOREVER_MS, 1000, _LARGE, _FOREVER_MS, _FOREVER_MS)
        log_of = led_logs(broker.replicas, CONSUMER_OFFSETS)
        return GroupCoordinator(settings, services, log_of, OneAtATime(broker))

    def _abort_timed_out(self) -> None:
        self._transaction_coordinator.abort_timed_out()
        self._broker.after(ABORT_CHECK_MS * US_PER_MS, self._abort_timed_out)

    def has_ended(self, transactional_id: str, *, committed: bool) -> bool:
        """Whether the last transaction of an id has ended so, as far as this broker knows."""
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        return self.transactions.describe(transactional_id).state == state.title

    def _is_stray(self, key: TopicPartition) -> bool:
        return self._broker.world.is_stray(key, self._broker.broker_id)

    def _loads(self, coordinator: TransactionCoordinator | GroupCoordinator, key: TopicPartition) -> bool:
        """Whether a partition is being loaded. A stray replica may wait for its followers for good."""
        owner: object = coordinator.owner_at(key.partition)
        return owner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not self._is_stray(key)

    def undecided(self) -> str:
        """A transaction that this broker coordinates and that is open or not complete; empty if none is."""
        for topic, coordinator in (
            (TRANSACTION_STATE, self._transaction_coordinator),
            (CONSUMER_OFFSETS, self.group_coordinator),
        ):
            for number in range(coordinator.settings.partitions):
                if self._loads(coordinator, TopicPartition(topic, number)):
                    return f"b{self._broker.broker_id} is loading {topic}-{number}"
        for owner in self._transaction_coordinator.owned():
            if self._is_stray(TopicPartition(TRANSACTION_STATE, owner.number)):
                continue  # another broker coordinates its transactions
            for each in owner.transactions.values():
                if each.pending is not None or not each.is_expired(_FOREVER_MS * 2, 0):
                    return f"b{self._broker.broker_id}: {each.described()} is not complete"
        return ""
