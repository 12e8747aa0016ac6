"""Writes the markers that end transactions to partitions that this broker leads.

Rules: Kafka's `KafkaApis.handleWriteTxnMarkersRequest`; KIP-98. Each marker is one append that waits for
replication. The group coordinator is notified of a marker in `__consumer_offsets` before the answer
(KAFKA-17507), so that whoever knows that the transaction has ended sees its offsets. All logs have magic 2,
so no partition is answered UNSUPPORTED_FOR_MESSAGE_FORMAT: older messages in a log stand before the first
batch of magic 2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Protocol

from klog.drivers.marker_queues import MarkerErrors
from klog.formats.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.kernel.markers import Marker, build_marker
from klog.protocol.error_codes import ErrorCode
from klog.protocol.transaction_messages import TxnMarker
from klog.replication.internal_append import Appended, InternalAppends
from klog.storage.log.built_batch import BuiltBatch


class Groups(Protocol):
    """The part of the group coordinator that is notified of markers."""

    def transaction_ended(self, number: int, producer_id: int, *, committed: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class MarkerWriting:
    """Writes markers. `timeout_ms` limits the wait for replication. Safe for threads."""

    appends: InternalAppends
    groups: Groups
    _: KW_ONLY
    timeout_ms: int

    def write(self, markers: Collection[TxnMarker], reply: Callable[[MarkerErrors], None]) -> None:
        """Write all markers. `reply` is called once, when they are replicated: before this returns, or later
        from any thread. Two markers of one producer share an entry in what it is given.

        Like Kafka, nothing is written if a marker has no producer id or epoch: it cannot be a batch. Call it
        without any lock that a `reply` takes.
        """
        impossible = any(
            marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH
            for marker in markers
        )
        gathered = _PendingWrites(markers, reply)
        for marker in markers:
            for key in marker.partitions:
                done = partial(gathered.written, marker.producer_id, key)
                if impossible:
                    done(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    self._append(key, marker, done)
        gathered.ended()

    def _append(self, key: TopicPartition, marker: TxnMarker, done: Callable[[ErrorCode], None]) -> None:
        if key not in self.appends.replicas.partitions:
            # Kafka answers this also if another broker leads the partition.
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return

        def on_appended(appended: Appended) -> None:
            if appended.error is ErrorCode.NONE and key.topic == CONSUMER_OFFSETS:
                self.groups.transaction_ended(key.partition, marker.producer_id, committed=marker.committed)
            done(appended.error)

        ending = Marker(
            aborted=not marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self.appends.clock_ms(),
        )
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        data = build_marker(producer_id, epoch, ending)
        batch = BuiltBatch(
            data, ending.timestamp, marker=ending, producer_id=producer_id, producer_epoch=epoch
        )
        self.appends.append_built(key, batch, on_appended, timeout_ms=self.timeout_ms)


class _PendingWrites:
    """Gathers the errors of all appends, from any thread, and replies after the last one."""

    def __init__(self, markers: Collection[TxnMarker], reply: Callable[[MarkerErrors], None]) -> None:
        self._reply = reply
        self._lock = threading.Lock()
        self._errors: MarkerErrors = {marker.producer_id: {} for marker in markers}
        self._pending = 1 + sum(len(marker.partitions) for marker in markers)

    def written(self, producer_id: int, key: TopicPartition, error: ErrorCode) -> None:
        """One append has ended."""
        with self._lock:
            self._errors[producer_id][key] = error
        self.ended()

    def ended(self) -> None:
        """One append has ended, or the starting of all."""
        with self._lock:
            self._pending -= 1
            is_complete = not self._pending
        if is_complete:
            self._reply(self._errors)
