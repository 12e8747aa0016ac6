"""Fetches all partitions that one thread copies from one leader broker.

Rules: Kafka's `AbstractFetcherThread`. It is a state machine: `next_request` gives a request as a value, and
`answered` or `failed` tells how it ended. One request is under way at a time. It changes logs through
`klog.replication.fetching.following`. Times are milliseconds of a clock that is never set back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.fetch_request import TOPIC_IDS_FROM, FetchPartition, FetchRequest
from klog.protocol.fetch_response import NOT_DIVERGING, FetchResponse, PartitionFetched
from klog.replication.fetching import following
from klog.replication.fetching.alignment import Alignment
from klog.replication.fetching.fetched_partitions import FetchedPartitions
from klog.replication.fetching.partition_fetch import Mode, PartitionFetch
from klog.replication.fetching.session import FetchSession, SessionEntry, SessionRequest
from klog.replication.fetching.values import (
    AskEpochEnds,
    EpochAnswered,
    Fetch,
    FetcherAnswer,
    FetcherRequest,
    FetchSettings,
    FetchStart,
    FollowerQuota,
    OffsetAnswered,
    Progress,
    Truncated,
)
from klog.replication.partition import Replicas

_log = logging.getLogger(__name__)

_READ_UNCOMMITTED: Final = 0


class Fetcher:
    """The partitions fetched from one leader broker. One thread uses it; others may read its numbers."""

    def __init__(
        self,
        leader_id: int,
        settings: FetchSettings,
        replicas: Replicas,
        *,
        broker_epoch: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        quota: FollowerQuota | None = None,
        truncated: Truncated = lambda log: None,  # noqa: ARG005
    ) -> None:
        """`broker_epoch` gives this broker's epoch (KIP-903). `wall_clock_ms` is for the ages of segments."""
        self.leader_id = leader_id
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._wall_clock_ms = wall_clock_ms
        self._quota = quota
        self._partitions = FetchedPartitions(leader_id, settings, replicas)
        self._alignment = Alignment(self._partitions, settings, truncated)
        self._session = FetchSession(may_use_topic_ids=settings.max_version >= TOPIC_IDS_FROM)
        self._held_back: set[TopicPartition] = set()  # by the throttle
        self._logs_seen_ms: int | None = None

    @property
    def states(self) -> Mapping[TopicPartition, PartitionFetch]:
        """How far each partition is that is fetched."""
        return self._partitions.states

    @property
    def failed_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are not fetched until they are added again."""
        return frozenset(self._partitions.failed)

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Fetch these partitions. One that is fetched in the same leader epoch goes on where it is."""
        self._partitions.add(starts)

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchStart]:
        """Stop fetching partitions; returns how far those are that were fetched."""
        return self._partitions.remove(keys)

    # -- the next request ------------------------------------------------------------------------------------

    def idle_ms(self, now_ms: int) -> int:
        """How long to wait if there was nothing to send; a change of the partitions ends the wait."""
        backoff_ms = self._settings.backoff_ms
        until_ms = min(self._partitions.delayed.values(), default=now_ms + backoff_ms)
        return max(min(until_ms - now_ms, backoff_ms), 0)

    def next_request(self, now_ms: int) -> FetcherRequest | None:
        """What to send now; None if there is nothing to fetch or to ask."""
        partitions = self._partitions
        if partitions.delayed:
            partitions.end_delays(now_ms)
        if partitions.preparing:
            request = self._alignment.next_request(now_ms)
            if request is not None:
                return request
        return self._next_fetch(now_ms)

    def _next_fetch(self, now_ms: int) -> Fetch | None:
        partitions, session = self._partitions, self._session
        self._notice_logs(now_ms)
        is_over_limit = self._is_over_limit(now_ms)
        if not session.is_full:
            stale, partitions.stale = partitions.stale, {}
            changed: dict[TopicPartition, SessionEntry] = {}
            gone: list[TopicPartition] = []
            for key in stale:
                entry, known = self._entry(key, is_over_limit, now_ms), session.known.get(key)
                if entry is None:
                    if known is not None:
                        gone.append(key)
                elif entry != known:
                    changed[key] = entry
            if session.fits(changed, gone):
                if not session.known and not changed:
                    return None
                return self._fetch(session.next_request(changed, gone))
            session.restart()
        partitions.stale.clear()
        entries = {key: self._entry(key, is_over_limit, now_ms) for key in tuple(partitions.states)}
        ready = {key: entry for key, entry in entries.items() if entry is not None}
        return self._fetch(session.full_request(ready)) if ready else None

    def _notice_logs(self, now_ms: int) -> None:
        """Notice what others change: log start offsets (by retention), and topic ids that become known."""
        seen_ms = self._logs_seen_ms
        if seen_ms is not None and now_ms - seen_ms < self._settings.max_wait_ms:
            return
        self._logs_seen_ms = now_ms
        states, stale = self._partitions.states, self._partitions.stale
        for key, (asked, topic_id) in self._session.known.items():
            state = states.get(key)
            if state is not None and (
                state.partition.log.log_start_offset != asked.log_start_offset
                or state.partition.topic_id is not topic_id
                or state.partition.log.closed
            ):
                stale[key] = None

    def _is_over_limit(self, now_ms: int) -> bool:
        """Whether the throttle holds partitions back now."""
        stale = self._partitions.stale
        if self._held_back:
            stale.update(dict.fromkeys(self._held_back))
            self._held_back.clear()
        quota = self._quota
        if quota is None or not quota.exceeded(now_ms):
            return False
        stale.update((key, None) for key in self._partitions.states if quota.is_throttled(key))
        return True

    def _entry(self, key: TopicPartition, is_over_limit: bool, now_ms: int) -> SessionEntry | None:
        """What the leader has to know of a partition; None if it is not fetched now."""
        partitions, settings = self._partitions, self._settings
        state = partitions.states.get(key)
        if state is None or state.mode is not Mode.FETCHING or key in partitions.delayed:
            return None
        if not partitions.is_served(state):
            partitions.delay(key, now_ms)
            return None
        if is_over_limit and state.lag != 0 and self._is_throttled(key):
            self._held_back.add(key)
            return None
        asked = FetchPartition(
            key.partition,
            state.leader_epoch,
            state.offset,
            state.last_epoch if settings.truncates_on_fetch else -1,
            state.partition.log.log_start_offset,
            settings.max_bytes,
        )
        return SessionEntry(asked, state.partition.topic_id)

    def _is_throttled(self, key: TopicPartition) -> bool:
        return self._quota is not None and self._quota.is_throttled(key)

    def _fetch(self, session: SessionRequest) -> Fetch:
        settings = self._settings
        request = FetchRequest(
            settings.max_wait_ms,
            settings.min_bytes,
            settings.response_max_bytes,
            _READ_UNCOMMITTED,
            session.topics,
            session.session_id,
            session.epoch,
            session.forgotten,
            "",
            settings.broker_id,
            self._broker_epoch(),
        )
        by_name = min(settings.max_version, TOPIC_IDS_FROM - 1)
        return Fetch(settings.max_version if session.uses_topic_ids else by_name, request)

    # -- answers ---------------------------------------------------------------------------------------------

    def failed(self, request: FetcherRequest, now_ms: int) -> None:
        """The request could not be sent, or was not answered: everything that it asked for waits."""
        if isinstance(request, Fetch):
            self._session.restart()
            keys: Iterable[TopicPartition] = tuple(self._session.known)
        else:
            keys = request.partitions
        for key in keys:
            if key in self._partitions.states:
                self._partitions.delay(key, now_ms)

    def answered(self, request: FetcherRequest, answer: FetcherAnswer, now_ms: int) -> Progress:
        """The leader has answered. Logs and high watermarks are changed as it says."""
        progress = Progress()
        if isinstance(request, Fetch):
            self._fetched(cast(FetchResponse, answer), progress, now_ms)
        elif isinstance(request, AskEpochEnds):
            ends = cast(Mapping[TopicPartition, EpochAnswered], answer)
            self._alignment.epochs_answered(request, ends, now_ms)
        else:
            offsets = cast(Mapping[TopicPartition, OffsetAnswered], answer)
            self._alignment.offsets_answered(request, offsets, now_ms)
        return progress

    def _fetched(self, response: FetchResponse, progress: Progress, now_ms: int) -> None:
        partitions, session = self._partitions, self._session
        answers = session.accept(response)
        if answers is None:
            error = error_code(response.error_code)
            _log.info("broker %d: a new fetch session begins (%s)", self.leader_id, error.name)
            if error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                for key in tuple(partitions.states):
                    partitions.delay(key, now_ms)
            return
        for key, fetched in answers:
            state, asked = partitions.states.get(key), session.known[key].partition
            if (
                state is not None
                and state.mode is Mode.FETCHING
                and key not in partitions.delayed
                and asked.fetch_offset == state.offset
                and asked.current_leader_epoch == state.leader_epoch
            ):
                self._partition_fetched(state, fetched, progress, now_ms)
            else:
                # It was removed or truncated, or is in a newer epoch, since it was asked for. The leader does
                # not send its high watermark again in this session.
                session.restart()

    def _partition_fetched(
        self, state: PartitionFetch, fetched: PartitionFetched, progress: Progress, now_ms: int
    ) -> None:
        error = error_code(fetched.error_code)
        if error is not ErrorCode.NONE:
            self._partitions.refused(state, error, state.leader_epoch, now_ms, looks_up=True)
        elif fetched.diverging_epoch != NOT_DIVERGING:
            # Nothing else of this answer counts: not its records, and not its offsets.
            self._alignment.diverged(state, fetched.diverging_epoch, now_ms)
        else:
            state.error = error
            self._take(state, fetched, progress, now_ms)

    def _take(
        self, state: PartitionFetch, fetched: PartitionFetched, progress: Progress, now_ms: int
    ) -> None:
        key, partitions = state.key, self._partitions
        records = cast(memoryview, fetched.records or b"")
        try:
            after = following.follow(
                state.partition,
                state.leader_epoch,
                state.offset,
                memoryview(records),
                fetched.high_watermark,
                fetched.log_start_offset,
                self._wall_clock_ms(),
            )
        except (OSError, KlogError) as error:
            partitions.could_not(state, error, now_ms)
            return
        if len(records):
            progress.received[key] = len(records)
            if self._quota is not None and self._quota.is_throttled(key):
                self._quota.record(len(records), now_ms)
            partitions.states[key] = partitions.states.pop(key)  # others come first next time
        state.lag = max(fetched.high_watermark - after.next_offset, 0)
        if after.high_watermark_moved:
            progress.high_watermark_moved.append(key)
        state.moved(after.next_offset, after.last_epoch)
        partitions.stale[key] = None
