"""The usual OffsetCommit frames, answered where they were read, several at once.

The effect is that of `offsets` for each frame in turn, with one write for those that follow each other and
come from one member. Whatever is not usual is left to `offsets`.
"""

from __future__ import annotations

from collections.abc import Callable

from klog.coordinator.groups.offsets.commit_runs import GroupCommits
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.protocol.commit_run import CommitRun
from klog.protocol.primitives import text_of
from klog.server.counters.request_times import Timing
from klog.server.network.connection import Connection

Key = tuple[str, int]


class _Known:
    """The partitions that one state of the cluster has, as far as commits have named them."""

    __slots__ = ("cluster", "keys")

    def __init__(self, cluster: ClusterSnapshot) -> None:
        self.cluster = cluster
        # By the name as it came.
        self.keys: dict[tuple[bytes, int], Key] = {}


class CommitRuns:
    """Answers runs of OffsetCommit frames. Safe for threads.

    `clock_ns` measures the time that `timing` records for each request.
    """

    def __init__(
        self, commits: GroupCommits, metadata: MetadataCache, timing: Timing, clock_ns: Callable[[], int]
    ) -> None:
        self._commits = commits
        self._metadata = metadata
        self._timing = timing
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
            if keys is None or not self._commits.take(run, keys):
                return start
            connection.outbound.add(run.answers())
            self._timing.record_several(self._clock_ns() - start_ns, run.frames)
            return run.end
        finally:
            self._unused.append(run)

    def _keys(self, run: CommitRun) -> list[Key] | None:
        """What the offsets are for; None if the cluster does not know one of the partitions."""
        cluster, known = self._metadata.snapshot, self._known
        if known.cluster is not cluster:
            known = self._known = _Known(cluster)
        keys: list[Key] = []
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
