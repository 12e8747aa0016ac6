"""Writes the commits of usual OffsetCommit frames where they were read, several at once.

The effect is that of `offsets` for each frame in turn, with one write for those that follow each other and
come from one member. If the log has followers, their answers wait for these together. Whatever is not usual
is left to `offsets`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from klog.coordinator.groups.requests import GroupRequests
from klog.coordinator.groups.services import Wait
from klog.formats.names import PartitionKey
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import (
    decode_response,
    decode_response_header,
    encode_response,
    encode_response_header,
)
from klog.protocol.primitives import INT32, text_of
from klog.protocol.runs import CommitRun
from klog.server.counters.request_times import ApiCounter
from klog.server.handlers.access import Access
from klog.server.network.connection import Connection
from klog.server.network.request import LateAnswers


class _Known:
    """The partitions that one state of the cluster has, as far as commits have named them."""

    __slots__ = ("cluster", "keys")

    def __init__(self, cluster: ClusterSnapshot) -> None:
        self.cluster = cluster
        # By the name as it came.
        self.keys: dict[tuple[bytes, int], PartitionKey] = {}


class CommitRuns:
    """Answers runs of OffsetCommit frames. Safe for threads.

    `clock_ns` measures the times that `counter` records.
    """

    def __init__(
        self,
        commits: GroupRequests,
        metadata: MetadataCache,
        counter: ApiCounter,
        clock_ns: Callable[[], int],
        access: Access | None = None,
    ) -> None:
        """Without `access` everybody may commit for all groups."""
        read = AclOperation.READ
        self._groups = None if access is None else access.right(read, AclResourceType.GROUP)
        self._topics = None if access is None else access.right(read, AclResourceType.TOPIC)
        self._commits = commits
        self._metadata = metadata
        self._counter = counter
        self._clock_ns = clock_ns
        self._known = _Known(metadata.snapshot)
        # Each caller takes one out, so that no two threads share one.
        self._unused: list[CommitRun] = []

    def handle(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer one run; the position after it, `start` if the first frame is none of this kind."""
        start_ns = self._clock_ns()
        run = self._unused.pop() if self._unused else CommitRun()
        try:
            if not run.read(buffer, start, end):
                return start
            keys = self._keys(run)
            if keys is None or not self._may_commit(connection, run, keys):
                return start
            taken = self._commits.commit_run(run, keys)
            if taken is False:
                return start
            counter = self._counter
            if taken is True:
                connection.outbound.add(run.answers())
                counter.handled(connection, run.frames, start_ns, self._clock_ns())
            else:
                self._wait(taken, run, connection, start_ns)
                counter.local.record_several(self._clock_ns() - start_ns, run.frames)
            return run.end
        finally:
            self._unused.append(run)

    def _may_commit(self, connection: Connection, run: CommitRun, keys: list[PartitionKey]) -> bool:
        """Whether the client may, without a word in the audit log; else `offsets` decides."""
        groups, topics = self._groups, self._topics
        if groups is None or topics is None:
            return True
        return groups.allows_silently(connection, run.group) and all(
            topics.allows_silently(connection, topic) for topic in {topic for topic, _ in keys}
        )

    def _wait(self, wait: Wait, run: CommitRun, connection: Connection, start_ns: int) -> None:
        """Send the answers when the run is replicated, or others that say why it is not."""
        late = LateAnswers(connection)
        handled_ns = self._clock_ns()
        version, frames, answers = run.version, run.frames, run.answers()

        def done(error: ErrorCode) -> None:
            late.respond((answers if error is ErrorCode.NONE else _failed(answers, version, error),))

        def answered() -> None:
            self._counter.answered_later(late, frames, start_ns, handled_ns, self._clock_ns())

        late.on_answered = answered
        connection.in_flight = late
        wait(done)

    def _keys(self, run: CommitRun) -> list[PartitionKey] | None:
        """What the offsets are for; None if the cluster does not know one of the partitions."""
        cluster, known = self._metadata.snapshot, self._known
        if known.cluster is not cluster:
            known = self._known = _Known(cluster)
        keys: list[PartitionKey] = []
        for raw in run.partitions():
            key = known.keys.get(raw)
            if key is None:
                key = (text_of(raw[0]), raw[1])
                # Only partitions that exist are remembered, so their number is bounded by the cluster.
                if key[1] not in cluster.topics.get(key[0], ()):
                    return None
                known.keys[raw] = key
            keys.append(key)
        return keys


def _failed(answers: bytes, version: int, error: ErrorCode) -> bytes:
    """The answers with an error for each of their partitions."""
    failed, start = b"", 0
    while start < len(answers):
        end = start + INT32.size + INT32.unpack_from(answers, start)[0]
        frame = memoryview(answers)[start + INT32.size : end]
        correlation_id, body = decode_response_header(ApiKey.OFFSET_COMMIT, version, frame)
        answer = decode_response(ApiKey.OFFSET_COMMIT, version, frame[body:])
        topics = tuple(
            replace(topic, partitions=tuple(replace(each, error_code=error) for each in topic.partitions))
            for topic in answer.topics
        )
        header = encode_response_header(ApiKey.OFFSET_COMMIT, version, correlation_id)
        sent = header + encode_response(replace(answer, topics=topics))
        failed += INT32.pack(len(sent)) + sent
        start = end
    return failed
