"""Brings transaction markers to the leaders of partitions, until each has been written or refused for good.

Rules: Kafka's `TransactionMarkerChannelManager`; KIP-98. `marker_queues` decides what goes where. There is
one driver for each other broker, with one request at a time and all that has gathered for it; one for the
partitions that this broker leads itself; and one that looks for leaders that are not known.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

from klog.client.retry import RetryPolicy
from klog.coordinator.transactions.values import MarkersToWrite, OnWritten
from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.drivers.marker_queues import (
    UNKNOWN,
    Entry,
    LeaderOf,
    MarkerErrors,
    MarkerQueues,
    Transaction,
    judged,
)
from klog.formats.names import TopicPartition
from klog.protocol.transaction_messages import TxnMarker

_log = logging.getLogger(__name__)

_PAUSES: Final = RetryPolicy(None)


class MarkerRequest(NamedTuple):
    """Write these markers, one for each entry."""

    entries: tuple[Entry, ...]

    @property
    def markers(self) -> list[TxnMarker]:
        """The content of a WriteTxnMarkers request."""
        return [
            TxnMarker(*marker.producer, marker.committed, entry.partitions, entry.coordinator_epoch)
            for entry in self.entries
            for marker in (entry.transaction.wanted.marker,)
        ]


class PartitionsRequest(NamedTuple):
    """Say which partitions exist of those that these entries name."""

    entries: tuple[Entry, ...]

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, each once."""
        return sorted({partition for entry in self.entries for partition in entry.partitions})


class MarkerRoutes:
    """The markers that wait: what the drivers of one broker share. Not safe for threads.

    `wake` lets the driver of a broker be asked for its next step, or for UNKNOWN the one that looks for
    leaders. It does not block.
    """

    def __init__(self, broker_id: int, leader_of: LeaderOf, wake: Callable[[int], object]) -> None:
        self.broker_id = broker_id
        self.queues = MarkerQueues(leader_of)
        self.has_new_unknown = False
        self.on_fenced: Callable[[], object] = lambda: None
        self._fenced: list[Entry] = []
        self._wake = wake
        # Entries that are routed again, by the time when their pause ends.
        self._pausing: list[tuple[int, int, tuple[Entry, ...]]] = []
        self._order = itertools.count()

    def add(self, wanted: MarkersToWrite, on_written: OnWritten) -> None:
        """Queue the markers of a transaction. Those for this broker wait until its driver is asked."""
        self._wake_all(self.queues.add(Transaction(wanted, on_written)) - {self.broker_id})

    def route(self, entries: Iterable[Entry]) -> set[int]:
        """Queue entries for the present leaders of their partitions; returns these."""
        brokers = self.queues.route(entries)
        self._wake_all(brokers)
        return brokers

    def pause(self, entries: tuple[Entry, ...], due_ms: int) -> None:
        """Route entries again at this time."""
        heapq.heappush(self._pausing, (due_ms, next(self._order), entries))
        self._wake(self.broker_id)

    def route_due(self, now_ms: int) -> int | None:
        """Route the entries whose pause has ended; when the next one ends, None if there is none."""
        while self._pausing and self._pausing[0][0] <= now_ms:
            self.route(heapq.heappop(self._pausing)[2])
        return self._pausing[0][0] if self._pausing else None

    def add_fenced(self, entries: Collection[Entry]) -> None:
        """Keep entries that were refused with TRANSACTION_COORDINATOR_FENCED for `FencedMarkers`."""
        if entries:
            self._fenced += entries
            self.on_fenced()

    @property
    def has_fenced(self) -> bool:
        """Whether there are such."""
        return bool(self._fenced)

    def take_fenced(self) -> list[Entry]:
        """Those of them that still wait."""
        entries, self._fenced = self._fenced, []
        return self.queues.live(entries)

    def _wake_all(self, brokers: Iterable[int]) -> None:
        for broker_id in sorted(brokers):
            if broker_id == UNKNOWN:
                self.has_new_unknown = True
            self._wake(broker_id)


