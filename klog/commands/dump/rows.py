"""What a plan selects: its files in turn, and their records and batches for renderings that look at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from klog.commands.dump.plan import DumpFile, DumpPlan, Selection
from klog.formats.checksums import Bytes
from klog.formats.columns import RecordTable
from klog.formats.errors import KlogError
from klog.formats.names import FileKind
from klog.storage.reader import OnProblem, SegmentReader
from klog.storage.select import compact

RECORD_KINDS = frozenset({FileKind.LOG, FileKind.METADATA_SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT})
"""Kinds of files that hold record batches."""


def each_file(
    files: Iterable[DumpFile],
    limit: int | None,
    on_problem: OnProblem,
    show: Callable[[DumpFile, int | None], int],
) -> int | None:
    """Call `show` with each file and how many rows may still come of it, until `limit` rows are shown.

    `show` returns how many rows it has shown. What goes wrong with a file is a problem of its own, and the
    next one follows. Returns what is left of the limit.
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
    """A pass over one opened file of the plan, within its bounds."""
    return SegmentReader(
        opened,
        file.path,
        file.base_offset if file.kind is FileKind.LOG else None,
        bounds=plan.selection,
        verify=plan.verify if verify is None else verify,
        on_problem=on_problem,
        max_decompressed_bytes=plan.max_decompressed_bytes,
    )


def wanted_runs(reader: SegmentReader, selection: Selection) -> Iterator[Bytes]:
    """The runs of `reader` with the records that the selection's key and pattern leave; `limit` is the
    caller's."""
    for payload in reader.runs():
        if selection.by_content:
            keep_content(selection, payload, reader.records)
        if len(reader.records):
            yield payload


def keep_content(selection: Selection, payload: Bytes, records: RecordTable) -> None:
    """Drop the rows whose key and value the selection does not take."""
    view = memoryview(payload)
    wanted = []
    for row in range(len(records)):
        key = span(view, records.key_start[row], records.key_size[row])
        # A key that differs settles it: values are copied only where they may matter.
        if selection.key is not None and key != selection.key:
            continue
        if selection.takes_content(key, span(view, records.value_start[row], records.value_size[row])):
            wanted.append(row)
    if len(wanted) < len(records):
        compact(records, wanted)


def span(view: memoryview, start: int, size: int) -> bytes | None:
    """The bytes of one key or value, None for null."""
    return None if size < 0 else bytes(view[start : start + size])
