"""The records of a partition at a moment, as a broker reads them: `EarlierRecords` of the storage package.

Rules: Kafka's `LogSegment.read`, `UnifiedLog.collectAbortedTransactions` and `fetchOffsetByTimestamp`. There
is no transaction index: the aborted transactions of a read are those whose markers follow their batches. The
first offset that is given of such a transaction is that of its first batch within the read; a client drops
the same records.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from klog.backup.moment.values import AddedMarker, PartitionCut
from klog.backup.moment.view import PartitionView
from klog.backup.reading import is_damage
from klog.backup.serving.blocks import Block, BlockCache, Blocks, Event, Place, Streams
from klog.backup.serving.loading import FAILURE_LASTS_S, Loads
from klog.formats.errors import CorruptRecordError, KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.storage.log.earlier_records import (
    EarlierRead,
    FarReadError,
    TimedOffset,
    UnreadableRecordsError,
)
from klog.storage.log.time_lookup import records_of_batch
from klog.storage.reading.producer_state import AbortedTxn

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Shared:
    """What all partitions of a repository share. `path_of` is where an object is, for messages."""

    streams: Streams
    cache: BlockCache
    path_of: Callable[[str], str]
    loads: Loads = field(default_factory=Loads)


class BackupRecords:
    """The records of one partition below its cut."""

    def __init__(self, shared: Shared, view: PartitionView, cut: PartitionCut, name: TopicPartition) -> None:
        self._shared = shared
        self._name = name
        self._end_offset = cut.end_offset
        self._added = {each.producer_id: (number, each) for number, each in enumerate(cut.added)}
        self._parts = [part for part in view.parts if part.piece.first_offset < cut.end_offset]
        self._blocks = Blocks(shared.streams, str(name), self._parts, cut.end_offset)
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._failures: dict[Place, tuple[float, KlogError]] = {}
        self.start_offset = view.log_start_offset
        self.size_bytes = sum(part.piece.size_bytes for part in self._parts)

    # -- reading ---------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        *,
        at_least_one: bool,
        committed: bool,
        may_wait: bool,
    ) -> EarlierRead | None:
        """As `EarlierRecords`."""
        if max_bytes <= 0 and not at_least_one:
            return None

        def find(*, may_load: bool) -> EarlierRead | None:
            return self._read(offset, max_bytes, limit_offset, at_least_one, committed, may_load)

        if may_wait:
            return self._said(lambda: find(may_load=True))
        if not self._lock.acquire(blocking=False):
            raise self._far(lambda: self._said(lambda: find(may_load=True)))
        try:
            return find(may_load=False)
        except _NotLoadedError:
            raise self._far(lambda: self._said(lambda: find(may_load=True))) from None
        except StorageError as error:
            raise _unreadable(error) from error
        finally:
            self._lock.release()

    def _far(self, fetch: Callable[[], object]) -> FarReadError:
        return FarReadError(str(self._name), fetch)

    def _said(self, work: Callable[[], _Result]) -> _Result:
        """Do something that may read the repository, and say in the log what is wrong with it."""
        try:
            with self._lock:
                return work()
        except StorageError as error:
            raise _unreadable(error) from error

    def _read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        at_least_one: bool,
        committed: bool,
        may_load: bool,
    ) -> EarlierRead | None:
        block = self._find(offset, may_load=may_load)
        if block is None or block.file is None:
            return None
        row = bisect_left(block.last_offset, offset)
        end_row = bisect_left(block.last_offset, limit_offset)
        if row >= end_row:
            return None
        start = block.position[row]
        available = block.position[end_row] - start
        first_bytes = block.position[row + 1] - start
        if max_bytes < first_bytes and not at_least_one:
            return None  # a part of the first batch is useless to a reader
        size = min(max(max_bytes, first_bytes), available)
        aborted: tuple[AbortedTxn, ...] = ()
        if committed:
            end_row = bisect_left(block.position, start + size)
            aborted = self._aborted(block, row, end_row, may_load=may_load)
        return EarlierRead(block.file, start, size, block.base_offset, aborted)

    def _find(self, offset: int, *, may_load: bool) -> Block | None:
        """The block that has the first batch which ends at or after an offset."""
        for block in self._from(self._blocks.place_before(offset), may_load=may_load):
            if block.end_offset > offset:
                return block
        return None

    def _from(self, place: Place, *, may_load: bool = True) -> Iterator[Block]:
        """The blocks from a place on. Raises `_NotLoadedError` at one that is not in memory."""
        while place != self._blocks.end:
            block = self._shared.cache.get((self._name, place))
            if block is None:
                self._require_no_failure(place)
                if not may_load:
                    raise _NotLoadedError("is not in memory")
                block = self._load(place)
            yield block
            place = block.following

    def _load(self, place: Place) -> Block:
        loads = self._shared.loads
        path = self._shared.path_of(self._parts[place.part].piece.name)
        try:
            block = loads.wait_for((self._name, place), lambda: self._loaded(place), path)
        except KlogError as error:
            located = self._located(error)
            if not isinstance(error, StorageError) or is_damage(error):
                if place not in self._failures or str(self._failures[place][1]) != str(located):
                    _log.warning("%s: %s", self._name, located)
                self._failures[place] = (loads.monotonic_s() + FAILURE_LASTS_S, located)
            raise located from error.__cause__
        self._failures.pop(place, None)
        return block

    def _loaded(self, place: Place) -> Block:
        """The block, which is then in memory also if nobody waits for it any more."""
        with self._loading:
            block = self._blocks.load(place)
        self._shared.cache.put((self._name, place), block)
        return block

    def _require_no_failure(self, place: Place) -> None:
        until_s, error = self._failures.get(place, (0.0, None))
        if error is not None and self._shared.loads.monotonic_s() < until_s:
            raise error

    def _located(self, error: KlogError) -> KlogError:
        """The error with the object's path. Bytes that are wrong are damage; the rest may pass."""
        file = self._shared.path_of(error.file) if error.file in self._object_names() else error.file
        is_storage = isinstance(error, StorageError) and isinstance(error.__cause__, OSError)
        kind = StorageError if is_storage else CorruptRecordError
        return kind(error.what, file=file, position_bytes=error.position_bytes, cure=error.cure)

    def _object_names(self) -> set[str]:
        return {part.piece.name for part in self._parts}

    # -- aborted transactions --------------------------------------------------------------------------------

    def _aborted(self, block: Block, row: int, end_row: int, *, may_load: bool) -> tuple[AbortedTxn, ...]:
        """The aborted transactions with records in these rows."""
        open_ones: dict[int, int] = {}
        found: list[AbortedTxn] = []
        for event in block.events:
            if row <= event.row < end_row:
                _follow(event, open_ones, found)
        for producer_id in [each for each in open_ones if each in self._added]:
            number, added = self._added[producer_id]
            if open_ones[producer_id] >= added.first_offset:
                self._end_by(added, self._end_offset + number, open_ones, found)
        if open_ones:
            self._follow_markers([event for event in block.events if event.row >= end_row], open_ones, found)
        if open_ones:
            for later in self._from(block.following, may_load=may_load):
                self._follow_markers(later.events, open_ones, found)
                if not open_ones:
                    break
        return tuple(sorted(found, key=lambda txn: txn.last_offset))

    @staticmethod
    def _end_by(added: AddedMarker, offset: int, open_ones: dict[int, int], found: list[AbortedTxn]) -> None:
        first = open_ones.pop(added.producer_id)
        if added.marker.aborted:
            found.append(AbortedTxn(added.producer_id, first, offset, offset))

    @staticmethod
    def _follow_markers(events: Sequence[Event], open_ones: dict[int, int], found: list[AbortedTxn]) -> None:
        for event in events:
            if event.is_abort is not None:
                _follow(event, open_ones, found)

    # -- offsets by time -------------------------------------------------------------------------------------

    def first_at_or_after(self, timestamp: int) -> TimedOffset | None:
        """As `EarlierRecords`."""
        return self._said(lambda: self._first_at_or_after(timestamp))

    def _first_at_or_after(self, timestamp: int) -> TimedOffset | None:
        number = 0
        while True:
            number = next(
                (
                    each
                    for each in range(number, len(self._parts))
                    if self._parts[each].piece.max_timestamp_ms >= timestamp
                ),
                -1,
            )
            if number < 0:
                return None
            for block in self._from(Place(number, 0)):
                for row, largest in enumerate(block.max_timestamp):
                    if largest >= timestamp:
                        found = self._record(block, row, lambda at: at >= timestamp)
                        if found is not None:
                            return found
                if block.following.part > number:
                    number = block.following.part
                    break
            else:
                return None

    def with_max_timestamp(self) -> TimedOffset | None:
        """As `EarlierRecords`."""
        return self._said(self._with_max_timestamp)

    def _with_max_timestamp(self) -> TimedOffset | None:
        largest, first = -1, -1
        for number, part in enumerate(self._parts):
            if part.piece.end_offset <= self._end_offset:
                here = part.piece.max_timestamp_ms
            else:
                blocks = self._from(Place(number, 0))
                here = max((at for block in blocks for at in block.max_timestamp), default=-1)
            if here > largest:
                largest, first = here, number
        if first < 0:
            return None
        for block in self._from(Place(first, 0)):
            for row, at_ms in enumerate(block.max_timestamp):
                if at_ms == largest:
                    return self._record(block, row, lambda at: at == largest)
        return None

    def _record(self, block: Block, row: int, fits: Callable[[int], bool]) -> TimedOffset | None:
        """The first record of a batch whose timestamp fits."""
        if block.file is None:
            return None
        start, end = block.position[row], block.position[row + 1]
        magic, records = records_of_batch(block.file.bytes_at(start, end - start), str(self._name), start)
        for offset, at_ms in zip(records.offset, records.timestamp, strict=True):
            if magic and fits(at_ms) and offset >= self.start_offset:
                return TimedOffset(at_ms, offset, block.leader_epoch[row])
        return None


def _follow(event: Event, open_ones: dict[int, int], found: list[AbortedTxn]) -> None:
    if event.is_abort is None:
        open_ones.setdefault(event.producer_id, event.offset)
        return
    first = open_ones.pop(event.producer_id, None)
    if first is not None and event.is_abort:
        found.append(AbortedTxn(event.producer_id, first, event.offset, event.offset))


class _NotLoadedError(KlogError):
    """A block is not in memory, and the caller may not wait."""


def _unreadable(error: StorageError) -> UnreadableRecordsError:
    return UnreadableRecordsError(
        error.what, file=error.file, position_bytes=error.position_bytes, cure=error.cure
    )
