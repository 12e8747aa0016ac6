"""Divides tasks into pieces that run at once, and merges what they made.

A task makes whole segments, and one segment may be all there is to convert. A piece is a task of its own, for
a range of batches that no batch is joined across. The merged segments are byte for byte those that the task
would have made alone, so the division may depend on the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Final

from klog.convert.batches import ConvertedBatch, EpochOfOffset
from klog.convert.boundaries import SegmentPlace, division_after
from klog.convert.converting import BUFFER_BYTES, Output
from klog.convert.partition_state import PartitionState
from klog.convert.tasks import ConvertTask, Failure, Source, TaskResult
from klog.formats.errors import CorruptRecordError, KlogError
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable
from klog.storage.cleaner.source import indexed_positions, verified_batches
from klog.storage.cleaner.task import CLEANED
from klog.storage.files.files import storage_errors

LEAST_PIECE_BYTES: Final = 16 << 20
"""Smaller pieces cost more than they gain."""

_PIECES_PER_CORE: Final = 8
"""So many make the cores end at nearly the same time."""


def piece_bytes(tasks: Sequence[ConvertTask], cores: int, least_bytes: int = LEAST_PIECE_BYTES) -> int:
    """How large a piece is to be if so many cores share the tasks."""
    return max(sum(task.size_bytes for task in tasks) // (_PIECES_PER_CORE * cores), least_bytes)


def divided(task: ConvertTask, size_bytes: int, numbers: Iterator[int]) -> list[ConvertTask]:
    """The pieces of a task, each of about `size_bytes`, in order; the task itself if it is one piece."""
    pieces: list[list[Source]] = [[]]
    piece_size = 0
    rest_bytes = task.size_bytes
    for source in task.sources:
        rest_bytes -= source.end_bytes - source.start_bytes
        for part in _cut(task, source, size_bytes, before_bytes=piece_size, rest_bytes=rest_bytes):
            if part.start_bytes > source.start_bytes:
                pieces.append([])
                piece_size = 0
            pieces[-1].append(part)
            piece_size += part.end_bytes - part.start_bytes
    if len(pieces) == 1:
        return [task]
    return [
        replace(task, number=next(numbers), base_offset=None, sources=tuple(sources), whole=task.number)
        for sources in pieces
    ]


def _cut(
    task: ConvertTask, source: Source, size_bytes: int, *, before_bytes: int, rest_bytes: int
) -> Iterator[Source]:
    """The parts of a source. The first one follows a piece's first `before_bytes`; the task goes on for
    `rest_bytes` after the source.
    """
    start = source.start_bytes
    wanted = start + max(size_bytes - before_bytes, 0)
    if wanted < source.end_bytes and wanted + size_bytes // 2 <= source.end_bytes + rest_bytes:
        index_path = task.source_path(FileKind.OFFSET_INDEX, source)
        for position in chain((start,), indexed_positions(index_path, start, source.end_bytes)):
            if position < wanted:
                continue
            end = _division(task, source, position)
            if end is None or end >= source.end_bytes:
                break
            if end > start and end + size_bytes // 2 <= source.end_bytes + rest_bytes:
                yield source._replace(start_bytes=start, end_bytes=end)
                start, wanted = end, end + size_bytes
    yield source._replace(start_bytes=start)


def _division(task: ConvertTask, source: Source, position: int) -> int | None:
    """Where the source can be divided, at or after a batch. None if that is nowhere, or batches are damaged:
    then the conversion tells more of it.
    """
    place = SegmentPlace(
        task.source_path(FileKind.LOG, source),
        task.source_path(FileKind.OFFSET_INDEX, source),
        source.end_bytes,
        source.base_offset,
    )
    try:
        return division_after(place, position, task.options, EpochOfOffset(task.epochs))
    except KlogError:
        return None


class Merging:
    """Merges the segments of the pieces of one task, as they become ready, into those of the task."""

    def __init__(self, task: ConvertTask, pieces: Sequence[ConvertTask]) -> None:
        self._task = task
        self._waiting = list(reversed(pieces))
        self._left = len(pieces)
        self._ready: dict[int, TaskResult] = {}
        self._done: list[TaskResult] = []
        self._failures: list[Failure] = []
        self._output = Output(task)
        self._next_offset = 0

    def add(self, result: TaskResult | Failure) -> TaskResult | Failure | None:
        """Take the result of a piece; the last one gives the result of the task, which is committed.

        After a failure nothing is merged any more. The pieces' files are left to the state of the partition.
        """
        self._left -= 1
        try:
            self._take(result)
            if not self._left and not self._failures:
                return self._committed()
        except KlogError as error:
            self._failures.append(Failure(result.number, error))
        return None if self._left else self._failed()

    def close(self) -> None:
        """Remove what is merged, if pieces are missing."""
        if self._left:
            self._output.abandon()

    def _take(self, result: TaskResult | Failure) -> None:
        if isinstance(result, Failure):
            self._failures.append(result)
            return
        self._ready[result.number] = result
        while not self._failures and self._waiting and self._waiting[-1].number in self._ready:
            piece = self._waiting.pop()
            self._merge(piece, self._ready.pop(piece.number))

    def _merge(self, piece: ConvertTask, result: TaskResult) -> None:
        for segment in result.segments:
            if segment.base_offset < self._next_offset:
                first = piece.sources[0]
                raise CorruptRecordError(
                    f"batch of offset {segment.base_offset} follows offset {self._next_offset - 1}",
                    file=piece.source_path(FileKind.LOG, first),
                    position_bytes=first.start_bytes,
                    cure="`klog recover` shows what Kafka would do",
                )
            path = piece.path(FileKind.LOG, segment.base_offset) + CLEANED
            table = BatchTable()
            for data in verified_batches(path, segment.size_bytes, table, buffer_bytes=BUFFER_BYTES):
                if not table.origin:
                    # It stays open. A segment of the task may begin here, too, and gets this name.
                    _remove_files(piece, segment.base_offset, segment.files)
                self._output.append(_batches(data, table))
            self._next_offset = segment.next_offset
        self._done.append(result)

    def _committed(self) -> TaskResult:
        compared = [one.records_compared for one in self._done]
        result = TaskResult(
            self._task.number,
            self._output.finish(),
            sum(one.batches_read for one in self._done),
            self._output.batches,
            any(one.has_producers for one in self._done),
            None if None in compared else sum(filter(None, compared)),
        )
        PartitionState(self._task.target).commit(result)
        return result

    def _failed(self) -> Failure:
        self._output.abandon()
        first = min(self._failures, key=lambda one: one.number)
        return Failure(self._task.number, first.error)


def _batches(data: memoryview, table: BatchTable) -> list[ConvertedBatch]:
    origin = table.origin
    return [
        ConvertedBatch(base, last, data[position - origin : position - origin + size])
        for base, last, position, size in zip(
            table.base_offset, table.last_offset, table.position, table.size, strict=True
        )
    ]


def _remove_files(piece: ConvertTask, base_offset: int, kinds: Sequence[str]) -> None:
    for kind in kinds:
        path = piece.path(FileKind(kind), base_offset) + CLEANED
        with storage_errors("cannot be removed", path):
            os.unlink(path)


def number_after(tasks: Sequence[ConvertTask]) -> Iterator[int]:
    """Numbers that no task has."""
    return count(max((task.number for task in tasks), default=0) + 1)
