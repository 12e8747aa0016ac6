"""Producer snapshots at the starts of the new segments, from the original batches.

Rules: Kafka takes a snapshot when it rolls a segment (`ProducerStateManager`). It stores the last batch of
each producer as the producer sent it, so that a retry of that batch is recognised. Therefore the originals
are followed. No producer expires, since that would need a clock.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise

from klog.formats.constants import INT64_MAX
from klog.formats.names import FileKind, segment_file
from klog.kernel.columns import BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, read_whole, write_atomically
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.reading.producer_history import History
from klog.storage.reading.producer_state import ProducerState, newest_state


def write_snapshots(directory: str, target: str, bases: Iterable[int]) -> None:
    """Write the snapshots at these offsets that are missing, except at the start of the log.

    Raises `StorageError`.
    """
    files = list_partition(directory)
    missing = sorted(set(bases) - set(files.snapshots) - set(files.segments[:1]))
    if missing:
        _Follower(files, missing, target).run()


class _Follower:
    """Follows the producers through the originals, and writes a snapshot at each of the offsets."""

    def __init__(self, files: PartitionFiles, offsets: list[int], target: str) -> None:
        self._files = files
        self._wanted = offsets[::-1]
        self._target = target
        self._state = _newest(files, offsets[0])

    def run(self) -> None:
        for base, following in pairwise((*self._files.segments, INT64_MAX)):
            if following <= self._state.end_offset:
                continue
            table = BatchTable()
            with open_for_reading(self._files.file(FileKind.LOG, base)) as file:
                for data in chunks(file, table):
                    self._follow(data, table)
                    if not self._wanted:
                        return

    def _follow(self, data: memoryview, table: BatchTable) -> None:
        state = self._state
        row = bisect_left(table.last_offset, state.end_offset)
        while row < len(table) and self._wanted:
            end = bisect_left(table.last_offset, self._wanted[-1], row)
            state.follow(data, table, row, end)
            row = max(row, end)
            if end < len(table):
                state.end_offset = self._wanted.pop()
                path = os.path.join(self._target, segment_file(FileKind.PRODUCER_SNAPSHOT, state.end_offset))
                write_atomically(path, state.snapshot())


def _newest(files: PartitionFiles, offset: int) -> ProducerState:
    """The producers of the newest valid snapshot up to an offset; none if there is no snapshot."""
    state = newest_state(
        (at for at in reversed(files.snapshots) if at <= offset),
        lambda at: read_whole(files.file(FileKind.PRODUCER_SNAPSHOT, at)),
        history=History(),
    )
    return ProducerState(0, History()) if state is None else state
