"""Makes a follower's log agree with its leader's before it is fetched: truncation and offsets out of range.

Rules: Kafka's `AbstractFetcherThread.maybeTruncate`, `truncateOnFetchResponse` and `fetchOffsetAndTruncate`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from klog.formats.epochs import EpochEnd
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.offset_times import EARLIEST, LATEST
from klog.replication.fetching import following
from klog.replication.fetching.fetched_partitions import FetchedPartitions
from klog.replication.fetching.following import Cut
from klog.replication.fetching.partition_fetch import Mode, PartitionFetch
from klog.replication.fetching.values import (
    AskEpochEnds,
    AskOffsets,
    EpochAnswered,
    EpochAsked,
    FetchSettings,
    OffsetAnswered,
    Truncated,
)

_log = logging.getLogger(__name__)


class Alignment:
    """Asks the leader, and truncates logs as it says. The partitions are those of one fetcher."""

    def __init__(self, partitions: FetchedPartitions, settings: FetchSettings, truncated: Truncated) -> None:
        self._partitions = partitions
        self._settings = settings
        self._truncated = truncated

    def next_request(self, now_ms: int) -> AskEpochEnds | AskOffsets | None:
        """What has to be asked before anything is fetched."""
        partitions = self._partitions
        ready = [partitions.states[key] for key in partitions.preparing if key not in partitions.delayed]
        return self._ask_epochs(ready, now_ms) or self._ask_offsets(ready)

    def _ask_epochs(self, ready: Iterable[PartitionFetch], now_ms: int) -> AskEpochEnds | None:
        asked = {}
        for state in ready:
            if state.mode is not Mode.TRUNCATING:
                continue
            if state.last_epoch >= 0:
                asked[state.key] = EpochAsked(state.leader_epoch, state.last_epoch)
            else:
                # Nothing can be compared. What is below the high watermark is on the leader, too.
                self._truncate(state, state.offset, now_ms)
        return AskEpochEnds(self._settings.broker_id, asked) if asked else None

    def _ask_offsets(self, ready: Iterable[PartitionFetch]) -> AskOffsets | None:
        for mode, timestamp in ((Mode.LATEST, LATEST), (Mode.EARLIEST, EARLIEST)):
            asked = {state.key: state.leader_epoch for state in ready if state.mode is mode}
            if asked:
                return AskOffsets(self._settings.broker_id, timestamp, asked)
        return None

    # -- truncation ------------------------------------------------------------------------------------------

    def diverged(self, state: PartitionFetch, leader_end: EpochEnd, now_ms: int) -> None:
        """The leader says where an epoch ends; what this log has beyond that is dropped."""
        epoch, offset = state.leader_epoch, state.offset
        try:
            self._move(state, following.truncate_by_epoch(state.partition, epoch, leader_end, offset))
        except (OSError, KlogError) as error:
            self._partitions.could_not(state, error, now_ms)

    def _truncate(self, state: PartitionFetch, offset: int, now_ms: int) -> None:
        try:
            self._move(state, following.truncate_to(state.partition, state.leader_epoch, offset))
        except (OSError, KlogError) as error:
            self._partitions.could_not(state, error, now_ms)

    def _move(self, state: PartitionFetch, cut: Cut) -> None:
        """The log was truncated: fetch from there on, if no other truncation has to follow first."""
        if cut.dropped:
            self._truncated(state.partition.log)
        state.moved(cut.offset, cut.last_epoch)
        if not cut.is_complete and not self._settings.truncates_on_fetch:
            state.mode = Mode.TRUNCATING
        self._partitions.changed(state)

    def epochs_answered(
        self, request: AskEpochEnds, answers: Mapping[TopicPartition, EpochAnswered], now_ms: int
    ) -> None:
        """The leader has said where epochs end."""
        for key, asked in request.partitions.items():
            epoch = asked.current_leader_epoch
            state, answer = self._asked(key, Mode.TRUNCATING, epoch), answers.get(key)
            if state is None or self._is_refused(state, answer, epoch, now_ms) or answer is None:
                continue
            self.diverged(state, EpochEnd(answer.leader_epoch, answer.end_offset), now_ms)

    def _asked(self, key: TopicPartition, mode: Mode, leader_epoch: int) -> PartitionFetch | None:
        """The state of a partition, if nothing has changed since the leader was asked."""
        state = self._partitions.states.get(key)
        if state is None or state.mode is not mode or state.leader_epoch != leader_epoch:
            return None
        return state

    def _is_refused(
        self,
        state: PartitionFetch,
        answer: EpochAnswered | OffsetAnswered | None,
        requested_epoch: int,
        now_ms: int,
    ) -> bool:
        error = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else error_code(answer.error_code)
        if error is not ErrorCode.NONE:
            self._partitions.refused(state, error, requested_epoch, now_ms)
        return error is not ErrorCode.NONE

    # -- out of range ----------------------------------------------------------------------------------------

    def offsets_answered(
        self, request: AskOffsets, answers: Mapping[TopicPartition, OffsetAnswered], now_ms: int
    ) -> None:
        """The leader has said where its logs end, or where they start."""
        mode = Mode.LATEST if request.timestamp == LATEST else Mode.EARLIEST
        for key, epoch in request.partitions.items():
            state, answer = self._asked(key, mode, epoch), answers.get(key)
            if state is None or self._is_refused(state, answer, epoch, now_ms) or answer is None:
                continue
            try:
                if mode is Mode.LATEST:
                    self._leader_ends(state, answer.offset)
                else:
                    self._leader_starts(state, answer.offset, now_ms)
            except (OSError, KlogError) as failure:
                self._partitions.could_not(state, failure, now_ms)

    def _leader_ends(self, state: PartitionFetch, leader_end: int) -> None:
        end_offset = following.position(state.partition, state.leader_epoch).next_offset
        if leader_end >= end_offset:
            state.mode, state.leader_end = Mode.EARLIEST, leader_end
            return
        # Only an unclean election leads to this: the leader never had the records beyond its end.
        _log.warning(
            "%s ends at %d, its leader at %d: the records beyond that are dropped",
            state.key,
            end_offset,
            leader_end,
        )
        self._move(state, following.truncate_to(state.partition, state.leader_epoch, leader_end))

    def _leader_starts(self, state: PartitionFetch, leader_start: int, now_ms: int) -> None:
        before = state.offset, state.last_epoch
        own = following.position(state.partition, state.leader_epoch)
        if leader_start > own.next_offset:
            self._move(state, following.restart_at(state.partition, state.leader_epoch, leader_start))
        else:
            self._move(state, Cut(own.next_offset, own.last_epoch, dropped=False))
        state.lag = max(state.leader_end - state.offset, 0)
        if before == (state.offset, state.last_epoch):
            self._partitions.delay(state.key, now_ms)  # the same fetch would be refused again
