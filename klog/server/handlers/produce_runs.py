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
from klog.server.handlers.topic_metadata import INTERNAL_TOPICS
from klog.server.handlers.whereabouts import Whereabouts
from klog.server.network.connection import Connection
from klog.server.request_times import Timing
from klog.server.traffic import Traffic

_NO_ACKS: Final = 0
_TOPICS_REMEMBERED: Final = 4096


class ProduceRuns:
    """Answers runs of Produce frames. Safe for threads.

    `clock_ms` stamps records; `clock_ns` measures the time that `timing` records for each request.
    """

    def __init__(
        self,
        whereabouts: Whereabouts,
        clock_ms: Callable[[], int],
        traffic: Traffic,
        timing: Timing,
        clock_ns: Callable[[], int],
    ) -> None:
        self._whereabouts = whereabouts
        self._clock_ms = clock_ms
        self._traffic = traffic.topics
        self._timing = timing
        self._clock_ns = clock_ns
        # Each caller takes one out, so that no two threads share one.
        self._unused: list[ProduceRun] = []
        self._names: dict[bytes, str] = {}
        self._templates: dict[tuple[int, bytes, int], AnswerTemplate] = {}

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
        raw_topic = run.topic
        topic = self._names.get(raw_topic) or self._name(raw_topic)
        key = topic, run.partition
        whereabouts = self._whereabouts
        replicas = whereabouts.replicas
        partition = replicas.partitions.get(key)
        if partition is None or topic in INTERNAL_TOPICS or not whereabouts.known(key):
            return False
        try:
            appended = partition.append_run(run, self._clock_ms())
        except (OSError, StorageError):
            # The log is closed now; the general path says so in its answer.
            return False
        if appended is None:
            return False
        first_offset, log_start_offset, moved = appended
        traffic = self._traffic[topic]
        traffic.produces += run.frames
        traffic.messages_in += run.records
        traffic.bytes_in += run.size_bytes
        replicas.appended(key, high_watermark_moved=moved)
        if run.acks != _NO_ACKS:
            template_key = run.version, raw_topic, run.partition
            template = self._templates.get(template_key) or self._template(template_key, topic)
            connection.outbound.add(
                run.answers(template.frame, template.numbers_at, first_offset, log_start_offset)
            )
        return True

    def _name(self, raw_topic: bytes) -> str:
        """The topic's name, remembered if the cluster has the topic."""
        name = text_of(raw_topic)
        if self._whereabouts.has_topic(name):
            if len(self._names) >= _TOPICS_REMEMBERED:
                self._names.clear()
            self._names[raw_topic] = name
        return name

    def _template(self, key: tuple[int, bytes, int], topic: str) -> AnswerTemplate:
        if len(self._templates) >= _TOPICS_REMEMBERED:
            self._templates.clear()
        version, _, partition = key
        template = self._templates[key] = answer_template(version, topic, partition)
        return template
