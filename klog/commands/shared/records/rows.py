"""Walks through the files of a plan, and through the records that the plan selects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from klog.commands.shared.records.plan import DumpFile, DumpPlan, Selection
from klog.formats.checksums import Bytes
from klog.formats.errors import KlogError
from klog.formats.names import FileKind
from klog.kernel.columns import RecordTable
from klog.storage.reading.reader import OnProblem, SegmentReader
from klog.storage.reading.select import compact

RECORD_KINDS = frozenset({FileKind.LOG, FileKind.METADATA_SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT})
"""Kinds of files that hold record batches."""


def each_file(
    files: Iterable[DumpFile],
    limit: int | None,
    on_problem: OnProblem,
    show: Callable[[DumpFile, int | None], int],
) -> int | None:
    """Call `show` with each file and the number of rows that are left, until `limit` rows are shown.

    `show` returns how many rows it has shown. An error of one file is reported as a problem and does not stop
    the others. Returns the rest of the limit.
    """
    left = limit
    for file in files:
        if left == 0:
            break
        try:
            shown = show(file, left)
        except KlogError as error:
            on_problem(error.at(file.path))
            continue
        left = None if left is None else left - shown
    return left


def reader_of(
    plan: DumpPlan, file: DumpFile, opened: BinaryIO, on_problem: OnProblem, *, verify: bool | None = None
) -> SegmentReader:
    """A reader of one opened file of the plan, within the plan's bounds."""
    return SegmentReader(
        opened,
        file.path,
        file.base_offset if file.kind is FileKind.LOG else None,
        bounds=plan.selection,
        verify=plan.verify if verify is None else verify,
        on_problem=on_problem,
        max_decompressed_bytes=plan.max_decompressed_bytes,
    )


def selected_runs(reader: SegmentReader, selection: Selection) -> Iterator[Bytes]:
    """The runs of `reader`, reduced to records that match key and pattern; the caller applies `limit`."""
    for payload in reader.runs():
        if selection.by_content:
            keep_matching(selection, payload, reader.records)
        if len(reader.records):
            yield payload


def selected_batches(selection: Selection, reader: SegmentReader, data: Bytes) -> Iterator[int]:
    """The rows of the chunk's batches that may hold a selected record."""
    held: Iterable[int] = range(len(reader.batches))
    if selection.by_content:
        found: set[int] = set()
        for payload in reader.decode(data):
            keep_matching(selection, payload, reader.records)
            found.update(reader.records.batch)
        held = sorted(found)
    return (row for row in held if selection.may_hold(reader.batches, row))


def keep_matching(selection: Selection, payload: Bytes, records: RecordTable) -> None:
    """Remove the rows whose key and value the selection does not match."""
    view = memoryview(payload)
    wanted = []
    for row in range(len(records)):
        key = records.key(row, view)
        # Compare the key first: it saves copying the value.
        if selection.key is not None and key != selection.key:
            continue
        if selection.matches_content(key, records.value(row, view)):
            wanted.append(row)
    if len(wanted) < len(records):
        compact(records, wanted)
