"""WriteTxnMarkers: writes the markers that end transactions to partitions that this broker leads.

Rules: Kafka's `KafkaApis.handleWriteTxnMarkersRequest`; KIP-98, KIP-664 (an administrator ends a hanging
transaction with the same request). Each marker is one append that waits for replication. The group
coordinator is told of a marker in `__consumer_offsets` before the answer (KAFKA-17507), so that whoever knows
that the transaction has ended sees its offsets. All logs have magic 2, so no partition is answered
UNSUPPORTED_FOR_MESSAGE_FORMAT: older messages in a log stand before the first batch of magic 2.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Protocol

from klog.coordinator.group.coordinator import CONSUMER_OFFSETS
from klog.formats.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klog.formats.markers import Marker, build_marker
from klog.formats.names import TopicPartition
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended, InternalAppends
from klog.replication.partition import ALL_IN_SYNC
from klog.server.handlers.answers import entity_of, part, send_answer
from klog.server.network.request import Request
from klog.server.transactions.broker_messages import by_topic

Errors = dict[int, dict[TopicPartition, ErrorCode]]


class Groups(Protocol):
    """The part of the group coordinator that hears of markers."""

    def transaction_ended(self, number: int, producer_id: int, *, committed: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers requests. `timeout_ms` limits the wait for replication."""

    appends: InternalAppends
    groups: Groups
    _: KW_ONLY
    timeout_ms: int

    def handle(self, request: Request) -> None:
        """Write all markers; answer when they are replicated.

        Like Kafka, fail the whole request if a marker has no producer id or epoch: it cannot be a batch.
        """
        markers = entity_of(request).markers
        impossible = any(
            marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH
            for marker in markers
        )
        answer = _Answer(request, [(marker, list(_partitions(marker))) for marker in markers])
        for marker in markers:
            for key in _partitions(marker):
                done = partial(answer.written, marker.producer_id, key)
                if impossible:
                    done(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    self._append(key, marker, done)
        answer.all_started()

    def _append(self, key: TopicPartition, marker: Entity, done: partial[None]) -> None:
        if key not in self.appends.replicas.partitions:
            # Kafka answers this also if another broker leads the partition.
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return

        def on_appended(appended: Appended) -> None:
            if appended.error is ErrorCode.NONE and key.topic == CONSUMER_OFFSETS:
                self.groups.transaction_ended(
                    key.partition, marker.producer_id, committed=marker.transaction_result
                )
            done(appended.error)

        ending = Marker(
            aborted=not marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self.appends.clock_ms(),
        )
        batch = build_marker(marker.producer_id, marker.producer_epoch, ending)
        self.appends.append_records(
            key, memoryview(batch), on_appended, acks=ALL_IN_SYNC, timeout_ms=self.timeout_ms
        )


def _partitions(marker: Entity) -> Iterable[TopicPartition]:
    """The partitions that a marker names, each once."""
    return dict.fromkeys(
        TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes
    )


class _Answer:
    """Gathers the errors of all appends, from any thread, and answers after the last one."""

    def __init__(self, request: Request, markers: list[tuple[Entity, list[TopicPartition]]]) -> None:
        self._request = request
        self._lock = threading.Lock()
        # By producer id, as in the answer: two markers of one producer become one entry.
        self._errors: Errors = {marker.producer_id: {} for marker, _ in markers}
        self._pending = 1 + sum(len(partitions) for _, partitions in markers)

    def written(self, producer_id: int, key: TopicPartition, error: ErrorCode) -> None:
        """One append has ended."""
        with self._lock:
            self._errors[producer_id][key] = error
        self._ended()

    def all_started(self) -> None:
        """No more appends follow."""
        self._ended()

    def _ended(self) -> None:
        with self._lock:
            self._pending -= 1
            if self._pending:
                return
        send_answer(self._request, markers=tuple(self._marker(*each) for each in self._errors.items()))

    def _marker(self, producer_id: int, errors: dict[TopicPartition, ErrorCode]) -> Entity:
        request = self._request
        return part(
            request,
            "WritableTxnMarkerResult",
            producer_id=producer_id,
            topics=tuple(
                part(
                    request,
                    "WritableTxnMarkerTopicResult",
                    name=name,
                    partitions=tuple(
                        part(
                            request,
                            "WritableTxnMarkerPartitionResult",
                            partition_index=number,
                            error_code=errors[TopicPartition(name, number)],
                        )
                        for number in numbers
                    ),
                )
                for name, numbers in by_topic(errors)
            ),
        )
