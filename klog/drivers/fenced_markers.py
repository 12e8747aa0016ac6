"""Finds out why partitions refuse the markers of this coordinator as those of an older one, and goes on.

Usually another broker coordinates by now, and ends the transactions. But if `__transaction_state` or the
metadata was set back, as from a backup, the epoch that a partition knows is one of a history that is lost.
Kafka drops the markers then: the transaction never ends, and its client waits for ever. Here they are sent
in a higher epoch.

An old coordinator must stay fenced. So a coordinator first asks which epoch a partition knows of a producer,
then the metadata whether its own epoch is the newest. One that is elected later asks later and is told at
least the same. Each adds its own epoch, so of two markers for a partition the later coordinator's is newer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.drivers.marker_queues import Entry
from klog.drivers.markers import MarkerRoutes, named, pause_ms
from klog.formats.constants import INT32_MAX
from klog.formats.names import TopicPartition

_log = logging.getLogger(__name__)

# A leader that has just changed is worth no line.
_FAILURES_UNTOLD: Final = 5


class EpochsRequest(NamedTuple):
    """Say which coordinator epochs the leaders of partitions know of producers, and then the present ones."""

    entries: tuple[Entry, ...]

    @property
    def producers(self) -> dict[TopicPartition, set[int]]:
        """The producer ids to look for, by partition."""
        found: dict[TopicPartition, set[int]] = {}
        for entry in self.entries:
            for partition in entry.partitions:
                producer_id = entry.transaction.wanted.marker.producer.producer_id
                found.setdefault(partition, set()).add(producer_id)
        return found

    @property
    def coordinator_partitions(self) -> list[int]:
        """The partitions of `__transaction_state` whose leader epochs are to be read, each once."""
        return sorted({entry.transaction.wanted.coordinator_partition for entry in self.entries})


class KnownEpochs(NamedTuple):
    """The answer. `known` is by partition and producer id; what a partition does not know is left out.

    `newest` is the leader epoch of each partition of `__transaction_state`, read after all of `known`, and
    not from a server that lags.
    """

    known: Mapping[tuple[TopicPartition, int], int]
    newest: Mapping[int, int]


class FencedMarkers(Driver[EpochsRequest, KnownEpochs]):
    """Decides what becomes of markers that were refused with TRANSACTION_COORDINATOR_FENCED."""

    def __init__(self, routes: MarkerRoutes) -> None:
        super().__init__()
        self._routes = routes
        self._under_way: EpochsRequest | None = None
        self._not_before_ms: int | None = None
        self._failures = 0
        routes.on_fenced = self._wake_up

    def _wake_up(self) -> None:
        self.wake()

    def next_step(self, now_ms: int) -> Send[EpochsRequest] | Wait:
        if self._under_way is not None or not self._routes.has_fenced:
            return FOR_A_CALL
        if self._not_before_ms is not None and now_ms < self._not_before_ms:
            return Wait(self._not_before_ms)
        entries = self._routes.take_fenced()
        if not entries:
            return FOR_A_CALL
        self._under_way = EpochsRequest(tuple(entries))
        return Send(self._under_way)

    def answered(self, request: EpochsRequest, answer: KnownEpochs, now_ms: int) -> None:
        self._under_way = None
        self._failures, self._not_before_ms = 0, None
        for entry in self._routes.queues.live(request.entries):
            wanted = entry.transaction.wanted
            if answer.newest.get(wanted.coordinator_partition) != wanted.marker.coordinator_epoch:
                _log.info(
                    "transactional id %s: its markers are dropped, because its coordinator has changed",
                    wanted.transactional_id,
                )
                self._routes.queues.drop(entry.transaction)
                continue
            for partition in sorted(entry.partitions):
                self._raise(entry, partition, answer)
            failures = entry.failures + 1
            self._routes.pause((entry._replace(failures=failures),), now_ms + pause_ms(failures))

    def _raise(self, entry: Entry, partition: TopicPartition, answer: KnownEpochs) -> None:
        wanted = entry.transaction.wanted
        own, producer_id = wanted.marker.coordinator_epoch, wanted.marker.producer.producer_id
        known = answer.known.get((partition, producer_id), own)
        if known <= entry.coordinator_epoch:
            return  # it was refused for a reason that is over
        epoch = min(known + own + 1, INT32_MAX)
        _log.warning(
            "transactional id %s: %s knows the coordinator epoch %d of producer %d, and the newest is %d:"
            " __transaction_state-%d or the metadata was set back. Markers for it have epoch %d from now on",
            wanted.transactional_id,
            partition,
            known,
            producer_id,
            own,
            wanted.coordinator_partition,
            epoch,
        )
        self._routes.queues.raise_epoch(entry.transaction, partition, epoch)

    def failed(self, request: EpochsRequest, error: Exception, now_ms: int) -> None:
        self._under_way = None
        self._failures += 1
        self._not_before_ms = now_ms + pause_ms(self._failures)
        entries = self._routes.queues.live(request.entries)
        for entry in entries if self._failures == _FAILURES_UNTOLD else ():
            _log.error(
                "transactional id %s: %s know a newer coordinator epoch than the marker %s, and it cannot be"
                " read: %s. The transaction ends as soon as it can: brokers must reach each other, and their"
                " principal must be allowed to read the topics (`klog acls`)",
                entry.transaction.wanted.transactional_id,
                named(entry.partitions),
                entry.transaction.wanted.marker,
                error,
            )
        self._routes.add_fenced(entries)
