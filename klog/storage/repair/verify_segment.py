"""Verifies everything in one segment that a broker would trust: batches, records, indexes.

Rules: what Kafka's readers refuse (`FileLogInputStream`, `DefaultRecordBatch`), what `LogSegment.recover`
cuts, and what lookups rely on (`index_check`). `reader` decodes and reports bad batches; this module makes
problems of its reports. What recovery does about a bad batch depends on the whole log: `verify_damage`
decides that.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice
from typing import Final

from klog.formats.checkpoints import EpochEntry
from klog.formats.checksums import Bytes
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.constants import CONTROL_BIT, INT32_MAX
from klog.formats.errors import DecompressionLimitError, KlogError, StorageError, UnsupportedFormatError
from klog.formats.names import FileKind
from klog.jobs.progress import FileProgress, OnBytes
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import decoded_marker
from klog.storage.files.files import open_for_reading
from klog.storage.reading.reader import SegmentReader
from klog.storage.repair.index_rebuild import rebuild_segment
from klog.storage.repair.index_reports import IndexReport, IndexStatus, RebuildOptions, SegmentTask
from klog.storage.repair.problem import OFFLINE, REBUILD, RECOVER, Problem, Severity, note
from klog.storage.repair.recovery_epochs import note_epochs

MAX_PROBLEMS_PER_SEGMENT: Final = 1000

KEEPS: Final = "keeps it, for the checksum holds; consumers fail there or get wrong offsets"
_KEEPS_CURE: Final = "copy the partition from another replica; nothing here can restore the batch"
_COPY: Final = ("does not read gzip copies", "unpack it; then verify says what recovery would do")
_ALLOCATED_IN_FULL: Final = "is allocated in full: the broker did not stop cleanly"
_BROKEN_INDEX: Final = "trusts it after a clean stop (reads go wrong); rebuilds it after an unclean one"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts of one segment: its problems, the end of its offsets, and the epochs that start in it.

    `damage` are the problems of its batches, as if recovery kept them all. `is_suspicious` means that
    recovery may change the segment.
    """

    base_offset: int
    next_offset: int
    damage: tuple[Problem, ...]
    problems: tuple[Problem, ...]
    epochs: tuple[EpochEntry, ...]
    has_producers: bool
    is_suspicious: bool


class _Collector:
    """Makes problems of the reader's errors, with the offset of the batch; up to a limit."""

    def __init__(self, path: str, verdict: tuple[str, str]) -> None:
        """`verdict` is what Kafka does about a bad batch, and the repair."""
        self.problems: list[Problem] = []
        self._path = path
        self._verdict = verdict
        self._unsaid = 0
        self.batches = BatchTable()

    def error(self, error: KlogError) -> None:
        row = -1
        if error.position_bytes is not None:
            row = bisect_left(self.batches.position, error.position_bytes)
        offset = None
        kafka, cure = self._verdict
        if isinstance(error, StorageError):
            kafka, cure = OFFLINE, error.cure or ""
        elif isinstance(error, UnsupportedFormatError):
            kafka, cure = "reads it as magic 2, for the checksum does not cover the magic", ""
        elif isinstance(error, DecompressionLimitError):
            kafka, cure = "has no such limit", error.cure or ""
        if 0 <= row < len(self.batches) and self.batches.position[row] == error.position_bytes:
            offset = self.batches.last_offset[row]
        self.add(error.what, kafka, cure, error.position_bytes, offset)

    def add(
        self, what: str, kafka: str, cure: str, position: int | None = None, offset: int | None = None
    ) -> None:
        if len(self.problems) >= MAX_PROBLEMS_PER_SEGMENT:
            self._unsaid += 1
            return
        self.problems.append(
            Problem(self._path, what, kafka, cure, Severity.ERROR, position=position, offset=offset)
        )

    def end(self) -> None:
        if self._unsaid:
            what = f"{self._unsaid} more problems in this segment"
            self.problems.append(Problem(self._path, what, KEEPS))


