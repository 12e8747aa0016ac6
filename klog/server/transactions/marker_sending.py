"""Sends transaction markers: to other brokers with WriteTxnMarkers, and to the log of this one.

Rules: Kafka's `TransactionMarkerChannelManager`; KIP-98. `klog.drivers.markers` decides what is sent. There
is a thread for each other broker.

Markers for this broker go to the function that also serves WriteTxnMarkers, with the same values: a request
over the wire would cost each transaction a round trip between two threads. The thread that has decided a
transaction writes them; markers that were refused are written again by a thread of their own, after a pause.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.coordinator.transactions.values import MarkersToWrite, OnWritten
from klog.drivers.fenced_markers import FencedMarkers
from klog.drivers.marker_queues import UNKNOWN, LeaderOf, MarkerErrors
from klog.drivers.markers import (
    LeaderLookup,
    MarkerRequest,
    MarkerRoutes,
    MarkersHere,
    MarkersToBroker,
)
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.transaction_messages import TxnMarker, read_written_markers, write_markers
from klog.server.threads.driver_thread import DriverRun, DriverThread, asking
from klog.server.transactions.broker_threads import BrokerThreads, Connect
from klog.server.transactions.producer_epochs import NewestEpochs, known_epochs

_log = logging.getLogger(__name__)

# Brokers before 2.8 know version 0 only; no cluster that klog joins has one (inter.broker.protocol 3.4).
_VERSION: Final = 1
_STOP_S: Final = 1.0

Write = Callable[[Collection[TxnMarker], Callable[[MarkerErrors], None]], None]
"""`MarkerWriting.write` of this broker."""


class MarkerSending:
    """The `MarkerSender` of a broker. Safe for threads.

    `existing` says which of some partitions exist. It and `newest` ask the metadata store, and may raise
    `StoreError`. `clock_ms` is never set
    back.
    """

    def __init__(
        self,
        broker_id: int,
        write: Write,
        leader_of: LeaderOf,
        existing: Callable[[Collection[TopicPartition]], Collection[TopicPartition]],
        newest: NewestEpochs,
        connect: Connect,
        clock_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._routes = MarkerRoutes(broker_id, leader_of, self._wake)
        self._threads = BrokerThreads("klog-txn-markers", connect, self._sender_to)
        routes, lock = self._routes, self._lock
        self._lookup = DriverThread(
            "klog-txn-marker-leaders",
            LeaderLookup(routes),
            asking(lambda request: existing(request.partitions)),
            clock_ms,
            lock,
        )
        epochs = asking(partial(known_epochs, leader_of=leader_of, connect=connect, newest=newest))
        self._fenced = DriverThread("klog-txn-marker-epochs", FencedMarkers(routes), epochs, clock_ms, lock)
        self._here = DriverThread(
            f"klog-txn-markers-{broker_id}",
            MarkersHere(routes),
            lambda request, reply: write(request.markers, reply),
            clock_ms,
            lock,
            takes_at_once=True,
        )
        for each in (self._here, self._lookup, self._fenced):
            each.start()

    @property
    def waiting_for_leaders(self) -> int:
        """How many entries wait for a leader to be known."""
        with self._lock:
            return self._routes.queues.waiting_for_leaders

    def send(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        """Returns at once. Markers for this broker wait for `write_own`; the others are on their way."""
        with self._lock:
            self._routes.add(wanted, on_written)

    def write_own(self) -> None:
        """Write the markers that wait for this broker."""
        self._here.run()

    def forget(self, coordinator_partition: int) -> None:
        """Stop sending the markers of a partition of `__transaction_state`."""
        with self._lock:
            self._routes.queues.forget(coordinator_partition)

    def stop(self) -> None:
        """End the threads. After a start the coordinator sends again what has no answer yet."""
        for each in (self._here, self._lookup, self._fenced):
            each.stop()
        self._threads.stop()
        # They may wait for a metadata store that is away.
        for each in (self._lookup, self._fenced, self._here):
            each.worker.join(_STOP_S)

    # -- sending ---------------------------------------------------------------------------------------------

    def _wake(self, broker_id: int) -> None:
        if broker_id == UNKNOWN:
            self._lookup.worker.wake()
        elif broker_id == self._broker_id:
            self._here.worker.wake()
        else:
            self._threads.wake(broker_id)

    def _sender_to(self, broker_id: int, connection: ReconnectingConnection) -> Callable[[], float | None]:
        """What sends all that waits for another broker, on its thread."""
        return DriverRun(
            MarkersToBroker(self._routes, broker_id),
            asking(partial(_ask, broker_id, connection)),
            self._clock_ms,
            partial(self._threads.wake, broker_id),
            self._lock,
        ).run


def _ask(broker_id: int, connection: ReconnectingConnection, request: MarkerRequest) -> MarkerErrors:
    body = write_markers(_VERSION, request.markers)
    try:
        return connection.request(ApiKey.WRITE_TXN_MARKERS, _VERSION, (body,), read_written_markers)
    except KlogError as lost:
        _log.info("markers for broker %d are sent again: %s", broker_id, lost)
        raise
