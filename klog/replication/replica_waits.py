"""Operations that wait for partitions which this broker leads, and fail for those that it no longer leads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Partition, Replicas
from klog.replication.purgatory import DelayedOperation


@dataclass(slots=True)
class PartitionWait:
    """One partition that an operation waits for: an offset of it must reach `required_offset`.

    `error` is the partition's answer if the wait ended now.
    """

    required_offset: int
    error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    pending: bool = True

    def end(self, error: ErrorCode) -> None:
        """Wait no longer, and answer this."""
        self.error = error
        self.pending = False


Wait = TypeVar("Wait", bound=PartitionWait)


class ReplicaOperation(DelayedOperation, Generic[Wait]):
    """An operation that completes when none of its partitions is pending.

    `missing` gives the error for a partition that has no replica here; `answer` is called once, with all
    waits, when the operation completes. A subclass says when a partition that this broker leads is done.
    """

    __slots__ = ("_answer", "_missing", "_replicas", "_waits")

    def __init__(
        self,
        due_ms: int,
        replicas: Replicas,
        waits: Mapping[tuple[str, int], Wait],
        missing: Callable[[tuple[str, int]], ErrorCode],
        answer: Callable[[Mapping[tuple[str, int], Wait]], None],
    ) -> None:
        super().__init__(due_ms)
        self._replicas = replicas
        self._waits = waits
        self._missing = missing
        self._answer = answer

    def check(self, partition: Partition, wait: Wait) -> None:  # noqa: ARG002 (for subclasses)
        """End the wait for a partition that this broker leads, if its condition holds."""
        raise RuntimeError(f"{type(self).__name__} does not say when a partition is done")

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 (few partitions: all are checked)
        """Complete if no partition is pending any more."""
        for key_of_wait, wait in self._waits.items():
            if wait.pending:
                self._check(key_of_wait, wait)
        return not any(wait.pending for wait in self._waits.values()) and self.force_complete()

    def _check(self, key: tuple[str, int], wait: Wait) -> None:
        partition = self._replicas.partitions.get(key)
        if partition is None:
            wait.end(self._missing(key))
        elif not partition.state.is_leader:
            wait.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self.check(partition, wait)

    def on_complete(self) -> None:
        """Answer."""
        self._answer(self._waits)