def verify_segment(
    task: SegmentTask,
    options: RebuildOptions,
    deep: bool,
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES,
    on_bytes: OnBytes = lambda _: None,
    *,
    with_indexes: bool = True,
) -> SegmentFacts:
    """Read one segment and its indexes. It raises nothing: an unreadable file is a problem, too.

    `on_bytes` receives the bytes of the segment that are done. Without `with_indexes` only the segment
    is read.
    """
    progress = FileProgress(on_bytes, task.size_bytes)
    path = task.path
    found = _Collector(path, _COPY if task.is_gzipped else (KEEPS, _KEEPS_CURE))
    epochs: list[EpochEntry] = []
    next_offset, has_producers, is_suspicious = task.base_offset, False, False
    try:
        with open_for_reading(path) as file:
            reader = SegmentReader(
                file,
                path,
                task.base_offset,
                on_problem=found.error,
                max_decompressed_bytes=max_decompressed_bytes,
            )
            found.batches = reader.batches
            for data in reader.chunks():
                table = reader.batches
                progress.reached(table.origin + table.consumed_bytes)
                if not len(table):
                    continue
                next_offset = table.last_offset[-1] + 1
                has_producers = has_producers or max(table.producer_id) >= 0
                is_suspicious = is_suspicious or _may_be_cut(data, table, task.base_offset)
                note_epochs(table, len(table), epochs)
                if deep:
                    for _ in reader.decode(data):
                        _check_records(reader, found)
        has_no_index = task.is_gzipped or task.size_bytes > INT32_MAX
        indexes = () if has_no_index or not with_indexes else rebuild_segment(task, options).indexes
    except KlogError as error:
        found.error(error)
        indexes = ()
    progress.finish()
    if task.size_bytes > INT32_MAX:
        what = f"{task.size_bytes} bytes are more than a segment can have"
        found.add(what, "refuses to open the segment", "split the file by hand", 0)
    found.end()
    return SegmentFacts(
        task.base_offset,
        next_offset,
        tuple(found.problems),
        tuple(problem for report in indexes for problem in _index_problems(report, is_held=task.is_held)),
        tuple(epochs),
        has_producers,
        is_suspicious=not task.is_gzipped and (is_suspicious or bool(found.problems)),
    )


def _may_be_cut(data: Bytes, table: BatchTable, base_offset: int) -> bool:
    """Whether recovery may end the segment in this chunk for another reason than a checksum."""
    last = table.last_offset
    if min(last) < base_offset or max(last) - base_offset > INT32_MAX:
        return True
    if any(map(operator.lt, last, table.base_offset)):
        return True
    if not any(attributes & CONTROL_BIT for attributes in set(table.attributes)):
        return False
    controls = [row for row, attributes in enumerate(table.attributes) if attributes & CONTROL_BIT]
    return not all(_has_marker(data, table, row) for row in controls)


def _has_marker(data: Bytes, table: BatchTable, row: int) -> bool:
    """Whether the producer state can follow a control batch; without a producer it is not looked at."""
    if table.producer_id[row] < 0 or not table.count[row]:
        return True
    records = RecordTable()
    kernel.decode(data, table, row, row + 1, records)
    return decoded_marker(data, records) is not None


def _check_records(reader: SegmentReader, found: _Collector) -> None:
    """Check that the offsets of a run ascend and stay in their batches, and that no timestamp exceeds its
    batch's largest.
    """
    records, batches = reader.records, reader.batches
    first, last = records.batch[0], records.batch[-1]
    position = batches.position[first]
    offsets = records.offset
    ascend = all(map(operator.lt, offsets, islice(offsets, 1, None)))
    if not ascend or offsets[-1] > batches.last_offset[last]:
        what = "record offsets do not ascend within their batches"
        found.add(what, "serves them as they are", "", position)
    # A magic 0 message has no timestamp; otherwise the batch has the largest.
    if batches.magic[first] > 0 and max(records.timestamp) > max(batches.max_timestamp[first : last + 1]):
        what = "a record is later than the largest timestamp of its batch"
        found.add(what, "looks up times and expires the segment by the batch's", "", position)


def _index_problems(report: IndexReport, *, is_held: bool) -> list[Problem]:
    """`is_held` means that a broker may have the index open: it allocates those that it writes to in full."""
    if report.is_allocated_in_full and not is_held:
        return [note(report.path, _ALLOCATED_IN_FULL, "cuts it to its entries when it closes it", RECOVER)]
    if report.status is IndexStatus.VALID:
        return []
    what = report.what or ""
    kind = report.path.rpartition(".")[2]
    severity = Severity.ERROR
    kafka = _BROKEN_INDEX
    if report.status is IndexStatus.MISSING:
        what = f".{kind} is missing"
        kafka = "recovers the segment at its next start, clean or not"
        if kind == FileKind.TIME_INDEX:
            kafka = "makes an empty one (lookups by time read more), or rebuilds it after an unclean stop"
            severity = Severity.NOTE
        if kind == FileKind.TXN_INDEX:
            kafka = "serves aborted records to read_committed consumers; rebuilds it after an unclean stop"
    return [Problem(report.path, what, kafka, REBUILD, severity, position=report.position_bytes)]
