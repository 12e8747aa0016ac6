"""Carries out one task: reads batches, verifies them, and writes the new segments as `.cleaned` files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klog.convert.batches import BatchConverter, ConvertedBatch, EpochOfOffset
from klog.convert.tasks import ConvertTask, NewSegment, Source, TaskResult
from klog.formats.constants import INT32_MAX
from klog.formats.errors import KlogError
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable
from klog.storage.cleaner.output import KINDS, CleanedSegment
from klog.storage.cleaner.source import aborted_txns, verified_batches
from klog.storage.cleaner.task import CLEANED
from klog.storage.files.files import take_over_owner
from klog.storage.reading.producer_state import AbortedTxn

OnBytes = Callable[[int], None]

BUFFER_BYTES: Final = 256 << 10
"""What is read at a time. Decompressed it may take a hundred times as much memory."""


def convert(task: ConvertTask, on_bytes: OnBytes = lambda _: None) -> TaskResult:
    """Carry out a task. If it ends early, it leaves no files.

    Raises `KlogError` that names the file and the position of what is damaged, or cannot be read or written.
    """
    output = Output(task)
    converter = BatchConverter(task.options, EpochOfOffset(task.epochs))
    batches = 0
    has_producers = False
    try:
        for source in task.sources:
            with located(task.source_path(FileKind.LOG, source)):
                for data, table in read(task, source):
                    batches += len(table)
                    has_producers = has_producers or max(table.producer_id) >= 0
                    output.append(converter.take(data, table))
                    on_bytes(table.consumed_bytes)
        output.append(converter.finish())
        segments = output.finish()
    except BaseException:
        output.abandon()
        raise
    return TaskResult(task.number, segments, batches, output.batches, has_producers)


def read(task: ConvertTask, source: Source) -> Iterator[tuple[memoryview, BatchTable]]:
    """The batches of a source, verified, in buffers."""
    table = BatchTable()
    if source.start_bytes >= source.end_bytes:
        return
    path = task.source_path(FileKind.LOG, source)
    for data in verified_batches(
        path, source.end_bytes, table, start_bytes=source.start_bytes, buffer_bytes=BUFFER_BYTES
    ):
        yield data, table


class located:  # noqa: N801 (reads as a phrase: `with located(path)`)
    """Adds the path to the errors of its block that name no file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KlogError) and error.file is None:
            error.at(self._path)


class Output:
    """The segments of a task, one after the other."""

    def __init__(self, task: ConvertTask) -> None:
        self._task = task
        self._aborted = _aborted_of(task)
        self._modified_ms = task.sources[-1].modified_ms
        self._current: CleanedSegment | None = None
        self._base_offset = self._first_offset = self._next_offset = 0
        self._done: list[NewSegment] = []
        self.batches = 0

    def append(self, batches: Sequence[ConvertedBatch]) -> None:
        """Write batches, in as few writes as segments allow."""
        first = 0
        planned_bytes = 0 if self._current is None else self._current.size_bytes
        for at, batch in enumerate(batches):
            if self._current is None or self._is_full(planned_bytes, batch):
                self._write(batches[first:at])
                self._begin(batch)
                first, planned_bytes = at, 0
            planned_bytes += len(batch.data)
        self._write(batches[first:])
        self.batches += len(batches)

    def _is_full(self, size_bytes: int, batch: ConvertedBatch) -> bool:
        return size_bytes > 0 and (
            size_bytes + len(batch.data) > self._task.options.largest_segment_bytes
            or batch.last_offset - self._base_offset > INT32_MAX
        )

    def _begin(self, batch: ConvertedBatch) -> None:
        self._end()
        named = self._task.base_offset
        self._base_offset = batch.base_offset if named is None or self._done else named
        self._first_offset = batch.base_offset
        self._current = CleanedSegment(self._task, self._base_offset)

    def _write(self, batches: Sequence[ConvertedBatch]) -> None:
        if batches and self._current is not None:
            self._current.append([batch.data for batch in batches])
            self._next_offset = batches[-1].last_offset + 1

    def _end(self) -> None:
        if self._current is None:
            return
        aborted = [txn for txn in self._aborted if self._first_offset <= txn.last_offset < self._next_offset]
        self._current.finish(aborted, self._modified_ms, durable=self._task.whole is None)
        base = self._base_offset
        files = [kind for kind in KINDS if os.path.exists(self._task.path(kind, base) + CLEANED)]
        original = self._task.source_path(FileKind.LOG, self._task.sources[0])
        for kind in files:
            with open(self._task.path(kind, base) + CLEANED, "rb") as file:
                take_over_owner(file.fileno(), original)
        self._done.append(
            NewSegment(base, self._next_offset, self._current.size_bytes, tuple(map(str, files)))
        )
        self._current = None

    def finish(self) -> tuple[NewSegment, ...]:
        """Complete the files on disk."""
        self._end()
        return tuple(self._done)

    def abandon(self) -> None:
        """Remove all files."""
        if self._current is not None:
            self._current.abandon()
            self._current = None
        while self._done:
            segment = self._done.pop()
            for kind in segment.files:
                os.unlink(self._task.path(FileKind(kind), segment.base_offset) + CLEANED)


def _aborted_of(task: ConvertTask) -> list[AbortedTxn]:
    """The aborted transactions whose markers are in the sources, in the order of the markers."""
    found = [
        txn for source in task.sources for txn in aborted_txns(task.source_path(FileKind.TXN_INDEX, source))
    ]
    return sorted(found, key=lambda txn: txn.last_offset)
