"""Runs the controller in a broker: one thread, a queue of events, and a timer for preferred leader elections.

The answers of requests are given through `reply` on the controller's thread. `reply` must not block.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from klog.controller import events
from klog.controller.broker_request_queue import BrokerRequestQueue
from klog.controller.context import ControllerContext
from klog.controller.core import ControllerCore
from klog.controller.events import (
    Event,
    RebalanceDue,
    SessionExpired,
    SessionRenewed,
    Startup,
    preempt,
)
from klog.controller.observer import ControllerObserver, ControllerState
from klog.controller.settings import ControllerSettings
from klog.controller.states import PartitionState, ReplicaState
from klog.metadata.control_requests import ControlRequest
from klog.metadata.store import MetadataStore, SessionState
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest

_log = logging.getLogger(__name__)

_NS_A_SECOND = 1_000_000_000
_FIRST_REBALANCE_NS = 5 * _NS_A_SECOND
_BACKOFF_MS = 25
_MAX_BACKOFF_DOUBLINGS = 6


class _Queued(NamedTuple):
    """An event, and the time at which it was queued."""

    event: Event
    since_ns: int


class Controller:
    """The controller of a broker. Start it when the broker is registered.

    `reregister` registers the broker again after its session has expired. `now_ms` is the wall clock.
    `timer_ns` is a clock that is never set back; it decides when a rebalance is due, and gives the times that
    `observer` gets.
    """

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        store: MetadataStore,
        request_queue: BrokerRequestQueue,
        reregister: Callable[[], None],
        now_ms: Callable[[], int],
        timer_ns: Callable[[], int],
        observer: ControllerObserver,
    ) -> None:
        self._settings = settings
        self._timer_ns = timer_ns
        self._observer = observer
        self._queue: deque[_Queued] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        # Only the store's callbacks use this, and they are called one at a time.
        self._expired = False
        self._next_rebalance_ns: int | None = None
        self.state = ControllerState.IDLE
        self._core = ControllerCore(settings, store, request_queue, self.put, reregister, now_ms, observer)
        self._thread = threading.Thread(target=self._run, name="klog-controller", daemon=True)
        store.add_session_listener(self._on_session)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._core.is_active

    @property
    def active_controller_id(self) -> int:
        """The broker id of the controller as far as this broker knows, or -1."""
        return self._core.active_controller_id

    @property
    def queued_events(self) -> int:
        """The number of events that wait for the thread."""
        return len(self._queue)

    def queued_requests(self) -> Mapping[int, int]:
        """How many requests to each broker wait; none if this broker is not the controller."""
        return self._core.request_queue.queued()

    def leave_out(self, broker_id: int) -> None:
        """Sends nothing more to the broker that this controller runs in: its network is about to close."""
        self._core.request_queue.remove_broker(broker_id)

    def gauges(self) -> Mapping[str, int]:
        """The gauges of now; none if this broker is not the controller: they are all 0."""
        active = self._core.active
        return {} if active is None else gauges(active.context)

    def start(self) -> None:
        self.put(Startup())
        self._thread.start()

    def put(self, event: Event) -> None:
        """Queues an event. After `stop`, requests are answered NOT_CONTROLLER at once."""
        with self._changed:
            if not self._stopping:
                self._queue.append(_Queued(event, self._timer_ns()))
                self._changed.notify()
                return
        preempt(event)

    def stop(self, timeout_ms: int | None = None) -> bool:
        """Ends the thread after the current event, answers queued requests, and resigns. May be called again.

        Returns False if the thread still waits for the store after the timeout. Closing the store ends it
        then.
        """
        with self._changed:
            self._stopping = True
            dropped = self._drain()
            self._changed.notify()
        for event in dropped:
            preempt(event)
        if self._thread.ident is not None:
            self._thread.join(None if timeout_ms is None else timeout_ms / 1000)
        return not self._thread.is_alive()

    def _drain(self) -> list[Event]:
        events = [queued.event for queued in self._queue]
        self._queue.clear()
        return events

    def _on_session(self, state: SessionState) -> None:
        match state:
            case SessionState.EXPIRED:
                with self._changed:
                    # The queued events belong to the session that has expired.
                    dropped = self._drain()
                self._expired = True
                self.put(SessionExpired())
                for event in dropped:
                    preempt(event)
            case SessionState.CONNECTED if self._expired:
                self._expired = False
                self.put(SessionRenewed())

    def _run(self) -> None:
        try:
            while (queued := self._next()) is not None:
                failures = self._core.failures
                self._handle(queued)
                if self._core.failures > failures:
                    self._back_off()
                self._schedule_rebalance()
        finally:
            # However the thread ends: another broker can be elected, and every request gets an answer.
            self._core.resign()
            with self._changed:
                self._stopping = True
                dropped = self._drain()
            for event in dropped:
                preempt(event)

    def _handle(self, queued: _Queued) -> None:
        self.state = state_of(queued.event)
        began_ns = self._timer_ns()
        try:
            self._core.handle(queued.event)
        except Exception:
            # `reply` has failed, for example. It is a defect, but it must not stop the controller.
            _log.exception("the controller could not finish %r", queued.event)
        self._observer.handled(self.state, began_ns - queued.since_ns, self._timer_ns() - began_ns)
        self.state = ControllerState.IDLE

    def _back_off(self) -> None:
        """Waits before the next event: most likely it would fail too, and
        another broker may be elected meanwhile.
        """
        doublings = min(self._core.failures, _MAX_BACKOFF_DOUBLINGS)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, _BACKOFF_MS * 2**doublings / 1000)

    def _next(self) -> _Queued | None:
        """The next event, or RebalanceDue when a rebalance is due; None after `stop`."""
        with self._changed:
            while not self._stopping:
                now_ns = self._timer_ns()
                if self._next_rebalance_ns is not None and now_ns >= self._next_rebalance_ns:
                    interval_s = self._settings().leader_imbalance_check_interval_seconds
                    self._next_rebalance_ns = now_ns + interval_s * _NS_A_SECOND
                    return _Queued(RebalanceDue(), now_ns)
                if self._queue:
                    return self._queue.popleft()
                self._changed.wait(self._wait_s())
            return None

    def _wait_s(self) -> float | None:
        if self._next_rebalance_ns is None:
            return None
        return max(0.001, (self._next_rebalance_ns - self._timer_ns()) / _NS_A_SECOND)

    def _schedule_rebalance(self) -> None:
        if not self._core.is_active or not self._settings().auto_leader_rebalance_enable:
            self._next_rebalance_ns = None
        elif self._next_rebalance_ns is None:
            self._next_rebalance_ns = self._timer_ns() + _FIRST_REBALANCE_NS


# -- Computes the gauges of an active controller. Rules: the gauges of Kafka's `KafkaController` -------------


def gauges(context: ControllerContext) -> dict[str, int]:
    """The gauges of now, by Kafka's names.

    Any thread may call this: it copies in one step what the event thread may change.
    """
    being_deleted = context.topics_to_delete.copy()
    leadership = list(context.leadership.items())
    imbalance = 0
    for partition, known in leadership:
        leader = known.leader_and_isr.leader
        replicas = context.assignment(partition).replicas
        if replicas and leader != replicas[0] and partition.topic not in being_deleted:
            imbalance += 1
    states = list(context.partition_states.items())
    replicas_being_deleted = [
        state
        for replica, state in list(context.replica_states.items())
        if replica.partition.topic in being_deleted
    ]
    return {
        "GlobalTopicCount": len(context.topics),
        "GlobalPartitionCount": len(states),
        "OfflinePartitionsCount": sum(
            state is PartitionState.OFFLINE and partition.topic not in being_deleted
            for partition, state in states
        ),
        "PreferredReplicaImbalanceCount": imbalance,
        "TopicsToDeleteCount": len(being_deleted),
        "TopicsIneligibleToDeleteCount": len(context.topics_ineligible_for_deletion),
        "ReplicasToDeleteCount": sum(
            state is not ReplicaState.DELETION_SUCCESSFUL for state in replicas_being_deleted
        ),
        "ReplicasIneligibleToDeleteCount": sum(
            state is ReplicaState.DELETION_INELIGIBLE for state in replicas_being_deleted
        ),
        "ActiveBrokerCount": len(context.brokers),
    }


# Maps each event to what the controller does while it handles it. Rules: Kafka's `ControllerEvent.state`.

_BY_NODE: Final[Mapping[events.WatchedNode, ControllerState]] = {
    events.WatchedNode.CONTROLLER: ControllerState.CONTROLLER_CHANGE,
    events.WatchedNode.BROKERS: ControllerState.BROKER_CHANGE,
    events.WatchedNode.TOPICS: ControllerState.TOPIC_CHANGE,
    events.WatchedNode.DELETE_TOPICS: ControllerState.TOPIC_DELETION,
    events.WatchedNode.LOG_DIR_EVENTS: ControllerState.LOG_DIR_CHANGE,
    events.WatchedNode.ISR_CHANGES: ControllerState.ISR_CHANGE,
    events.WatchedNode.PREFERRED_ELECTION: ControllerState.MANUAL_LEADER_BALANCE,
    events.WatchedNode.REASSIGN_PARTITIONS: ControllerState.ALTER_PARTITION_REASSIGNMENT,
}

_BY_TYPE: Final[Mapping[type[events.Event], ControllerState]] = {
    events.Startup: ControllerState.CONTROLLER_CHANGE,
    events.SessionExpired: ControllerState.CONTROLLER_CHANGE,
    events.SessionRenewed: ControllerState.CONTROLLER_CHANGE,
    events.BrokerNodeChanged: ControllerState.BROKER_CHANGE,
    events.TopicNodeChanged: ControllerState.TOPIC_CHANGE,
    events.RebalanceDue: ControllerState.AUTO_LEADER_BALANCE,
    events.ControlledShutdown: ControllerState.CONTROLLED_SHUTDOWN,
    events.ElectLeaders: ControllerState.MANUAL_LEADER_BALANCE,
    events.AlterPartition: ControllerState.ISR_CHANGE,
    events.AlterReassignments: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    events.ListReassignments: ControllerState.LIST_PARTITION_REASSIGNMENT,
    events.AllocateProducerIds: ControllerState.IDLE,
}


def state_of(event: events.Event) -> ControllerState:
    """The state of the controller while it handles this event."""
    match event:
        case events.TreeChanged(node):
            return _BY_NODE[node]
        case events.ResponseReceived(request=request):
            return _on_answer(request)
        case events.UncleanElectionEnabled(topic):
            if topic is None:
                return ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
            return ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
        case _:
            return _BY_TYPE[type(event)]


def _on_answer(request: ControlRequest) -> ControllerState:
    match request:
        case LeaderAndIsrRequest():
            return ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
        case StopReplicaRequest():
            return ControllerState.TOPIC_DELETION
        case _:
            return ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED
