"""The partitions of one fetcher: which are fetched, which wait, which have failed, which have changed.

Rules: Kafka's `PartitionStates` and `AbstractFetcherThread` (`addPartitions`, `delayPartitions`,
`markPartitionFailed`). Times are milliseconds of a clock that is never set back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.fetching.following import NotFollowingError
from klog.replication.fetching.partition_fetch import Mode, PartitionFetch
from klog.replication.fetching.values import FetchSettings, FetchStart
from klog.replication.partition import Replicas
from klog.storage.log.append_values import AppendError, UnexpectedOffsetError
from klog.storage.log.descriptors import are_exhausted

_log = logging.getLogger(__name__)


class FetchedPartitions:
    """The states by partition, in the order in which the next full request names them.

    `stale` are partitions that a request may have to name, `preparing` those in another mode than
    FETCHING, `delayed` those that wait, with the times at which that is over.
    """

    def __init__(self, leader_id: int, settings: FetchSettings, replicas: Replicas) -> None:
        self.leader_id = leader_id
        self.states: dict[TopicPartition, PartitionFetch] = {}
        self.failed: set[TopicPartition] = set()
        self.preparing: dict[TopicPartition, None] = {}
        self.delayed: dict[TopicPartition, int] = {}
        self.stale: dict[TopicPartition, None] = {}
        self._settings = settings
        self._replicas = replicas

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Fetch these partitions. One that is fetched in the same leader epoch goes on where it is."""
        for key, start in starts.items():
            self.failed.discard(key)
            partition = self._replicas.partitions.get(key)
            if partition is None:
                continue
            known = self.states.get(key)
            if (
                known is not None
                and known.leader_epoch == start.leader_epoch
                and known.partition is partition
            ):
                continue
            self._drop(key)
            state = PartitionFetch(key, partition, start, Mode.TRUNCATING)
            if start.offset < 0:
                state.mode = Mode.LATEST
            elif self._settings.truncates_on_fetch and state.last_epoch >= 0:
                state.mode = Mode.FETCHING
            self.states[key] = state
            self.changed(state)

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchStart]:
        """Stop fetching partitions; returns how far those are that were fetched."""
        starts = {}
        for key in keys:
            state = self._drop(key)
            self.failed.discard(key)
            if state is not None:
                starts[key] = FetchStart(state.leader_epoch, state.offset)
        return starts

    def _drop(self, key: TopicPartition) -> PartitionFetch | None:
        self.delayed.pop(key, None)
        self.preparing.pop(key, None)
        self.stale[key] = None
        return self.states.pop(key, None)

    def is_served(self, state: PartitionFetch) -> bool:
        """Whether the replica is still the one that is fetched, on a disk that works."""
        partition = state.partition
        return not partition.log.closed and self._replicas.partitions.get(state.key) is partition

    def changed(self, state: PartitionFetch) -> None:
        """A request to the leader may have to name the partition."""
        if state.mode is Mode.FETCHING:
            self.preparing.pop(state.key, None)
        else:
            self.preparing[state.key] = None
        self.stale[state.key] = None

    # -- waiting and failing ---------------------------------------------------------------------------------

    def delay(self, key: TopicPartition, now_ms: int) -> None:
        """Leave a partition out until the back-off is over. A wait is not extended."""
        if key not in self.delayed:
            self.delayed[key] = now_ms + self._settings.backoff_ms
            self.stale[key] = None

    def end_delays(self, now_ms: int) -> None:
        """Go on with the partitions whose wait is over."""
        over = [key for key, until_ms in self.delayed.items() if until_ms <= now_ms]
        for key in over:
            del self.delayed[key]
            self.stale[key] = None

    def fail(self, key: TopicPartition, why: str, level: int = logging.ERROR) -> None:
        """Stop fetching a partition until it is added again."""
        _log.log(level, "%s is not copied from broker %d any more: %s", key, self.leader_id, why)
        self._drop(key)
        self.failed.add(key)

    def could_not(self, state: PartitionFetch, error: OSError | KlogError, now_ms: int) -> None:
        """Records could not be written, or could not be dropped."""
        key = state.key
        if isinstance(error, NotFollowingError):
            self.delay(key, now_ms)  # its removal from this fetcher is under way
        elif isinstance(error, AppendError) and not isinstance(error, UnexpectedOffsetError):
            _log.error("%s: the records from broker %d are damaged: %s", key, self.leader_id, error)
            self.delay(key, now_ms)
        elif are_exhausted(error):
            self.delay(key, now_ms)
        else:
            self.fail(key, str(error))

    def refused(
        self,
        state: PartitionFetch,
        error: ErrorCode,
        requested_epoch: int,
        now_ms: int,
        *,
        looks_up: bool = False,
    ) -> None:
        """The leader has answered an error; if the offset is out of range, `looks_up` allows to ask for the
        leader's offsets.
        """
        before, state.error = state.error, error
        react = reaction(error, requested_epoch, state.leader_epoch)
        if react is Reaction.FAIL:
            # The controller is about to send the later epoch.
            self.fail(state.key, f"there is a later epoch than {state.leader_epoch}", logging.INFO)
        elif react is Reaction.LOOK_UP and looks_up:
            state.mode = Mode.LATEST
            self.changed(state)
        else:
            if error is not before:
                level = logging.ERROR if react is Reaction.RETRY else logging.INFO
                _log.log(level, "%s: broker %d answers %s", state.key, self.leader_id, error.name)
            self.delay(state.key, now_ms)


# -- What a follower does when its leader answers an error for one partition ---------------------------------
# Rules: Kafka's `AbstractFetcherThread.processFetchRequest` and `onPartitionFenced`. Every error is
# temporary, except that the follower's present epoch is fenced: the controller will send a newer one.


class Reaction(Enum):
    """What to do with the partition."""

    FAIL = "stop fetching it until the controller says who leads"
    LOOK_UP = "ask the leader for its first and last offsets"
    RETRY = "fetch it again after the back-off"
    RETRY_EXPECTED = "fetch it again after the back-off; that is usual while leaders change"


_REACTIONS: Final[Mapping[ErrorCode, Reaction]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.LOOK_UP,
    # The leader has not heard of the epoch yet, or of having become the leader.
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction.RETRY_EXPECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.RETRY_EXPECTED,
    # The leader has not heard of the topic yet, or it is being deleted.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY_EXPECTED,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.RETRY_EXPECTED,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.RETRY_EXPECTED,
}


def reaction(error: ErrorCode, requested_epoch: int, present_epoch: int) -> Reaction:
    """The reaction to an error.

    `requested_epoch` is the leader epoch in the request, `present_epoch` the one in which the partition is
    fetched now. They differ if the controller has named a newer one meanwhile.
    """
    if error is ErrorCode.FENCED_LEADER_EPOCH:
        return Reaction.FAIL if requested_epoch == present_epoch else Reaction.RETRY_EXPECTED
    return _REACTIONS.get(error, Reaction.RETRY)
