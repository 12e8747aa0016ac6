"""The usual Produce frames, answered where they were read, several at once.

The effect is that of `produce` for each frame in turn, with one write, one look at the purgatories and one
answer for those that follow each other and go to one partition. Whatever is not usual is left to `produce`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.formats.errors import StorageError
from klog.protocol.produce_run import ProduceRun
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.handlers.remembered_targets import RememberedTargets
from klog.server.network.connection import Connection
from klog.server.request_times import Timing
from klog.server.topic_stats import BrokerTopicStats

_NO_ACKS: Final = 0


class ProduceRuns:
    """Answers runs of Produce frames. Safe for threads.

    `clock_ms` stamps records; `clock_ns` measures the time that `timing` records for each request.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        targets: RememberedTargets,
        clock_ms: Callable[[], int],
        topic_stats: BrokerTopicStats,
        timing: Timing,
        clock_ns: Callable[[], int],
    ) -> None:
        self._replicas = lookup.replicas
        self._targets = targets
        self._clock_ms = clock_ms
        self._topic_stats = topic_stats.topics
        self._timing = timing
        self._clock_ns = clock_ns
        # Each caller takes one out, so that no two threads share one.
        self._unused: list[ProduceRun] = []

    def handle(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer one run; the position after it, `start` if the first frame is none of this kind."""
        start_ns = self._clock_ns()
        run = self._unused.pop() if self._unused else ProduceRun()
        try:
            if not run.read(buffer, start, end) or not self._write(run, connection):
                return start
            self._timing.record_several(self._clock_ns() - start_ns, run.frames)
            return run.end
        finally:
            self._unused.append(run)

    def _write(self, run: ProduceRun, connection: Connection) -> bool:
        target = self._targets.find(run.topic, run.partition, False)
        if target is None or target.is_internal:
            return False
        try:
            appended = target.partition.append_run(run, self._clock_ms())
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
        if run.acks != _NO_ACKS:
            frame, numbers_at = target.produced(run.version)
            connection.outbound.add(run.answers(frame, numbers_at, first_offset, log_start_offset))
        return True
