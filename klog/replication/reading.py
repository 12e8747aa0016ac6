"""Reads of several partitions for one fetch, at once or later: within its sizes, isolation and epochs.

Rules: Kafka's `ReplicaManager.readFromLog` and `DelayedFetch`. Partitions are read in the order of the
request; the first that has records gives at least one batch whatever its size (KIP-74), after that the limits
are hard. A fetch that got too little waits for an append or a high watermark to move, or for its time to be
over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from klog.formats.errors import KlogError
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import CONSUMER, Partition, PartitionError, Replicas
from klog.replication.purgatory import DelayedOperation
from klog.storage.log.epoch_file import UNDEFINED_OFFSET, EpochEnd
from klog.storage.log.partition_log import OffsetOutOfRangeError, PartitionLog, Read

NO_EPOCH: Final = -1


class FetchEntry(NamedTuple):
    """What a fetch wants of one partition; `key` is (topic, partition)."""

    key: tuple[str, int]
    offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = -1


class FetchLimits(NamedTuple):
    """What holds for the whole fetch; `committed` is the isolation level read_committed."""

    min_bytes: int
    max_bytes: int
    replica_id: int = CONSUMER
    committed: bool = False


class Fetched(NamedTuple):
    """What a fetch found in one partition: a read, or an error, or where the reader's history diverges."""

    entry: FetchEntry
    error: ErrorCode = ErrorCode.NONE
    read: Read | None = None
    diverging: EpochEnd | None = None


class Reads(NamedTuple):
    """All that a fetch found; `answer_now` says that waiting would not make it better."""

    fetched: list[Fetched]
    total_bytes: int
    answer_now: bool


def read_all(
    replicas: Replicas,
    entries: Sequence[FetchEntry],
    limits: FetchLimits,
    missing: Callable[[FetchEntry], ErrorCode],
) -> Reads:
    """Read every partition that a fetch names. `missing` says what is wrong with one that is not here."""
    partitions = replicas.partitions
    fetched: list[Fetched] = []
    total = 0
    answer_now = False
    room = limits.max_bytes
    for entry in entries:
        partition = partitions.get(entry.key)
        if partition is None:
            found = Fetched(entry, missing(entry))
        else:
            found = read_one(partition, entry, limits, room, at_least_one=not total)
        fetched.append(found)
        if found.read is not None:
            total += found.read.size
            room = max(room - found.read.size, 0)
        if found.error or found.diverging is not None:
            answer_now = True
    return Reads(fetched, total, answer_now or total >= limits.min_bytes)


def read_one(
    partition: Partition, entry: FetchEntry, limits: FetchLimits, room: int, *, at_least_one: bool
) -> Fetched:
    """Read one partition."""
    try:
        log = partition.require_leader(entry.current_leader_epoch)
        if entry.last_fetched_epoch != NO_EPOCH:
            diverging = _divergence(partition, entry)
            if diverging is not None:
                return Fetched(entry, diverging=diverging, read=_nothing(log))
        read = partition.read(
            entry.offset,
            min(entry.max_bytes, room),
            limits.replica_id,
            committed=limits.committed,
            at_least_one=at_least_one,
        )
    except PartitionError as refused:
        return Fetched(entry, refused.error)
    except OffsetOutOfRangeError:
        return Fetched(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
    except (OSError, KlogError) as failed:
        return Fetched(entry, _storage_error(failed))
    return Fetched(entry, read=read)


def _nothing(log: PartitionLog) -> Read:
    with log.lock:
        return Read(
            None,
            0,
            0,
            log.active.base_offset,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            log.log_end_offset,
        )


def _storage_error(failed: Exception) -> ErrorCode:
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(failed, OSError) else ErrorCode.CORRUPT_MESSAGE


def _divergence(partition: Partition, entry: FetchEntry) -> EpochEnd | None:
    """Where the reader's log parts from this one (KIP-595); None where it does not."""
    log = partition.log
    with log.lock:
        end = log.epochs.end_of(entry.last_fetched_epoch, log.log_end_offset)
    if end.end_offset == UNDEFINED_OFFSET:
        raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.offset:
        return end
    return None


class DelayedFetch(DelayedOperation):
    """A fetch that waits for bytes. It reads again when it completes."""

    __slots__ = ("_answer", "_entries", "_limits", "_missing", "_ready_bytes", "_replicas")

    def __init__(
        self,
        due_ms: int,
        replicas: Replicas,
        entries: Sequence[FetchEntry],
        limits: FetchLimits,
        missing: Callable[[FetchEntry], ErrorCode],
        answer: Callable[[Reads], None],
    ) -> None:
        super().__init__(due_ms)
        self._replicas = replicas
        self._entries = {entry.key: entry for entry in entries}
        self._limits = limits
        self._missing = missing
        self._answer = answer
        self._ready_bytes: dict[Hashable, int] = {}

    @property
    def keys(self) -> list[tuple[str, int]]:
        """The partitions whose events may complete it."""
        return list(self._entries)

    def try_complete(self, key: Hashable | None) -> bool:
        """Complete when enough bytes are there, or an error must be told.

        An event speaks of one partition: only that one is looked at again, so that a fetch of a thousand
        partitions costs no more than one of a single partition.
        """
        looked_at = self._entries if key is None else (key,)
        for where in looked_at:
            ready = self._ready(self._entries[where])  # type: ignore[index]
            if ready < 0:
                return self.force_complete()
            self._ready_bytes[where] = ready
        return sum(self._ready_bytes.values()) >= self._limits.min_bytes and self.force_complete()

    def _ready(self, entry: FetchEntry) -> int:
        """Bytes that one partition has for the fetch, -1 where the answer cannot wait."""
        partition = self._replicas.partitions.get(entry.key)
        if partition is None:
            return -1
        found = read_one(partition, entry, self._limits, entry.max_bytes, at_least_one=False)
        if found.error or found.diverging is not None or found.read is None:
            return -1
        if found.read.size and found.read.segment_base < partition.log.active.base_offset:
            return -1  # an older segment: there is more behind it, nothing to wait for
        return found.read.size

    def on_complete(self) -> None:
        """Answer with what is there now."""
        self._answer(read_all(self._replicas, list(self._entries.values()), self._limits, self._missing))
