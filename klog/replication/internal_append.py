"""Appends records from inside the broker, as its coordinators do, and reports when they are replicated.

Rules: Kafka's `ReplicaManager.appendRecords` with the origin COORDINATOR. The records wait in the produce
purgatory beside those of producers, and are completed by the same events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple

from klog.formats.errors import StorageError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.acknowledging import DelayedProduce
from klog.replication.partition import ALL_IN_SYNC, Partition, PartitionError
from klog.replication.partition_state import ANY_EPOCH
from klog.replication.purgatory import Purgatory
from klog.replication.replica_manager import ReplicaManager
from klog.replication.replica_waits import PartitionWait
from klog.storage.log.append_values import AppendError, Origin
from klog.storage.log.batch_run import BatchRun
from klog.storage.log.built_batch import BuiltBatch

_log = logging.getLogger(__name__)

_LARGEST_ACKS: Final = 1
_NO_OFFSET: Final = -1
# A wait without a deadline begins again so often.
_WAIT_MS: Final = 60_000
# The high watermark has passed the records, whatever the size of the ISR is.
_REPLICATED: Final = frozenset((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
# What a producer or a coordinator that has been replaced is refused with: nothing is wrong here.
_FENCED: Final = frozenset(("INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "TRANSACTION_COORDINATOR_FENCED"))


class Appended(NamedTuple):
    """What became of an append. If records were written, the offsets are set even if there is an error."""

    error: ErrorCode
    first_offset: int = _NO_OFFSET
    last_offset: int = _NO_OFFSET


class WrittenRun(NamedTuple):
    """A run of batches that was written.

    `is_acknowledged` says that its acks ask for no more; if not, `when_acknowledged` waits for that.
    """

    partition: Partition
    first_offset: int
    last_offset: int
    high_watermark_moved: bool
    is_acknowledged: bool


def _count_nothing(topic: str, records: int, size_bytes: int) -> None:
    """Used if nobody counts the traffic of topics."""


@dataclass(frozen=True, slots=True)
class InternalAppends:
    """Appends to partitions that this broker leads.

    `known` says whether the cluster has a partition. `clock_ms` is the wall clock, for records; `timer_ms` is
    the purgatory's clock.
    """

    replicas: ReplicaManager
    purgatory: Purgatory
    known: Callable[[tuple[str, int]], bool]
    _: KW_ONLY
    clock_ms: Callable[[], int]
    timer_ms: Callable[[], int]
    count: Callable[[str, int, int], object] = _count_nothing
    """Called with the topic, the number of records, and of bytes, for each append."""

    def append_records(
        self,
        key: TopicPartition,
        records: memoryview,
        on_done: Callable[[Appended], None],
        *,
        acks: int,
        timeout_ms: int,
        leader_epoch: int = ANY_EPOCH,
        guard: object | None = None,
    ) -> None:
        """Append batches; `records` must be writable and is changed. `on_done` is called exactly once.

        Records of a transaction need the `guard` of their verification (`Partition.begin_verification`),
        unless the transaction is open in the partition.

        With acks 0 or 1 that is after the local write, with acks -1 when the high watermark has passed the
        records, when leadership is lost, or after `timeout_ms`. It may be called before this returns, and
        from any thread. The errors are Kafka's:

        - NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION: this broker does not lead the partition, or not
          any more;
        - FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH: it leads in another epoch than `leader_epoch`;
        - NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND: the ISR is too small for acks -1;
        - REQUEST_TIMED_OUT: the records are written, but not replicated in time;
        - KAFKA_STORAGE_ERROR: the disk has failed;
        - INVALID_REQUIRED_ACKS, and the errors of `AppendError`: the request is invalid.

        An append completes other operations, too: call it without any lock that an `on_done` takes.
        """
        partition = self.replicas.partitions.get(key)
        if partition is None:
            on_done(Appended(self._missing(key)))
            return
        written = self._append(partition, records, acks, leader_epoch, guard)
        if written.error or acks != ALL_IN_SYNC:
            on_done(written)
        else:
            self._when_replicated(key, partition, written, timeout_ms, on_done)

    def append_built(
        self,
        key: TopicPartition,
        batch: BuiltBatch,
        on_done: Callable[[Appended], None],
        *,
        timeout_ms: int,
        leader_epoch: int = ANY_EPOCH,
    ) -> None:
        """`append_records` with acks -1 for a batch that the broker has built; it is changed."""
        try:
            written = self.write_run(key, batch, leader_epoch)
        except (OSError, StorageError):
            on_done(Appended(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        if written is None:
            self.append_records(
                key, batch.view(), on_done, acks=ALL_IN_SYNC, timeout_ms=timeout_ms, leader_epoch=leader_epoch
            )
        else:
            self.replicas.appended(key, written.high_watermark_moved)
            self.when_acknowledged(key, written, on_done, timeout_ms=timeout_ms)

    def write_run(self, key: TopicPartition, run: BatchRun, leader_epoch: int) -> WrittenRun | None:
        """Write a run of batches. The caller calls `replicas.appended` after it, without any lock.

        None if nothing was written, because `append_records` has to do it, or to say what is wrong. Raises
        `OSError`, `StorageError`.
        """
        partition = self.replicas.partitions.get(key)
        if partition is None:
            return None
        written = partition.append_run(run, self.clock_ms(), leader_epoch, may_wait=True)
        if written is None:
            return None
        first_offset, _, moved = written
        self.count(key.topic, run.records, run.size_bytes)
        last_offset = first_offset + run.records - 1
        is_acknowledged = run.acks != ALL_IN_SYNC or partition.log.high_watermark > last_offset
        return WrittenRun(partition, first_offset, last_offset, moved, is_acknowledged)

    def when_acknowledged(
        self, key: TopicPartition, run: WrittenRun, on_done: Callable[[Appended], None], *, timeout_ms: int
    ) -> None:
        """Call `on_done` for a run as `append_records` does. To be called without any lock."""
        appended = Appended(ErrorCode.NONE, run.first_offset, run.last_offset)
        if run.is_acknowledged:
            on_done(appended)
        else:
            self._when_replicated(key, run.partition, appended, timeout_ms, on_done)

    def _when_replicated(
        self,
        key: TopicPartition,
        partition: Partition,
        written: Appended,
        timeout_ms: int,
        on_done: Callable[[Appended], None],
    ) -> None:
        """Call `on_done` when the high watermark has passed what was written, now or later."""
        required_offset = written.last_offset + 1
        if partition.log.high_watermark >= required_offset:
            on_done(written)
            return

        def answer(outcome: Mapping[tuple[str, int], PartitionWait]) -> None:
            on_done(written._replace(error=outcome[key].error))

        waits: dict[tuple[str, int], PartitionWait] = {key: PartitionWait(required_offset)}
        due_ms = self.timer_ms() + timeout_ms
        operation = DelayedProduce(due_ms, self.replicas, waits, self._missing, answer)
        self.purgatory.try_complete_else_watch(operation, (key,))

    def when_replicated(self, key: TopicPartition, then: Callable[[], object]) -> bool:
        """True if all records of a partition that this broker leads are replicated.

        If not, `then` is called when what is in the log now is replicated, from any thread. It is never
        called if leadership is lost before.
        """
        partition = self.replicas.partitions.get(key)
        if partition is None or not partition.state.is_leader:
            return False
        return self._reached(key, partition, partition.log.log_end_offset, then)

    def _reached(
        self, key: TopicPartition, partition: Partition, required_offset: int, then: Callable[[], object]
    ) -> bool:
        """True if the high watermark has reached the offset. If not, `then` is called when it has."""
        if partition.log.high_watermark >= required_offset:
            return True

        def answer(outcome: Mapping[tuple[str, int], PartitionWait]) -> None:
            error = outcome[key].error
            if error in _REPLICATED or (
                error is ErrorCode.REQUEST_TIMED_OUT and self._reached(key, partition, required_offset, then)
            ):
                then()

        waits: dict[tuple[str, int], PartitionWait] = {key: PartitionWait(required_offset)}
        due_ms = self.timer_ms() + _WAIT_MS
        operation = DelayedProduce(due_ms, self.replicas, waits, self._missing, answer)
        self.purgatory.try_complete_else_watch(operation, (key,))
        return False

    def _append(
        self,
        partition: Partition,
        records: memoryview,
        acks: int,
        leader_epoch: int,
        guard: object | None,
    ) -> Appended:
        if not ALL_IN_SYNC <= acks <= _LARGEST_ACKS:
            return Appended(ErrorCode.INVALID_REQUIRED_ACKS)
        try:
            info, moved = partition.append(
                records, acks, self.clock_ms(), Origin.COORDINATOR, leader_epoch=leader_epoch, guard=guard
            )
        except PartitionError as refused:
            return Appended(refused.error)
        except AppendError as refused:
            level = logging.INFO if refused.error in _FENCED else logging.WARNING
            _log.log(
                level, "%s: records of a coordinator are refused: %s", partition.topic_partition, refused
            )
            return Appended(ErrorCode.__members__.get(refused.error, ErrorCode.UNKNOWN_SERVER_ERROR))
        except (OSError, StorageError):
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR)
        topic = partition.topic_partition.topic
        self.count(topic, info.last_offset - info.first_offset + 1, info.size_bytes)
        self.replicas.appended(partition.topic_partition, high_watermark_moved=moved)
        return Appended(ErrorCode.NONE, info.first_offset, info.last_offset)

    def _missing(self, key: tuple[str, int]) -> ErrorCode:
        return self.replicas.missing(key, self.known)
