"""The usual Fetch frames, answered where they were read.

The effect is that of `fetch` for a consumer without a session that asks for one partition of which this
broker is the leader, if there are enough records to answer at once. Whatever is not usual is left to `fetch`,
and so are errors, which it finds again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from klog.protocol.fetch_request import TOPIC_IDS_FROM
from klog.protocol.fetch_response import AnswerTemplate, answer_template
from klog.protocol.file_slice import FileSlice
from klog.protocol.primitives import text_of
from klog.protocol.usual_fetch import UsualFetch, read_usual_fetch
from klog.replication.partition import Partition
from klog.server.handlers.partition_lookup import Key, PartitionLookup
from klog.server.handlers.remembered_targets import RememberedTargets
from klog.server.network.connection import Connection
from klog.server.request_times import Timing
from klog.server.topic_stats import BrokerTopicStats
from klog.storage.log.reading import Read

_ZSTD_FROM: Final = 10


class _Asked(NamedTuple):
    """What decides the form of an answer. `topic` is as in the request."""

    version: int
    topic: bytes
    partition: int
    committed: bool


class _Target(NamedTuple):
    """A partition that is fetched from, and the form of the answers."""

    key: Key
    partition: Partition
    answer: AnswerTemplate


class FetchRuns:
    """Answers usual Fetch frames, one at a time. Safe for threads.

    `max_bytes` is `fetch.max.bytes`. `clock_ns` measures the time that `timing` records for each request.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        max_bytes: int,
        topic_stats: BrokerTopicStats,
        timing: Timing,
        clock_ns: Callable[[], int],
    ) -> None:
        self._lookup = lookup
        self._max_bytes = max_bytes
        self._topic_stats = topic_stats.topics
        self._timing = timing
        self._clock_ns = clock_ns
        # Only replicas of this broker are remembered.
        self._remembered: RememberedTargets[_Asked, _Target] = RememberedTargets(lookup)

    def handle(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer one frame; the position after it, `start` if it is none of this kind.

        Raises StorageError if a few records, which are copied, cannot be read.
        """
        start_ns = self._clock_ns()
        fetch = read_usual_fetch(buffer, start, end)
        if fetch is None:
            return start
        target = self._target(_Asked(fetch.version, fetch.topic, fetch.partition, fetch.committed))
        if target is None:
            return start
        read = self._read(fetch, target.partition)
        if read is None or read.file is None:
            return start
        size, answer = read.size, target.answer
        head = answer.head(
            fetch.correlation_id, read.high_watermark, read.last_stable_offset, read.log_start_offset, size
        )
        stats = self._topic_stats[target.key[0]]
        stats.fetches += 1
        stats.bytes_out += size
        self._timing.record(self._clock_ns() - start_ns)
        add = connection.outbound.add
        add(head)
        add(FileSlice(read.file, read.position, size))
        if answer.after:
            add(answer.after)
        return fetch.end

    def _read(self, fetch: UsualFetch, partition: Partition) -> Read | None:
        """The records to answer with; None if the answer has to wait, or is none of this kind."""
        max_bytes = min(fetch.max_bytes, self._max_bytes)
        read = partition.read_for_consumer(
            fetch.offset,
            min(fetch.partition_max_bytes, max_bytes),
            fetch.current_leader_epoch,
            committed=fetch.committed,
        )
        if read is None or read.aborted:
            return None
        if fetch.max_wait_ms > 0 and read.size < min(fetch.min_bytes, max_bytes):
            return None
        if fetch.version < _ZSTD_FROM and partition.log.config.compression_type == "zstd":
            return None
        return read

    def _target(self, asked: _Asked) -> _Target | None:
        """The partition, if this broker has it and the cluster knows it."""
        targets = self._remembered.present()
        target = targets.by_key.get(asked)
        if target is not None:
            return target
        name, topic_id = self._topic(asked)
        key = name, asked.partition
        partition = targets.replicas.get(key)
        if partition is None or key[1] not in targets.cluster.topics.get(name, ()):
            return None
        if topic_id is not None and partition.topic_id != topic_id:
            return None
        answer = answer_template(asked.version, name, topic_id, asked.partition, committed=asked.committed)
        target = targets.by_key[asked] = _Target(key, partition, answer)
        return target

    def _topic(self, asked: _Asked) -> tuple[str, UUID | None]:
        """Its name, which is empty if it is not known, and the id if the request has one."""
        if asked.version < TOPIC_IDS_FROM:
            return text_of(asked.topic), None
        topic_id = UUID(bytes=asked.topic)
        return self._lookup.topic_name(topic_id) or "", topic_id
