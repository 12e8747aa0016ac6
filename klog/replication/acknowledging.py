"""Producers that wait until all in-sync replicas have their records (acks=all).

Rules: Kafka's `DelayedProduce`: a partition is acknowledged when its high watermark has passed the records,
with NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few replicas are in sync by then; it fails when leadership is
lost; what is still missing when the time is over is answered REQUEST_TIMED_OUT (the records stay).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Replicas
from klog.replication.purgatory import DelayedOperation


@dataclass(slots=True)
class Awaited:
    """One partition that a producer waits for: the high watermark must reach `required_offset`.

    `error` is what it would be answered now.
    """

    required_offset: int
    error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    pending: bool = True


class DelayedProduce(DelayedOperation):
    """A produce request that waits for replication. `missing` says what is wrong with a partition that is
    gone.
    """

    __slots__ = ("_answer", "_missing", "_replicas", "awaited")

    def __init__(
        self,
        due_ms: int,
        replicas: Replicas,
        awaited: Mapping[tuple[str, int], Awaited],
        missing: Callable[[tuple[str, int]], ErrorCode],
        answer: Callable[[Mapping[tuple[str, int], Awaited]], None],
    ) -> None:
        super().__init__(due_ms)
        self._replicas = replicas
        self.awaited = awaited
        self._missing = missing
        self._answer = answer

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 (few partitions: all are looked at)
        """Complete when no partition is pending any more."""
        for where, awaited in self.awaited.items():
            if awaited.pending:
                self._look(where, awaited)
        return not any(awaited.pending for awaited in self.awaited.values()) and self.force_complete()

    def _look(self, where: tuple[str, int], awaited: Awaited) -> None:
        partition = self._replicas.partitions.get(where)
        if partition is None:
            awaited.error = self._missing(where)
            awaited.pending = False
        elif not partition.state.is_leader:
            awaited.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            awaited.pending = False
        elif partition.log.high_watermark >= awaited.required_offset:
            enough = len(partition.state.isr.maximal) >= partition.min_in_sync_replicas
            awaited.error = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            awaited.pending = False

    def on_complete(self) -> None:
        """Answer."""
        self._answer(self.awaited)
