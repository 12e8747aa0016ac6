"""Brings transaction markers to the leaders of partitions: to other brokers with WriteTxnMarkers.

Rules: Kafka's `TransactionMarkerChannelManager`; KIP-98. `marker_queues` decides what goes where. There is
one request at a time to each other broker, with all that has gathered for it.

Markers for this broker go to the function that also serves WriteTxnMarkers, with the same values: a request
over the wire would cost each transaction a round trip between two threads. The thread that has decided a
transaction writes them; markers that were refused are written again by a thread of their own, after a pause.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.client.retry import RetryPolicy
from klog.coordinator.transaction.values import MarkersToWrite
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.metadata.errors import StoreError
from klog.protocol.apis import ApiKey
from klog.protocol.primitives import Buffer
from klog.protocol.transaction_messages import TxnMarker, read_written_markers, write_markers
from klog.replication.purgatory import Timer
from klog.replication.timing_wheel import TimedCall
from klog.server.transactions.broker_messages import known_error
from klog.server.transactions.broker_threads import BrokerThreads, Connect
from klog.server.transactions.leaders import UNKNOWN, LeaderOf
from klog.server.transactions.marker_queues import Entry, MarkerQueues, OnWritten, Transaction, judged
from klog.server.transactions.marker_writing import MarkerErrors
from klog.storage.worker import Worker

logger = logging.getLogger(__name__)

# Brokers before 2.8 know version 0 only; no cluster that klog joins has one (inter.broker.protocol 3.4).
_VERSION: Final = 1
_PAUSES: Final = RetryPolicy(None)
_LOOKUP_STOP_S: Final = 1.0

Write = Callable[[Collection[TxnMarker], Callable[[MarkerErrors], None]], None]
"""`MarkerWriting.write` of this broker."""


class MarkerSending:
    """The `MarkerSender` of a broker. Safe for threads.

    `topic_exists` asks the metadata store, and may raise `StoreError`. It is called for a partition whose
    leader is not known: while a broker starts, it knows no topics, and no marker must be dropped because of
    that. `timer_ms` is the clock of `timer`, which starts what has to be sent again after a pause.
    """

    def __init__(
        self,
        broker_id: int,
        write: Write,
        leader_of: LeaderOf,
        topic_exists: Callable[[str], bool],
        connect: Connect,
        timer: Timer,
        timer_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._write = write
        self._queues = MarkerQueues(leader_of)
        self._lock = threading.Lock()
        self._topic_exists = topic_exists
        self._timer = timer
        self._timer_ms = timer_ms
        self._lookups = 0  # in a row that left a leader unknown
        self._threads = BrokerThreads("klog-txn-markers", connect, self._send_to)
        self._lookup = Worker("klog-txn-marker-leaders", self._look_up)
        self._lookup.start()

    @property
    def waiting(self) -> int:
        """How many entries wait: for their turn, or for a leader to be known."""
        with self._lock:
            return self._queues.waiting

    @property
    def waiting_for_leaders(self) -> int:
        """How many of them wait for a leader to be known."""
        with self._lock:
            return self._queues.waiting_for_leaders

    def send(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        """Returns at once. Markers for this broker wait for `write_own`; the others are on their way."""
        with self._lock:
            brokers = self._queues.add(Transaction(wanted, on_written))
        brokers.discard(self._broker_id)
        if brokers:
            self._wake(brokers)

    def write_own(self) -> None:
        """Write the markers that wait for this broker."""
        while True:
            with self._lock:
                entries = self._queues.take(self._broker_id)
            if not entries:
                return
            try:
                self._write(_markers(entries), partial(self._answered, entries))
            except Exception:
                # As below.
                logger.exception("markers for this broker are written again")
                self._answered(entries, {})

    def forget(self, coordinator_partition: int) -> None:
        """Stop sending the markers of a partition of `__transaction_state`."""
        with self._lock:
            self._queues.forget(coordinator_partition)

    def stop(self) -> None:
        """End the threads. After a start the coordinator sends again what has no answer yet."""
        self._lookup.stop()
        self._threads.stop()
        # It may wait for a metadata store that is away.
        self._lookup.join(_LOOKUP_STOP_S)

    # -- sending ---------------------------------------------------------------------------------------------

    def _wake(self, brokers: Iterable[int]) -> None:
        for broker_id in brokers:
            if broker_id == UNKNOWN:
                self._lookup.wake()
            else:
                self._threads.wake(broker_id)

    def _look_up(self) -> None:
        """Route entries whose leader was not known, and finish those whose topic does not exist."""
        with self._lock:
            entries = self._queues.take_unknown()
        gone = self._gone({each.topic for entry in entries for each in entry.partitions})
        for entry in entries:
            missing = frozenset(each for each in entry.partitions if each.topic in gone)
            if missing:
                logger.info(
                    "transactional id %s: %s are deleted and need no marker",
                    entry.transaction.wanted.transactional_id,
                    _named(missing),
                )
                self._written((entry._replace(partitions=missing),))
        left = [
            entry._replace(partitions=frozenset(each for each in entry.partitions if each.topic not in gone))
            for entry in entries
        ]
        with self._lock:
            brokers = self._queues.route(left)
            self._lookups = self._lookups + 1 if UNKNOWN in brokers else 0
        self._wake(brokers - {UNKNOWN})
        if UNKNOWN in brokers:
            self._after(self._lookups, self._lookup.wake)

    def _gone(self, topics: Iterable[str]) -> set[str]:
        try:
            return {topic for topic in topics if not self._topic_exists(topic)}
        except StoreError as error:
            logger.info("whether topics exist is asked again: %s", error)
            return set()

    def _after(self, failures: int, work: Callable[[], None]) -> None:
        due_ms = self._timer_ms() + int(_PAUSES.pause_s(failures) * 1000)
        self._timer.add(TimedCall(due_ms, work))

    def _send_to(self, broker_id: int, connection: ReconnectingConnection) -> None:
        if broker_id == self._broker_id:
            self.write_own()
            return
        while True:
            with self._lock:
                entries = self._queues.take(broker_id)
            if not entries:
                return
            answer: MarkerErrors = {}
            try:
                body = write_markers(_VERSION, _markers(entries))
                answer = connection.request(ApiKey.WRITE_TXN_MARKERS, _VERSION, (body,), _answer)
            except KlogError as lost:
                logger.info("markers for broker %d are sent again: %s", broker_id, lost)
            except Exception:
                # A marker that is not sent again would leave its transaction undecided for ever.
                logger.exception("markers for broker %d are sent again", broker_id)
            self._answered(entries, answer)

    def _answered(self, entries: Sequence[Entry], answer: MarkerErrors) -> None:
        outcome = judged(entries, answer)
        # Before anything is dropped: partitions that have their marker are not missing it.
        self._written(outcome.done)
        for entry, error in outcome.refused:
            wanted = entry.transaction.wanted
            logger.error(
                "transactional id %s: %s refused the marker %s with %s; the transaction stays undecided there"
                " until this broker coordinates it anew. kafka-transactions describe shows its state",
                wanted.transactional_id,
                _named(entry.partitions),
                wanted.marker,
                error.name,
            )
            with self._lock:
                self._queues.drop(entry.transaction)
        if outcome.again:
            failures = max(entry.failures for entry in outcome.again)
            self._after(failures, lambda: self._send_again(outcome.again))

    def _send_again(self, entries: Iterable[Entry]) -> None:
        with self._lock:
            brokers = self._queues.route(entries)
        self._wake(brokers)

    def _written(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            with self._lock:
                is_wanted = self._queues.written(entry)
            if not is_wanted:
                continue
            try:
                entry.transaction.on_written(entry.partitions)
            except Exception:
                # The others must be reported, too.
                logger.exception("the report of the markers of %r failed", entry.transaction.wanted)


def _named(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(sorted(map(str, partitions)))


def _markers(entries: Iterable[Entry]) -> list[TxnMarker]:
    return [
        TxnMarker(*marker.producer, marker.committed, entry.partitions, marker.coordinator_epoch)
        for entry in entries
        for marker in (entry.transaction.wanted.marker,)
    ]


def _answer(version: int, body: Buffer) -> MarkerErrors:
    """The errors of a WriteTxnMarkers answer."""
    return {
        producer_id: {partition: known_error(error) for partition, error in errors.items()}
        for producer_id, errors in read_written_markers(version, body).items()
    }
