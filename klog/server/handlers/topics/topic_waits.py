"""Requests that wait for changes of topics or partitions in this broker's metadata cache.

Rules: Kafka's DelayedCreatePartitions, DelayedDeleteTopics and DelayedElectLeader. Such a request is complete
when everything that it has changed is known here. The answer for the rest is REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from klog.formats.constants import NO_LEADER
from klog.formats.names import TopicPartition
from klog.metadata.cache import ClusterSnapshot
from klog.replication.purgatory import DelayedOperation, Purgatory

ChangedT = TypeVar("ChangedT", bound=Hashable)


class DelayedChange(DelayedOperation, Generic[ChangedT]):
    """Waits while one of `changed` is pending; `answer` gets those that are still pending at the end."""

    __slots__ = ("_answer", "_changed", "_is_pending")

    def __init__(
        self,
        due_ms: int,
        changed: Collection[ChangedT],
        is_pending: Callable[[ChangedT], bool],
        answer: Callable[[frozenset[ChangedT]], None],
    ) -> None:
        super().__init__(due_ms)
        self._changed = changed
        self._is_pending = is_pending
        self._answer = answer

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 (they are few: all are looked at)
        """Complete when nothing is pending any more."""
        return not any(map(self._is_pending, self._changed)) and self.force_complete()

    def on_complete(self) -> None:
        """Answer."""
        self._answer(frozenset(filter(self._is_pending, self._changed)))


DelayedTopics: TypeAlias = DelayedChange[str]
DelayedElection: TypeAlias = DelayedChange[TopicPartition]


@dataclass(frozen=True, slots=True)
class TopicWaits:
    """Lets requests wait until topics are no longer pending. `clock_ms` is the clock of the purgatory."""

    purgatory: Purgatory
    clock_ms: Callable[[], int]

    def wait(
        self,
        topics: Collection[str],
        is_pending: Callable[[str], bool],
        answer: Callable[[frozenset[str]], None],
        *,
        timeout_ms: int,
    ) -> None:
        """Answer when no topic is pending, or at the timeout; at once if there are no topics.

        If the timeout is not positive, every topic counts as pending, as in Kafka.
        """
        if timeout_ms <= 0 or not topics:
            answer(frozenset(topics))
            return
        operation = DelayedTopics(self.clock_ms() + timeout_ms, topics, is_pending, answer)
        self.purgatory.try_complete_else_watch(operation, topics)


def lacks_leaders(snapshot: ClusterSnapshot, topic: str, partitions: Iterable[int]) -> bool:
    """Whether one of the partitions is unknown or has no leader yet."""
    known = snapshot.topics.get(topic, {})
    return any(number not in known or known[number].leader == NO_LEADER for number in partitions)
