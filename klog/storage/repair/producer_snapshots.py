"""The producer snapshots of a partition during recovery, in memory: which exist and which will be written.

Rules: Kafka's `ProducerStateManager` (loading, `takeSnapshot`, `removeStraySnapshots`, `truncateAndReload`)
and `UnifiedLog.rebuildProducerState`. Nothing is written here; the recovery plan takes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from klog.formats.constants import INT64_MAX
from klog.formats.errors import KlogError
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable
from klog.kernel.markers import BadMarker
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, read_whole
from klog.storage.reading.producer_history import History
from klog.storage.reading.producer_state import ProducerState, newest_state
from klog.storage.repair.segment_split import OpenSegment

_ENDS_EARLY: Final = BadMarker("batches end early", "CorruptRecordException")

OnBadSnapshot = Callable[[int, KlogError], None]


def replay(
    state: ProducerState,
    path: str,
    start_offset: int = 0,
    end_bytes: int | None = None,
    open_segment: OpenSegment = open_for_reading,
) -> bool:
    """Follow the batches of the segment at `path` from the one with `start_offset` up to `end_bytes`.

    Checksums are not verified, and control batches that do not decode are skipped. False if an invalid size
    field ends the batches before the file ends.
    """
    table = BatchTable()
    with open_segment(path) as file:
        for data in chunks(file, table, end_bytes=end_bytes):
            row = 0
            while row < len(table) and table.last_offset[row] < start_offset:
                row += 1
            state.follow(data, table, row)
    return table.stop != STOP_BAD_SIZE


class Snapshots:
    """The snapshots of one partition: those on disk (`paths` by offset), without those dropped, with those
    taken.

    `now_ms` and `expiration_ms` decide which idle producers are forgotten when a snapshot is loaded.
    `replayed` are the base offsets of the segments that were read. `end_bytes` is the future end of segments
    that will be cut, by base offset. Each state has a history of its own.
    """

    def __init__(
        self,
        paths: Mapping[int, str],
        *,
        now_ms: int,
        expiration_ms: int,
        on_bad: OnBadSnapshot | None = None,
        on_unreadable: Callable[[str, BadMarker], None] | None = None,
        open_segment: OpenSegment = open_for_reading,
    ) -> None:
        self._paths = dict(paths)
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self.end_bytes: dict[int, int] = {}
        self._on_bad = on_bad
        self._on_unreadable = on_unreadable
        self._open_segment = open_segment
        self._taken: dict[int, bytes] = {}
        self._present: set[int] = set(paths)
        self.replayed: set[int] = set()

    @property
    def offsets(self) -> list[int]:
        """The offsets of the snapshots, ascending."""
        return sorted(self._present)

    @property
    def taken(self) -> dict[int, bytes]:
        """Content of the snapshots that were taken and not dropped, by offset."""
        return {offset: data for offset, data in self._taken.items() if offset in self._present}

    def drop(self, offsets: Collection[int]) -> None:
        """Remove snapshots."""
        self._present.difference_update(offsets)

    def take(self, state: ProducerState) -> None:
        """Take a snapshot at the end of the state, if anything came after its last one."""
        if state.snapshot_offset < state.end_offset <= INT64_MAX:
            self._taken[state.end_offset] = state.snapshot()
            self._present.add(state.end_offset)
            state.snapshot_offset = state.end_offset

    def drop_strays(self, base_offsets: Collection[int]) -> None:
        """Remove those that belong to no segment, except the last one if it is above all segments."""
        strays = [offset for offset in self.offsets if offset not in base_offsets]
        kept = strays[-1:] if strays and base_offsets and strays[-1] >= max(base_offsets) else []
        self.drop(set(strays) - set(kept))

    def state_at(
        self, offset: int, *, log_start_offset: int, segments: Mapping[int, str], fresh_end: int = 0
    ) -> ProducerState:
        """The producers at `offset`, from the newest valid snapshot and the `segments` (paths) after it.

        Takes the snapshots that Kafka takes meanwhile, and drops those outside of the log.
        """
        self.drop([at for at in self.offsets if at > offset or at <= log_start_offset])
        if offset == fresh_end:
            # Kafka takes a new state for one that is up to date.
            state = ProducerState(max(fresh_end, log_start_offset), History())
            state.snapshot_offset = max(self.offsets, default=log_start_offset)
        else:
            state = self._newest(log_start_offset)
            if fresh_end < offset:
                self._replay(state, offset, log_start_offset, segments)
        state.end_offset = offset
        self.take(state)
        return state

    def _newest(self, log_start_offset: int) -> ProducerState:
        state = newest_state(
            reversed(self.offsets),
            self._data,
            on_bad=self._drop_bad,
            now_ms=self._now_ms,
            expiration_ms=self._expiration_ms,
            history=History(),
        )
        if state is None:
            state = ProducerState(log_start_offset, History())
            state.snapshot_offset = log_start_offset
        return state

    def _data(self, offset: int) -> bytes:
        return self._taken[offset] if offset in self._taken else read_whole(self._paths[offset])

    def _drop_bad(self, offset: int, error: KlogError) -> None:
        self.drop([offset])
        if self._on_bad is not None:
            self._on_bad(offset, error)

    def _replay(
        self, state: ProducerState, offset: int, log_start_offset: int, segments: Mapping[int, str]
    ) -> None:
        bases: Sequence[int] = sorted(segments)
        if not bases or state.end_offset >= offset:
            return
        floor = max((base for base in bases if base <= state.end_offset), default=bases[0])
        for base in bases:
            if not floor <= base < offset:
                continue
            start = max(base, state.end_offset, log_start_offset)
            self.replayed.add(base)
            state.end_offset = start
            if base in bases[-2:]:
                self.take(state)
            read = replay(state, segments[base], start, self.end_bytes.get(base), self._open_segment)
            if self._on_unreadable is None:
                continue
            if not read:
                self._on_unreadable(segments[base], _ENDS_EARLY)
            for bad in state.bad_markers:
                self._on_unreadable(segments[base], bad)
            state.bad_markers.clear()