class _MarkerDriver(Driver[MarkerRequest, MarkerErrors]):
    """What an answer means, wherever it comes from."""

    def __init__(self, routes: MarkerRoutes) -> None:
        super().__init__()
        self._routes = routes

    def answered(self, request: MarkerRequest, answer: MarkerErrors, now_ms: int) -> None:
        queues, outcome = self._routes.queues, judged(request.entries, answer)
        # Before anything is dropped: partitions that have their marker are not missing it.
        for entry in outcome.done:
            if queues.written(entry):
                self._effects.append(partial(entry.transaction.on_written, entry.partitions))
        for entry in outcome.superseded:
            wanted = entry.transaction.wanted
            _log.warning(
                "transactional id %s: %s know a newer epoch of its producer than the marker %s:"
                " __transaction_state-%d has lost records of the id. What is open there is aborted, and the"
                " id gets a new producer id. `klog transactions find-hanging` shows what is open elsewhere",
                wanted.transactional_id,
                named(entry.partitions),
                wanted.marker,
                wanted.coordinator_partition,
            )
            if queues.written(entry):
                self._effects.append(partial(entry.transaction.on_written, entry.partitions, superseded=True))
        for entry, error in outcome.refused:
            wanted = entry.transaction.wanted
            _log.error(
                "transactional id %s: %s refused the marker %s with %s; the transaction stays undecided there"
                " until this broker coordinates it anew: mend what the leader's log says of it, and restart"
                " this broker. `klog transactions describe` shows the state of the id",
                wanted.transactional_id,
                named(entry.partitions),
                wanted.marker,
                error.name,
            )
            queues.drop(entry.transaction)
        self._routes.add_fenced(outcome.fenced)
        if outcome.again:
            failures = max(entry.failures for entry in outcome.again)
            self._routes.pause(outcome.again, now_ms + pause_ms(failures))

    def failed(self, request: MarkerRequest, error: Exception, now_ms: int) -> None:  # noqa: ARG002
        self.answered(request, {}, now_ms)


class MarkersToBroker(_MarkerDriver):
    """The markers for another broker: one request at a time."""

    def __init__(self, routes: MarkerRoutes, broker_id: int) -> None:
        super().__init__(routes)
        self._broker_id = broker_id
        self._under_way: MarkerRequest | None = None

    def next_step(self, now_ms: int) -> Send[MarkerRequest] | Wait:  # noqa: ARG002
        if self._under_way is not None:
            return FOR_A_CALL
        entries = self._routes.queues.take(self._broker_id)
        if not entries:
            return FOR_A_CALL
        self._under_way = MarkerRequest(tuple(entries))
        return Send(self._under_way)

    def answered(self, request: MarkerRequest, answer: MarkerErrors, now_ms: int) -> None:
        if request is self._under_way:
            self._under_way = None
            super().answered(request, answer, now_ms)


class MarkersHere(_MarkerDriver):
    """The markers for partitions that this broker leads.

    Each request waits for followers, so there may be several at a time. It also ends the pauses of all
    drivers.
    """

    def next_step(self, now_ms: int) -> Send[MarkerRequest] | Wait:
        due_ms = self._routes.route_due(now_ms)
        entries = self._routes.queues.take(self._routes.broker_id)
        return Send(MarkerRequest(tuple(entries))) if entries else Wait(due_ms)


class LeaderLookup(Driver[PartitionsRequest, Collection[TopicPartition]]):
    """Routes partitions whose leader is not known again and again, and finishes those that were deleted.

    The metadata store is asked, because a broker that starts knows no topics, and no marker must be dropped
    because of that. The answer names the partitions that exist: a topic that was deleted may have been
    created again with fewer.
    """

    def __init__(self, routes: MarkerRoutes) -> None:
        super().__init__()
        self._routes = routes
        self._under_way: PartitionsRequest | None = None
        self._not_before_ms: int | None = None
        self._failures = 0  # lookups in a row that left a leader unknown

    def next_step(self, now_ms: int) -> Send[PartitionsRequest] | Wait:
        if self._under_way is not None or not self._routes.queues.waiting_for_leaders:
            return FOR_A_CALL
        due_ms = self._not_before_ms
        if due_ms is not None and now_ms < due_ms and not self._routes.has_new_unknown:
            return Wait(due_ms)
        self._routes.has_new_unknown = False
        entries = self._routes.queues.take_unknown()
        if not entries:
            return FOR_A_CALL
        self._under_way = PartitionsRequest(tuple(entries))
        return Send(self._under_way)

    def answered(self, request: PartitionsRequest, answer: Collection[TopicPartition], now_ms: int) -> None:
        if request is not self._under_way:
            return
        self._under_way = None
        left = [self._without_gone(entry, answer) for entry in request.entries]
        if UNKNOWN in self._routes.route(left):
            self._routes.has_new_unknown = False
            self._failures += 1
            self._not_before_ms = now_ms + pause_ms(self._failures)
        else:
            self._failures, self._not_before_ms = 0, None

    def _without_gone(self, entry: Entry, existing: Collection[TopicPartition]) -> Entry:
        gone = entry.partitions.difference(existing)
        if not gone:
            return entry
        transaction = entry.transaction
        transactional_id = transaction.wanted.transactional_id
        _log.info("transactional id %s: %s are deleted and need no marker", transactional_id, named(gone))
        if self._routes.queues.written(entry._replace(partitions=gone)):
            self._effects.append(partial(transaction.on_written, gone))
        return entry._replace(partitions=entry.partitions - gone)

    def failed(self, request: PartitionsRequest, error: Exception, now_ms: int) -> None:
        _log.info("which partitions exist is asked again: %s", error)
        self.answered(request, request.partitions, now_ms)


def pause_ms(failures: int) -> int:
    return int(_PAUSES.pause_s(failures) * 1000)


def named(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(sorted(map(str, partitions)))
