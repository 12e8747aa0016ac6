"""DeleteRecords requests that wait until every live follower has moved its log start, too.

Rules: Kafka's `DelayedDeleteRecords`: a partition is done when its low watermark has reached the offset, it
fails when leadership is lost, and what is still missing when the time is over is answered REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Replicas
from klog.replication.purgatory import DelayedOperation

INVALID_LOW_WATERMARK = -1


@dataclass(slots=True)
class Deletion:
    """One partition whose low watermark must reach `required_offset`.

    `error` and `low_watermark` are what it would be answered now.
    """

    required_offset: int
    low_watermark: int = INVALID_LOW_WATERMARK
    error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    pending: bool = True


class DelayedDeleteRecords(DelayedOperation):
    """A DeleteRecords request that waits for followers. `missing` says what is wrong with a partition that is
    gone.
    """

    __slots__ = ("_answer", "_missing", "_replicas", "deletions")

    def __init__(
        self,
        due_ms: int,
        replicas: Replicas,
        deletions: Mapping[tuple[str, int], Deletion],
        missing: Callable[[tuple[str, int]], ErrorCode],
        answer: Callable[[Mapping[tuple[str, int], Deletion]], None],
    ) -> None:
        super().__init__(due_ms)
        self._replicas = replicas
        self.deletions = deletions
        self._missing = missing
        self._answer = answer

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 (few partitions: all are looked at)
        """Complete when no partition is pending any more."""
        for where, deletion in self.deletions.items():
            if deletion.pending:
                self._look(where, deletion)
        return not any(each.pending for each in self.deletions.values()) and self.force_complete()

    def _look(self, where: tuple[str, int], deletion: Deletion) -> None:
        partition = self._replicas.partitions.get(where)
        if partition is None or not partition.state.is_leader:
            gone = self._missing(where) if partition is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
            deletion.error = gone
            deletion.low_watermark = INVALID_LOW_WATERMARK
            deletion.pending = False
            return
        low_watermark = partition.low_watermark()
        if low_watermark >= deletion.required_offset:
            deletion.error = ErrorCode.NONE
            deletion.low_watermark = low_watermark
            deletion.pending = False

    def on_complete(self) -> None:
        """Answer."""
        self._answer(self.deletions)
