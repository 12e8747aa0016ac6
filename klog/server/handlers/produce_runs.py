"""The usual Produce frames, answered where they were read, several at once.

The effect is that of `produce` for each frame in turn, with one write, one look at the purgatories and one
answer for those that follow each other and go to one partition. Whatever is not usual is left to `produce`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.formats.errors import StorageError
from klog.protocol.primitives import text_of
from klog.protocol.produce_response import AnswerTemplate, answer_template
from klog.protocol.produce_run import ProduceRun
from klog.replication.partition import Partition
from klog.server.handlers.partition_lookup import Key, PartitionLookup
from klog.server.handlers.remembered_targets import RememberedTargets
from klog.server.handlers.topic_metadata import INTERNAL_TOPICS
from klog.server.network.connection import Connection
from klog.server.request_times import Timing
from klog.server.topic_stats import BrokerTopicStats

_NO_ACKS: Final = 0


class _Target:
    """A partition that runs go to, and what is made for it once."""

    __slots__ = ("_answers", "key", "partition")

    def __init__(self, key: Key, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self._answers: dict[int, AnswerTemplate] = {}

    def answer(self, version: int) -> AnswerTemplate:
        """The answer to a request of that version."""
        template = self._answers.get(version)
        if template is None:
            template = self._answers[version] = answer_template(version, *self.key)
        return template


class ProduceRuns:
    """Answers runs of Produce frames. Safe for threads.

    `clock_ms` stamps records; `clock_ns` measures the time that `timing` records for each request.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        clock_ms: Callable[[], int],
        topic_stats: BrokerTopicStats,
        timing: Timing,
        clock_ns: Callable[[], int],
    ) -> None:
        self._replicas = lookup.replicas
        self._clock_ms = clock_ms
        self._topic_stats = topic_stats.topics
        self._timing = timing
        self._clock_ns = clock_ns
        # Each caller takes one out, so that no two threads share one.
        self._unused: list[ProduceRun] = []
        # By topic as in the request, and partition. Only replicas of this broker are remembered.
        self._remembered: RememberedTargets[tuple[bytes, int], _Target] = RememberedTargets(lookup)

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
        target = self._target((run.topic, run.partition))
        if target is None:
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
        self._replicas.appended(key, high_watermark_moved=moved)
        if run.acks != _NO_ACKS:
            frame, numbers_at = target.answer(run.version)
            connection.outbound.add(run.answers(frame, numbers_at, first_offset, log_start_offset))
        return True

    def _target(self, raw_key: tuple[bytes, int]) -> _Target | None:
        """The partition, if this broker has it and the cluster knows it; None for internal topics."""
        targets = self._remembered.present()
        target = targets.by_key.get(raw_key)
        if target is not None:
            return target
        topic, index = text_of(raw_key[0]), raw_key[1]
        partition = targets.replicas.get((topic, index))
        if (
            partition is None
            or topic in INTERNAL_TOPICS
            or index not in targets.cluster.topics.get(topic, ())
        ):
            return None
        target = targets.by_key[raw_key] = _Target((topic, index), partition)
        return target
