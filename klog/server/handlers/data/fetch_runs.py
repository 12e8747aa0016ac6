"""Answers the usual Fetch frames where they were read.

The effect is that of `fetch` for a consumer that asks for one partition of which this broker is the leader,
if there are enough records to answer at once. The consumer has no session, or the request is incremental and
the other partitions of its session have no news (KIP-227). Whatever is not usual is left to `fetch`, and so
are errors, which it finds again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.fetch_request import TOPIC_IDS_FROM
from klog.protocol.file_slice import FileSlice
from klog.protocol.usual_fetch import UsualFetch, read_usual_fetch
from klog.replication.partition import CONSUMER, Partition
from klog.replication.reading import NO_EPOCH, FetchEntry, FetchLimits, is_quiet
from klog.server.counters.request_times import ApiCounter
from klog.server.counters.topic_stats import BrokerTopicStats
from klog.server.handlers.access import Access
from klog.server.handlers.data.fetch_sessions import FetchSessions, SessionKey, SessionPartition
from klog.server.handlers.data.remembered_targets import RememberedTargets, Target
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.connection import Connection
from klog.storage.log.reading import Read

_ZSTD_FROM: Final = 10
_FROM_FOLLOWERS_FROM: Final = 11
_SMALL_SESSION: Final = 16  # partitions; it costs more to look through a larger one in vain


class FetchRuns:
    """Answers usual Fetch frames, one at a time. Safe for threads.

    `max_bytes` is `fetch.max.bytes`. `clock_ns` measures the time that `counter` records for each request.
    With `may_choose_replica`, `fetch` decides for consumers that name a rack which replica they read from.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        targets: RememberedTargets,
        sessions: FetchSessions,
        max_bytes: int,
        topic_stats: BrokerTopicStats,
        counter: ApiCounter,
        clock_ns: Callable[[], int],
        *,
        may_choose_replica: bool = False,
        access: Access | None = None,
    ) -> None:
        """Without `access` everybody may read all topics."""
        self._topics = None if access is None else access.right(AclOperation.READ, AclResourceType.TOPIC)
        self._replicas = lookup.replicas
        self._targets = targets
        self._sessions = sessions
        self._max_bytes = max_bytes
        self._topic_stats = topic_stats.topics
        self._counter = counter
        self._clock_ns = clock_ns
        self._may_choose_replica = may_choose_replica

    def handle(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer one frame; the position after it, `start` if it is none of this kind.

        Raises StorageError if a few records, which are copied, cannot be read.
        """
        start_ns = self._clock_ns()
        fetch = read_usual_fetch(buffer, start, end)
        if fetch is None or (self._may_choose_replica and fetch.has_rack):
            return start
        target = self._targets.find(fetch.topic, fetch.partition, fetch.version >= TOPIC_IDS_FROM)
        if target is None or not self._may_read(connection, target.key[0]):
            return start
        if fetch.session_epoch < 0:
            read = self._read(fetch, target.partition)
        else:
            read = self._read_in_session(connection, fetch, target)
        if read is None or read.file is None:
            return start
        size, answer = read.size, target.fetched(fetch.version, fetch.committed)
        head = answer.head(
            fetch.correlation_id,
            fetch.session_id,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            size,
        )
        stats = self._topic_stats[target.key[0]]
        stats.fetches += 1
        stats.bytes_out += size
        self._counter.handled(connection, 1, start_ns, self._clock_ns())
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
            fetch.committed,
        )
        if read is None or read.aborted:
            return None
        if fetch.max_wait_ms > 0 and read.size < min(fetch.min_bytes, max_bytes):
            return None
        if fetch.version < _ZSTD_FROM and partition.log.config.compression_type == "zstd":
            return None
        return read

    def _may_read(self, connection: Connection, topic: str) -> bool:
        """Whether the client may, without a word in the audit log; else `fetch` decides."""
        return self._topics is None or self._topics.allows_silently(connection, topic)

    def _may_read_all(self, connection: Connection, others: list[SessionPartition]) -> bool:
        if self._topics is not None:
            for other in others:
                if not self._may_read(connection, other.entry.key[0]):
                    return False
        return True

    def _read_in_session(self, connection: Connection, fetch: UsualFetch, target: Target) -> Read | None:
        """As `_read`, for an incremental request; its session has gone on if there is an answer."""
        topic_id = target.topic_id
        session = self._sessions.find(fetch.session_id, fetch.session_epoch, topic_id is not None)
        if session is None or len(session.partitions) > _SMALL_SESSION:
            return None
        key: SessionKey = (topic_id or target.key[0], fetch.partition)
        others = session.others(key)
        if others is None or not self._are_quiet(others, fetch):
            return None
        if not self._may_read_all(connection, others):
            return None
        read = self._read(fetch, target.partition)
        if read is None:
            return None
        entry = FetchEntry(
            target.key,
            fetch.offset,
            fetch.partition_max_bytes,
            fetch.current_leader_epoch,
            NO_EPOCH,
            fetch.log_start_offset,
            topic_id,
        )
        if not self._sessions.answer_one(
            session, fetch.session_epoch, key, entry, read.high_watermark, read.log_start_offset
        ):
            return None
        for other in others:
            self._topic_stats[other.entry.key[0]].fetches += 1
        return read

    def _are_quiet(self, others: list[SessionPartition], fetch: UsualFetch) -> bool:
        """Whether the consumer knows all that can be said of the other partitions of its session."""
        if not others:
            return True
        leader_only = fetch.version < _FROM_FOLLOWERS_FROM
        limits = FetchLimits(fetch.min_bytes, fetch.max_bytes, CONSUMER, fetch.committed, leader_only)
        partitions = self._replicas.partitions
        for other in others:
            partition = partitions.get(other.entry.key)
            if partition is None or not is_quiet(partition, other, limits):
                return False
        return True
