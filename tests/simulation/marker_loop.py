"""How a simulated coordinator sends markers: `MarkerQueues`, driven as the threads of `MarkerSending` do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from klog.coordinator.transaction.values import MarkersToWrite
from klog.metadata.errors import MetadataError
from klog.metadata.topics import read_topics
from klog.protocol.error_codes import ErrorCode
from klog.protocol.transaction_messages import TxnMarker, read_written_markers, write_markers
from klog.server.transactions.leaders import UNKNOWN, leader_lookup
from klog.server.transactions.marker_queues import Entry, MarkerQueues, OnWritten, Transaction, judged
from klog.server.transactions.marker_sending import Write
from klog.server.transactions.marker_writing import MarkerErrors
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

MARKERS_VERSION = 1
_RETRY_MS = 100


class MarkerLoop:
    """The `MarkerSender` of a simulated broker: one request at a time to each other broker.

    Its own partitions get theirs without a request, as `write` does it.

    Markers of a request that has failed do not arrive after they were sent again. In Kafka 3.9 nothing but
    the order of a connection's bytes keeps a repeated marker from ending the producer's next transaction
    (KIP-890, part 2, raises the epoch with each transaction and came later).
    """

    def __init__(self, broker: SimulatedBroker, write: Write) -> None:
        self._broker = broker
        self._write = write
        self._queues = MarkerQueues(leader_lookup(broker.cache))
        self._sending: dict[int, int] = {}
        self._requests = 0
        self._is_looking_up = False

    def send(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        self._wake(self._queues.add(Transaction(wanted, on_written)) - {self._broker.broker_id})

    def write_own(self) -> None:
        while True:
            entries = self._queues.take(self._broker.broker_id)
            if not entries:
                return
            self._write(_markers(entries), partial(self._judge, entries))

    def forget(self, coordinator_partition: int) -> None:
        self._queues.forget(coordinator_partition)

    def _wake(self, brokers: Iterable[int]) -> None:
        for each in sorted(brokers):
            if each == self._broker.broker_id:
                self._broker.after(0, self.write_own)
            elif each != UNKNOWN:
                self._broker.after(0, partial(self._send_to, each))
            elif not self._is_looking_up:
                self._is_looking_up = True
                self._broker.after(_RETRY_MS * US_PER_MS, self._look_up)

    def _look_up(self) -> None:
        self._is_looking_up = False
        entries, left = self._queues.take_unknown(), []
        names = {each.topic for entry in entries for each in entry.partitions}
        with suppress(MetadataError):
            names = set(read_topics(self._broker.session, sorted(names)))
        for entry in entries:
            gone = frozenset(each for each in entry.partitions if each.topic not in names)
            if gone:
                self._written((entry._replace(partitions=gone),))
            left.append(entry._replace(partitions=entry.partitions - gone))
        self._wake(self._queues.route(left))

    def _send_to(self, broker_id: int) -> None:
        if broker_id in self._sending:
            return
        entries = self._queues.take(broker_id)
        if not entries:
            return
        self._requests += 1
        number = self._sending[broker_id] = self._requests
        world, body = self._broker.world, write_markers(MARKERS_VERSION, _markers(entries))
        target = world.brokers.get(broker_id)

        def write(answer) -> None:  # type: ignore[no-untyped-def]
            if self._sending.get(broker_id) == number:
                target.coordinators.write_markers(body, answer)  # type: ignore[union-attr]

        world.network.request(
            self._broker.process,
            None if target is None else target.process,
            write,
            partial(self._answered, broker_id, entries),
            partial(self._answered, broker_id, entries, None),
        )

    def _answered(self, broker_id: int, entries: Sequence[Entry], answered: bytes | None) -> None:
        del self._sending[broker_id]
        self._judge(entries, {} if answered is None else _errors(answered))
        self._wake((broker_id,))

    def _judge(self, entries: Sequence[Entry], errors: MarkerErrors) -> None:
        outcome = judged(entries, errors)
        self._written(outcome.done)
        for entry, error in outcome.refused:
            self._broker.world.note("b%d: marker refused: %s", self._broker.broker_id, error.name)
            self._queues.drop(entry.transaction)
        if outcome.again:
            self._broker.after(_RETRY_MS * US_PER_MS, lambda: self._wake(self._queues.route(outcome.again)))

    def _written(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if self._queues.written(entry):
                self._broker.world.counts["markers"] += len(entry.partitions)
                entry.transaction.on_written(entry.partitions)


def _markers(entries: Iterable[Entry]) -> list[TxnMarker]:
    # Sorted: a schedule must play the same in every process, and the order of a set differs.
    return [
        TxnMarker(*marker.producer, marker.committed, sorted(each.partitions), marker.coordinator_epoch)
        for each in entries
        for marker in (each.transaction.wanted.marker,)
    ]


def _errors(answered: bytes) -> MarkerErrors:
    return {
        producer_id: {partition: ErrorCode(error) for partition, error in errors.items()}
        for producer_id, errors in read_written_markers(MARKERS_VERSION, answered).items()
    }
