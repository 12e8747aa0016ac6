"""Fetch sessions (KIP-227): a client names its partitions once, then both sides send only changes.

Rules: Kafka's `FetchSession`, `FetchSessionCache` and `FetchManager`. A session is known by a random id and
counts its requests in an epoch. When all slots are used, a new session replaces one that was idle for two
minutes, or one that is older than that and smaller, or a consumer's session if a follower asks. Otherwise the
client goes on without a session. Kafka's eight shards of the cache are not needed here: one lock is held
for microseconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.protocol.error_codes import ErrorCode
from klog.protocol.fetch_response import NOT_DIVERGING, PartitionFetched
from klog.replication.reading import FetchEntry

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 120_000
_MAX_INT32: Final = 2**31 - 1
_NOTHING_FAILED: Final = int(ErrorCode.NONE)

# A partition as a session knows it: by its topic's id, below version 13 by the topic's name.
SessionKey: TypeAlias = tuple[UUID | str, int]
Answers: TypeAlias = list[tuple[SessionKey, PartitionFetched]]
Wanted: TypeAlias = dict[SessionKey, FetchEntry]


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with `epoch`; 0 is not used again."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_INT32 else epoch + 1


class SessionPartition:
    """One partition of a session: what the client wants, and the offsets that it was sent last."""

    __slots__ = ("entry", "high_watermark", "log_start_offset")

    def __init__(self, entry: FetchEntry, high_watermark: int = -1, log_start_offset: int = -1) -> None:
        self.entry = entry
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def sent(self, entry: FetchEntry, high_watermark: int, log_start_offset: int) -> None:
        """Remember what the client wants now, and the offsets that it is sent with records."""
        self.entry = entry
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def is_news(self, answer: PartitionFetched) -> bool:
        """Whether an answer is new to the client."""
        return (
            bool(answer.records)
            or answer.preferred_read_replica >= 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or _has_failed(answer)
        )

    def answered(self, answer: PartitionFetched) -> None:
        """Remember an answer as sent."""
        # The end of an error is news as well. A follower that diverges takes no offset from this answer.
        self.high_watermark = -1 if _has_failed(answer) else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


def _has_failed(answer: PartitionFetched) -> bool:
    return answer.error_code != _NOTHING_FAILED or answer.diverging_epoch != NOT_DIVERGING


class FetchSession:
    """The partitions of one client, in the order in which they are read. Its lock guards everything in it."""

    def __init__(
        self,
        session_id: int,
        partitions: dict[SessionKey, SessionPartition],
        created_ms: int,
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.created_ms = created_ms
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        # As the cache has them in its order of eviction.
        self.size = len(partitions)
        self.is_old = False
        self.lock = threading.Lock()

    def update(self, wanted: Wanted, forgotten: Iterable[SessionKey]) -> None:
        """Apply the changes of an incremental request."""
        for key, entry in wanted.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(entry)
            else:
                known.entry = entry
        for key in forgotten:
            self.partitions.pop(key, None)

    def others(self, key: SessionKey) -> list[SessionPartition] | None:
        """All partitions but one; None if the session does not have that one."""
        with self.lock:
            if key not in self.partitions:
                return None
            if len(self.partitions) == 1:
                return []
            return [partition for each, partition in self.partitions.items() if each != key]


class FetchContext(NamedTuple):
    """How to answer one request: what to read, and the request's session.

    `error` is set where the request does not fit its session. An incremental request has a `session`, is for
    the partitions in `known`, and is answered with what has changed only; any other is for those that it
    names, `wanted`, and asks for a new session where `creates_session` is set.
    """

    wanted: Wanted
    error: ErrorCode = ErrorCode.NONE
    session: FetchSession | None = None
    known: Sequence[tuple[SessionKey, SessionPartition]] = ()
    request_epoch: int = FINAL_EPOCH
    creates_session: bool = False


class SessionAnswer(NamedTuple):
    """The answer in its session."""

    answers: Answers
    session_id: int = NO_SESSION
    error: ErrorCode = ErrorCode.NONE


class _Eviction(NamedTuple):
    """The order in which sessions may be evicted: consumers before followers, small before large."""

    privileged: bool
    size: int
    session_id: int


class FetchSessions:
    """All sessions of a broker, at most `slots`. Safe for threads.

    `random_id` gives a number from 1 to 2^31-1; `evictions` counts for the metrics.
    """

    def __init__(
        self,
        slots: int,
        clock_ms: Callable[[], int],
        random_id: Callable[[], int],
        eviction_ms: int = EVICTION_MS,
    ) -> None:
        self._slots = slots
        self._clock_ms = clock_ms
        self._random_id = random_id
        self._eviction_ms = eviction_ms
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}
        self._last_used_ms: OrderedDict[int, int] = OrderedDict()  # oldest first
        self._evictable: list[_Eviction] = []  # by consumers and followers: sessions past their first minutes
        self._evictable_by_followers: list[_Eviction] = []
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def cached_partitions(self) -> int:
        """Partitions of all sessions."""
        with self._lock:
            return sum(session.size for session in self._sessions.values())

    # -- a request comes -------------------------------------------------------------------------------------

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: Wanted,
        forgotten: Iterable[SessionKey],
        *,
        uses_topic_ids: bool,
    ) -> FetchContext:
        """The context of a request with this session id and epoch; ends sessions as it says."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self.remove(session_id)
            return FetchContext(wanted, creates_session=epoch == INITIAL_EPOCH)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return FetchContext({}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            with session.lock:
                return self._incremental(session, epoch, wanted, forgotten, uses_topic_ids)

    def _incremental(
        self,
        session: FetchSession,
        epoch: int,
        wanted: Wanted,
        forgotten: Iterable[SessionKey],
        uses_topic_ids: bool,
    ) -> FetchContext:
        if session.epoch != epoch:
            return FetchContext({}, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext({}, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(wanted, forgotten)
        if not session.partitions:
            self._drop(session)
            return FetchContext(wanted)
        self._touch(session)
        session.epoch = next_epoch(epoch)
        return FetchContext({}, session=session, known=tuple(session.partitions.items()), request_epoch=epoch)

    def find(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession | None:
        """The session of an incremental request; None if the request does not fit it. Nothing changes."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or session.uses_topic_ids != uses_topic_ids:
            return None
        return session

    # -- its answer is there ---------------------------------------------------------------------------------

    def preview(self, context: FetchContext, answers: Answers) -> Answers:
        """The answers that `finish` would return. Nothing changes."""
        if context.error:
            return []
        session = context.session
        if session is None:
            return answers
        with session.lock:
            if session.epoch != next_epoch(context.request_epoch):
                return []
            known = session.partitions
            return [(key, answer) for key, answer in answers if key in known and known[key].is_news(answer)]

    def throttled(self, context: FetchContext) -> SessionAnswer:
        """An answer without partitions, instead of `finish`: for the session nothing was sent."""
        if context.session is None:
            return SessionAnswer([])
        return _changes(context.session, context.request_epoch, [])

    def answer_one(
        self,
        session: FetchSession,
        epoch: int,
        key: SessionKey,
        entry: FetchEntry,
        high_watermark: int,
        log_start_offset: int,
    ) -> bool:
        """An incremental request of this epoch, which names one partition of its session, is answered with
        records of this partition only.

        False if the session has gone on meanwhile: then nothing has changed.
        """
        with self._lock, session.lock:
            if session.epoch != epoch or self._sessions.get(session.id) is not session:
                return False
            partitions = session.partitions
            partitions[key].sent(entry, high_watermark, log_start_offset)
            if len(partitions) > 1:
                partitions[key] = partitions.pop(key)
            self._touch(session)
            session.epoch = next_epoch(epoch)
            return True

    def finish(
        self, context: FetchContext, answers: Answers, *, privileged: bool, uses_topic_ids: bool
    ) -> SessionAnswer:
        """The answers that the client must be sent, and their session."""
        if context.error:
            return SessionAnswer([], NO_SESSION, context.error)
        session = context.session
        if session is not None:
            return _changes(session, context.request_epoch, answers)
        if not context.creates_session:
            return SessionAnswer(answers)
        partitions = {key: SessionPartition(context.wanted[key]) for key, _ in answers}
        for key, answer in answers:
            partitions[key].answered(answer)
        session_id = self._create(partitions, privileged=privileged, uses_topic_ids=uses_topic_ids)
        return SessionAnswer(answers, session_id)

    def _create(
        self, partitions: dict[SessionKey, SessionPartition], *, privileged: bool, uses_topic_ids: bool
    ) -> int:
        now_ms = self._clock_ms()
        with self._lock:
            if len(self._sessions) >= self._slots and not self._evict(privileged, len(partitions), now_ms):
                return NO_SESSION
            session_id = self._random_id()
            while session_id in self._sessions or session_id == NO_SESSION:
                session_id = self._random_id()
            session = FetchSession(
                session_id, partitions, now_ms, privileged=privileged, uses_topic_ids=uses_topic_ids
            )
            self._sessions[session_id] = session
            self._rank(session, now_ms)
            return session_id

    # -- the order of eviction -------------------------------------------------------------------------------

    def remove(self, session_id: int) -> None:
        """End a session; nothing happens if the id is unknown."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None:
                self._drop(session)

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Evict a session in favour of a new one; whether one was evicted."""
        if not self._sessions:
            return False
        oldest, last_used_ms = next(iter(self._last_used_ms.items()))
        if now_ms - last_used_ms <= self._eviction_ms:
            candidates = self._evictable_by_followers if privileged else self._evictable
            if not candidates or (privileged, size, 0) < candidates[0]:
                return False
            oldest = candidates[0].session_id
        self._drop(self._sessions[oldest])
        self.evictions += 1
        return True

    def _touch(self, session: FetchSession) -> None:
        now_ms = self._clock_ms()
        if len(session.partitions) == session.size and session.is_old == self._is_old(session, now_ms):
            self._last_used_ms[session.id] = now_ms
            self._last_used_ms.move_to_end(session.id)
            return
        self._unrank(session)
        session.size = len(session.partitions)
        self._rank(session, now_ms)

    def _is_old(self, session: FetchSession, now_ms: int) -> bool:
        return now_ms - session.created_ms > self._eviction_ms

    def _rank(self, session: FetchSession, now_ms: int) -> None:
        self._last_used_ms[session.id] = now_ms
        self._last_used_ms.move_to_end(session.id)
        session.is_old = self._is_old(session, now_ms)
        rank = _Eviction(session.privileged, session.size, session.id)
        if session.is_old:
            insort(self._evictable, rank)
        if session.is_old or not session.privileged:
            insort(self._evictable_by_followers, rank)

    def _unrank(self, session: FetchSession) -> None:
        rank = _Eviction(session.privileged, session.size, session.id)
        for order in (self._evictable, self._evictable_by_followers):
            at = bisect_left(order, rank)
            if at < len(order) and order[at] == rank:
                del order[at]

    def _drop(self, session: FetchSession) -> None:
        self._unrank(session)
        del self._sessions[session.id]
        del self._last_used_ms[session.id]


def _changes(session: FetchSession, request_epoch: int, answers: Answers) -> SessionAnswer:
    """The answer to an incremental request. Partitions with data move to the end, so that none starves."""
    with session.lock:
        if session.epoch != next_epoch(request_epoch):
            return SessionAnswer([], session.id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        partitions = session.partitions
        changed: Answers = []
        for key, answer in answers:
            cached = partitions.get(key)
            if cached is None or not cached.is_news(answer):
                continue
            cached.answered(answer)
            changed.append((key, answer))
            if answer.records:
                partitions[key] = partitions.pop(key)
        return SessionAnswer(changed, session.id)
