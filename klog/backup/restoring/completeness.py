"""Which partitions of a restore may lack the last record of a key: compaction was faster than backups.

A record that arrived between two runs, and whose key got another one before the second run, may have been
compacted away by then. If the moment lies between both records, no backup has what the key had. The cleaner
leaves out no record because of one in the active segment, so few runs are in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from klog.backup.moment.view import Part, PartitionView
from klog.backup.restoring.batches import PieceSource, read_batches
from klog.backup.restoring.plan import PlannedPartition
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN


@dataclass(frozen=True, slots=True)
class Compacted:
    """So many records of a partition, from `first_offset` to before `end_offset`, were compacted away before
    a run read them, perhaps because of records after the moment.
    """

    partition: TopicPartition
    first_offset: int
    end_offset: int
    records: int


def compacted_away(source: PieceSource, planned: Sequence[PlannedPartition], jobs: int) -> list[Compacted]:
    """The partitions for which the last record of each key is not known at the moment. Only pieces that are
    in doubt are read. Raises `StorageError`, `FormatError`.
    """
    found = side_by_side(jobs, lambda each: _compacted(source, each), planned)
    return [each for each in found if each is not None]


def _compacted(source: PieceSource, planned: PlannedPartition) -> Compacted | None:
    view, end_offset = planned.view, planned.cut.end_offset
    first_offset = _doubtful_from(view, end_offset)
    if first_offset is None or first_offset >= end_offset:
        return None
    parts = [part for part in view.parts if part.piece.end_offset > first_offset]
    due, missing = first_offset, 0
    for base, last, count in _batches(source, parts):
        if last < due:
            continue
        missing += max(0, base - due)
        due = max(base, due)
        if base >= end_offset:
            break  # what is missing before it may have been there at the moment
        missing += last - base + 1 - count
        due = last + 1
    return Compacted(planned.target, first_offset, due, missing) if missing else None


def _batches(source: PieceSource, parts: Sequence[Part]) -> Iterator[tuple[int, int, int]]:
    """First offset, last one and number of records of each batch, as far as its header says it."""
    for rows in read_batches(source, parts):
        table = rows.table
        for row in range(rows.first, rows.last):
            base, last, count = table.base_offset[row], table.last_offset[row], table.count[row]
            if base == OFFSET_UNKNOWN:
                yield last, last, 1
            else:
                yield base, last, last - base + 1 if count == COUNT_UNKNOWN else count


def _doubtful_from(view: PartitionView, end_offset: int) -> int | None:
    """Where that begins which was read when records at or after the end may have replaced others."""
    if view.known_cleaned_to > end_offset or (view.known_end is None and view.cleaned_to > end_offset):
        return view.log_start_offset
    return view.known_end if view.cleaned_to > end_offset else None
