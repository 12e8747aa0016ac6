"""Reads several partitions for one fetch, within its sizes, isolation level and epochs; now or later.

Rules: Kafka's `ReplicaManager.readFromLog` and `DelayedFetch`. Partitions are read in the order of the
request. The first that has records gives at least one batch whatever its size (KIP-74); after that the limits
are hard. A fetch that got too little waits for an append, for a high watermark to move, or for its timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from klog.formats.epochs import UNDEFINED_OFFSET, EpochEnd
from klog.formats.errors import KlogError, StorageError
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import CONSUMER, Partition, PartitionError, Replicas
from klog.replication.purgatory import DelayedOperation
from klog.storage.log.cold_reads import ColdReadError
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.reading import NegativeSizeError, OffsetOutOfRangeError, Read

NO_EPOCH: Final = -1
NO_REPLICA: Final = -1
_READY: Final = -1


class FetchEntry(NamedTuple):
    """What a fetch asks of one partition; `key` is (topic, partition).

    Requests carry the topic's id from version 13 on.
    """

    key: tuple[str, int]
    offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = -1
    topic_id: UUID | None = None


class SentBefore(Protocol):
    """What a reader asks of one partition, and the offsets that it was sent last (-1: none, or an error)."""

    entry: FetchEntry
    high_watermark: int
    log_start_offset: int


Prefer = Callable[[Partition, int], int]
"""Which follower a consumer should read a partition from, at an offset; `NO_REPLICA`: the leader."""


class FetchLimits(NamedTuple):
    """The limits of a whole fetch.

    `committed` is the isolation level read_committed. `leader_only` is False for consumers that may read
    from followers, too (KIP-392), and `prefer` is set if they are to be sent to a near one. `is_throttled`
    says of a partition that a follower is sent nothing of it now (KIP-73). If the limits `are_hard`, a batch
    that is too large is never sent (before KIP-74).
    """

    min_bytes: int
    max_bytes: int
    replica_id: int = CONSUMER
    committed: bool = False
    leader_only: bool = True
    prefer: Prefer | None = None
    is_throttled: Callable[[Partition], bool] | None = None
    are_hard: bool = False


class Fetched(NamedTuple):
    """What a fetch found in one partition: a read, or an error, or where the reader's log diverges.

    If the consumer should read from another replica, it is `preferred_replica`, and nothing was read.
    """

    entry: FetchEntry
    error: ErrorCode = ErrorCode.NONE
    read: Read | None = None
    diverging: EpochEnd | None = None
    preferred_replica: int = NO_REPLICA


class Reads(NamedTuple):
    """All that a fetch found; `answer_now` says that there is no reason to wait."""

    fetched: list[Fetched]
    total_bytes: int
    answer_now: bool


Missing = Callable[[tuple[str, int]], ErrorCode]


def read_all(
    replicas: Replicas,
    entries: Sequence[FetchEntry],
    limits: FetchLimits,
    missing: Missing,
    *,
    may_wait: bool = True,
) -> Reads:
    """Read every partition of a fetch. `missing` gives the error for one that has no replica here.

    Raises `ColdReadError` if the disk is needed and the caller may not wait for it.
    """
    partitions = replicas.partitions
    fetched: list[Fetched] = []
    total = 0
    answer_now = False
    left_bytes = limits.max_bytes
    may_exceed = not limits.are_hard
    for entry in entries:
        partition = partitions.get(entry.key)
        if partition is None:
            found = Fetched(entry, missing(entry.key))
        else:
            found = read_one(
                partition, entry, limits, left_bytes, at_least_one=may_exceed and not total, may_wait=may_wait
            )
        fetched.append(found)
        read = found.read
        if read is not None and found.diverging is None and found.preferred_replica == NO_REPLICA:
            total += read.size
            left_bytes -= read.size
        else:
            answer_now = True
        left_bytes = max(left_bytes, 0)  # also a limit that was negative: it fails the first read only
    return Reads(fetched, total, answer_now or total >= limits.min_bytes)


def is_quiet(partition: Partition, before: SentBefore, limits: FetchLimits) -> bool:
    """Whether a read would find nothing but what the reader was sent last.

    Most partitions of most fetches are quiet, so this takes no lock and creates nothing. What changes after
    this check is an event, and a fetch that waits checks again at events.
    """
    entry, log, state = before.entry, partition.log, partition.state
    if limits.replica_id >= 0:
        limit = log.log_end_offset
    elif limits.committed:
        limit = log.last_stable_offset
    else:
        limit = log.high_watermark
    if limits.prefer is not None and state.is_leader and limits.prefer(partition, entry.offset) != NO_REPLICA:
        return False
    return (
        entry.offset == limit
        and before.high_watermark == log.high_watermark
        and before.log_start_offset == log.log_start_offset
        and (state.is_leader or not limits.leader_only)
        and entry.current_leader_epoch in (NO_EPOCH, state.leader_epoch)
        and entry.last_fetched_epoch in (NO_EPOCH, log.epochs.latest)
        and (entry.topic_id is partition.topic_id or entry.topic_id in (partition.topic_id, None))
        and not log.closed
    )


def read_one(
    partition: Partition,
    entry: FetchEntry,
    limits: FetchLimits,
    max_bytes: int,
    *,
    at_least_one: bool,
    may_wait: bool = True,
) -> Fetched:
    """Read one partition, up to `max_bytes`; `at_least_one` gives the first batch whatever its size.

    Raises `ColdReadError` if the disk is needed and the caller may not wait for it.
    """
    topic_id = entry.topic_id
    if topic_id is not None and partition.topic_id is not None and topic_id != partition.topic_id:
        return Fetched(entry, ErrorCode.INCONSISTENT_TOPIC_ID)
    log = partition.lock_log()
    try:
        partition.require_epoch(entry.current_leader_epoch, leader_only=limits.leader_only)
        if limits.replica_id >= 0:
            partition.require_replica(limits.replica_id, entry.current_leader_epoch)
        elif limits.prefer is not None and partition.state.is_leader:
            preferred = limits.prefer(partition, entry.offset)
            if preferred != NO_REPLICA:
                return Fetched(entry, read=log.nothing(), preferred_replica=preferred)
        if entry.last_fetched_epoch != NO_EPOCH:
            diverging = _divergence(log, entry)
            if diverging is not None:
                return Fetched(entry, diverging=diverging, read=log.nothing())
        throttled = limits.is_throttled is not None and limits.is_throttled(partition)
        read = log.read_locked(
            entry.offset,
            0 if throttled else min(entry.max_bytes, max_bytes),
            partition.limit(limits.replica_id, committed=limits.committed),
            at_least_one and not throttled,
            limits.committed,
            may_wait,
        )
    except ColdReadError:
        raise
    except PartitionError as refused:
        return Fetched(entry, refused.error)
    except OffsetOutOfRangeError:
        return Fetched(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
    except (OSError, StorageError):
        return Fetched(entry, ErrorCode.KAFKA_STORAGE_ERROR)
    except NegativeSizeError:
        return Fetched(entry, ErrorCode.UNKNOWN_SERVER_ERROR)
    except KlogError:
        return Fetched(entry, ErrorCode.CORRUPT_MESSAGE)
    finally:
        log.lock.release()
    return Fetched(entry, ErrorCode.NONE, read)


def _divergence(log: PartitionLog, entry: FetchEntry) -> EpochEnd | None:
    """Where the reader's log diverges from this one (KIP-595); None if it does not.

    Raises `OffsetOutOfRangeError` if this log does not know the reader's epoch or offset any more.
    """
    end = log.epochs.end_of(entry.last_fetched_epoch, log.log_end_offset)
    if UNDEFINED_OFFSET in (end.end_offset, end.epoch):
        raise OffsetOutOfRangeError(f"the end of epoch {entry.last_fetched_epoch} is not known")
    if entry.offset < log.log_start_offset:
        raise OffsetOutOfRangeError(f"offset {entry.offset} is below {log.log_start_offset}")
    if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.offset:
        return end
    return None


def _place_of(log: PartitionLog, offset: int) -> tuple[int, int]:
    """The base offset of the segment that holds or will hold an offset, and the position in it.

    The caller holds the log's lock.
    """
    segments = log.segments
    if offset < log.log_end_offset:
        for number in range(segments.floor(offset), len(segments)):
            place = segments[number].find(offset)
            if place is not None:
                return segments[number].base_offset, place.position
    return segments.active.base_offset, segments.active.size


class _Awaited(NamedTuple):
    """One partition of a fetch that waits, and the segment and position where its read starts."""

    entry: FetchEntry
    segment_base: int
    position: int


def _awaited(replicas: Replicas, found: Fetched) -> _Awaited:
    entry, read = found.entry, found.read
    partition = replicas.partitions.get(entry.key)
    if read is None or partition is None:
        return _Awaited(entry, -1, -1)
    if read.file is not None or entry.offset == read.log_end_offset:
        return _Awaited(entry, read.segment_base, read.position)
    # Nothing was read although there are records: they are above the limit, or the first batch is too large.
    return _place_awaited(entry, partition)


def _place_awaited(entry: FetchEntry, partition: Partition) -> _Awaited:
    log = partition.lock_log()
    try:
        return _Awaited(entry, *_place_of(log, entry.offset))
    except (KlogError, OSError):
        return _Awaited(entry, -1, -1)
    finally:
        log.lock.release()


class DelayedFetch(DelayedOperation):
    """A fetch that waits for bytes. When it completes, somebody reads again, now or soon."""

    __slots__ = (
        "_awaited",
        "_limits",
        "_quiet",
        "_read_again",
        "_ready_bytes",
        "_ready_total",
        "_replicas",
    )

    def __init__(
        self,
        due_ms: int,
        replicas: Replicas,
        reads: Reads,
        quiet: Iterable[SentBefore],
        limits: FetchLimits,
        read_again: Callable[[], object],
    ) -> None:
        """`reads` is what the first try found, without errors; it did not read the `quiet` partitions.

        `read_again` has the partitions read again, and answers with what is found.
        """
        super().__init__(due_ms)
        self._replicas = replicas
        self._awaited: dict[Hashable, _Awaited] = {
            found.entry.key: _awaited(replicas, found) for found in reads.fetched
        }
        self._quiet: dict[Hashable, SentBefore] = {before.entry.key: before for before in quiet}
        self._limits = limits
        self._read_again = read_again
        self._ready_bytes: dict[Hashable, int] = {}
        self._ready_total = 0

    @property
    def keys(self) -> list[Hashable]:
        """The partitions whose events may complete it."""
        return [*self._awaited, *self._quiet]

    def try_complete(self, key: Hashable | None) -> bool:
        """Complete if there are enough bytes, or an error to answer.

        An event concerns one partition, and only that one is checked again. So an event costs a fetch of a
        thousand partitions no more than a fetch of one.
        """
        for each in self._not_quiet() if key is None else (key,):
            if each in self._quiet:
                self._awaited[each] = self._no_longer_quiet(each)
            ready = self._ready(self._awaited[each])
            if ready == _READY:
                return self.force_complete()
            self._ready_total += ready - self._ready_bytes.get(each, 0)
            self._ready_bytes[each] = ready
        return self._ready_total >= self._limits.min_bytes and self.force_complete()

    def _not_quiet(self) -> list[Hashable]:
        """The partitions to check if no event names one."""
        partitions, limits = self._replicas.partitions, self._limits
        return [
            *self._awaited,
            *(
                key
                for key, before in self._quiet.items()
                if (partition := partitions.get(before.entry.key)) is None
                or not is_quiet(partition, before, limits)
            ),
        ]

    def _no_longer_quiet(self, key: Hashable) -> _Awaited:
        entry = self._quiet.pop(key).entry
        partition = self._replicas.partitions.get(entry.key)
        return _Awaited(entry, -1, -1) if partition is None else _place_awaited(entry, partition)

    def _ready(self, awaited: _Awaited) -> int:
        """The bytes that one partition has for the fetch now; `_READY` if the answer cannot wait.

        They are counted from positions, and nothing is read: most events find too few.
        """
        entry, base, start = awaited
        partition = self._replicas.partitions.get(entry.key)
        if partition is None:
            return _READY
        limits, log = self._limits, partition.lock_log()
        try:
            partition.require_epoch(entry.current_leader_epoch, leader_only=limits.leader_only)
            if entry.last_fetched_epoch != NO_EPOCH and _divergence(log, entry) is not None:
                return _READY
            limit = partition.limit(limits.replica_id, committed=limits.committed)
            if entry.offset >= limit:
                # Beyond the limit: the log was truncated, or the limit is behind. The reader must know.
                return 0 if entry.offset == limit else _READY
            end_base, end = _place_of(log, limit)
        except (KlogError, OSError):
            return _READY
        finally:
            log.lock.release()
        if limits.is_throttled is not None and limits.is_throttled(partition):
            return 0
        if end_base != base:
            return _READY  # the read ends with its segment, so waiting would not give more
        return min(max(end - start, 0), entry.max_bytes)

    def on_complete(self) -> None:
        """Have it answered with what can be read then."""
        self._read_again()
