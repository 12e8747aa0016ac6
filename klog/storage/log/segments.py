"""The segments of one log, oldest first. They are found by offset, added and removed with their files.

Rules: Kafka's `LogSegments` and `LocalLog` (deleting, rolling). The log's lock guards it.
"""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from klog.config.topic import TopicConfig
from klog.formats.names import FileKind, FileState, segment_file
from klog.storage.log.segment import INDEX_KINDS, LogSegment

_FILE_KINDS: Final = (FileKind.LOG, *INDEX_KINDS)


class Segments:
    """At least one segment, by base offset. `active` is the last one, which is appended to."""

    def __init__(self, segments: Iterable[LogSegment]) -> None:
        self._segments = sorted(segments, key=attrgetter("base_offset"))
        self._refresh()

    def _refresh(self) -> None:
        self.bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> LogSegment:
        return self._segments[number]

    def floor(self, offset: int) -> int:
        """Number of the segment that may hold `offset`; 0 if all begin above it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The offset at which a segment ends: where the next one starts, or the log ends."""
        return self.bases[number + 1] if number + 1 < len(self.bases) else log_end_offset

    def add(self, segment: LogSegment) -> None:
        """Add a segment."""
        insort(self._segments, segment, key=attrgetter("base_offset"))
        self._refresh()

    def remove(self, segments: Iterable[LogSegment]) -> None:
        """Forget segments; their files stay."""
        gone = {segment.base_offset for segment in segments}
        self._segments = [segment for segment in self._segments if segment.base_offset not in gone]
        self._refresh()


def new_segment(directory: str, base_offset: int, config: TopicConfig, now_ms: int) -> LogSegment:
    """Create an active segment. Raises `OSError`; then none of its files is left."""
    paths = [os.path.join(directory, segment_file(kind, base_offset)) for kind in _FILE_KINDS]
    # Files of that name were left by a crash or a truncation and are not part of the log.
    _remove_files(paths)
    segment: LogSegment | None = None
    try:
        segment = LogSegment(directory, base_offset, config, now_ms)
        segment.preallocate()
        segment.activate()
    except OSError:
        if segment is not None:
            segment.release()
        _remove_files(paths)
        raise
    return segment


def discard(segments: Iterable[LogSegment], *, newest_first: bool) -> list[str]:
    """Rename the files of segments that left the log to `.deleted`; returns the new paths.

    A crash in between must not leave a gap: segments at the log's end are renamed newest first, those at its
    start oldest first. Raises `OSError`.
    """
    renamed: list[str] = []
    for segment in sorted(segments, key=attrgetter("base_offset"), reverse=newest_first):
        segment.release()
        for kind in _FILE_KINDS:
            path = segment.path(kind)
            try:
                os.rename(path, path + FileState.DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + FileState.DELETED)
    return renamed


def unlink(segment: LogSegment) -> None:
    """Remove the files of a segment. Raises `OSError`."""
    segment.release()
    _remove_files(segment.path(kind) for kind in _FILE_KINDS)


def _remove_files(paths: Iterable[str]) -> None:
    for path in paths:
        remove_file(path)


def remove_file(path: str) -> None:
    """Remove a file if it is there. Raises `OSError`."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
