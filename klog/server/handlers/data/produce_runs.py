"""Answers the usual Produce frames where they were read, several at once.

The effect is that of `produce` for each frame in turn, with one write, one look at the purgatories and one
answer for those that follow each other and go to one partition. With acks=all the answer may have to wait
for followers (`produce_waits`). Records that open a transaction are written if this broker coordinates it.
Whatever is not usual is left to `produce`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.coordinator.transactions.values import Producer
from klog.formats.errors import StorageError
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.primitives import text_of
from klog.protocol.runs import ProduceRun
from klog.replication.partition import ALL_IN_SYNC, Partition
from klog.replication.partition_state import ANY_EPOCH
from klog.server.counters.request_times import ApiCounter
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.data.produce_waits import ProduceWaits, common_timeout_ms
from klog.server.handlers.data.remembered_targets import RememberedTargets
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.connection import Connection
from klog.server.transactions.verification import Verification
from klog.storage.log.verification import UNCHECKED

_NO_ACKS: Final = 0


class ProduceRuns:
    """Answers runs of Produce frames. Safe for threads.

    `clock_ms` stamps records; `clock_ns` measures the time that `counter` records for each request.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        targets: RememberedTargets,
        clock_ms: Callable[[], int],
        topic_stats: BrokerTopicStats,
        counter: ApiCounter,
        clock_ns: Callable[[], int],
        waits: ProduceWaits,
        verification: Verification,
        access: Access | None = None,
    ) -> None:
        """Without `access` everybody may write to all topics."""
        write = AclOperation.WRITE
        self._topics = None if access is None else access.right(write, AclResourceType.TOPIC)
        self._ids = None if access is None else access.right(write, AclResourceType.TRANSACTIONAL_ID)
        self._replicas = lookup.replicas
        self._targets = targets
        self._clock_ms = clock_ms
        self._topic_stats = topic_stats.topics
        self._counter = counter
        self._waits = waits
        self._verification = verification
        self._clock_ns = clock_ns
        # Each caller takes one out, so that no two threads share one.
        self._unused: list[ProduceRun] = []

    def handle(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer one run; the position after it, `start` if the first frame is none of this kind."""
        start_ns = self._clock_ns()
        run = self._unused.pop() if self._unused else ProduceRun()
        try:
            if not run.read(buffer, start, end) or not self._write(run, connection, buffer, start, start_ns):
                return start
            self._count(run, connection, start_ns)
            return run.end
        finally:
            self._unused.append(run)

    def _count(self, run: ProduceRun, connection: Connection, start_ns: int) -> None:
        now_ns = self._clock_ns()
        if connection.in_flight is None and run.acks != _NO_ACKS:
            self._counter.handled(connection, run.frames, start_ns, now_ns)
            return
        elapsed_ns = now_ns - start_ns
        self._counter.local.record_several(elapsed_ns, run.frames)
        if run.acks == _NO_ACKS:
            self._counter.sent(run.frames, elapsed_ns, 0)

    def _write(
        self, run: ProduceRun, connection: Connection, buffer: bytearray, start: int, start_ns: int
    ) -> bool:
        target = self._targets.find(run.topic, run.partition, False)
        if target is None or target.is_internal:
            return False
        partition = target.partition
        transactional_id = run.transactional_id
        if self._topics is not None and not self._may_write(connection, target.key[0], transactional_id):
            return False
        guard = UNCHECKED if transactional_id is None else self._guard(run, transactional_id, partition)
        if guard is None:
            return False
        timeout_ms = None
        if run.acks == ALL_IN_SYNC and partition.followers:
            timeout_ms = common_timeout_ms(buffer, start, run.end, len(transactional_id or b""))
        may_wait = timeout_ms is not None
        try:
            appended = partition.append_run(run, self._clock_ms(), ANY_EPOCH, may_wait, guard)
        except (OSError, StorageError):
            # The log is closed now; the general path says so in its answer.
            return False
        if appended is None:
            return False
        first_offset, log_start_offset, moved = appended
        key = target.key
        stats = self._topic_stats[key[0]]
        stats.produces += run.frames
        stats.messages_in += run.records
        stats.bytes_in += run.size_bytes
        self._replicas.appended(key, moved)
        if run.acks == _NO_ACKS:
            return True
        frame, numbers_at = target.produced(run.version)
        answers = run.answers(frame, numbers_at, first_offset, log_start_offset)
        required_offset = first_offset + run.records
        if timeout_ms is None or partition.log.high_watermark >= required_offset:
            connection.outbound.add(answers)
            return True
        self._waits.wait(
            connection,
            key,
            required_offset,
            timeout_ms,
            run.version,
            run.frames,
            answers,
            numbers_at,
            start_ns,
        )
        return True

    def _may_write(self, connection: Connection, topic: str, transactional_id: bytes | None) -> bool:
        """Whether the client may, without a word in the audit log; else `produce` decides."""
        topics, ids = self._topics, self._ids
        if topics is None or ids is None:
            return True
        return topics.allows_silently(connection, topic) and (
            transactional_id is None or ids.allows_silently(connection, text_of(transactional_id))
        )

    def _guard(self, run: ProduceRun, transactional_id: bytes, partition: Partition) -> object | None:
        """The guard for a run that belongs to a transaction; None if `produce` has to find it."""
        _, _, producer_id, epoch, sequence, _ = run.batch(0)
        producer = Producer(producer_id, epoch)
        return self._verification.guard_here(text_of(transactional_id), producer, sequence, partition)
