"""Plans the indexes of the segments that recovery keeps.

Rules: Kafka 3.9's `LogSegment.recover` (the indexes of a recovered segment are rebuilt), and `OffsetIndex`,
`TimeIndex` and `LazyIndex` (an index that is only opened is truncated after its last whole entry when it is
first read).
"""

from __future__ import annotations

from klog.formats.constants import OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES
from klog.formats.names import FileKind, segment_file
from klog.storage.files.files import read_whole, size_bytes
from klog.storage.repair.recovery_plan import Step, Write, WriteIndexes
from klog.storage.repair.recovery_state import Recovery


def index_steps(work: Recovery) -> list[Step]:
    """The writes that give every kept segment the indexes that Kafka leaves. Raises `StorageError`."""
    steps: list[Step] = []
    for base in sorted(work.segments):
        recovered = work.recovered.get(base)
        present = work.resolved.indexes.get(base, {})
        if recovered is None and work.segments[base] in work.parts:
            part = work.parts[work.segments[base]]
            steps.append(WriteIndexes(base, part.end_bytes - part.start_bytes, "missing"))
            continue
        if recovered is None:
            steps += _unrecovered_index_steps(work, base)
            continue
        scan = recovered.scan
        if not scan.has_indexes:
            steps.append(WriteIndexes(base, recovered.valid_bytes, "differs or may differ"))
        else:
            empty = scan.disordered
            wanted = {
                FileKind.OFFSET_INDEX: b"" if empty else scan.offset_index,
                FileKind.TIME_INDEX: b"" if empty else scan.time_index,
            }
            for kind, data in wanted.items():
                steps.extend(write_if_different(segment_file(kind, base), present.get(kind), data))
        if recovered.txn_index or FileKind.TXN_INDEX in present:
            name = segment_file(FileKind.TXN_INDEX, base)
            steps.extend(write_if_different(name, present.get(FileKind.TXN_INDEX), recovered.txn_index))
    return steps


def _unrecovered_index_steps(work: Recovery, base: int) -> list[Step]:
    """The changes of Kafka to the indexes of a segment that it only opens: it truncates those that it has
    read after their last whole entry.
    """
    present = work.resolved.indexes.get(base, {})
    steps: list[Step] = []
    if base in work.resolved.made_indexes:
        whole = work.settings.index.max_bytes // OFFSET_INDEX_ENTRY_BYTES * OFFSET_INDEX_ENTRY_BYTES
        steps.append(Write(segment_file(FileKind.OFFSET_INDEX, base), bytes(whole), "missing"))
    if FileKind.TIME_INDEX not in present:
        steps.append(Write(segment_file(FileKind.TIME_INDEX, base), b"", "missing"))
    is_last = base == max(work.segments)
    read = {
        FileKind.OFFSET_INDEX: OFFSET_INDEX_ENTRY_BYTES if is_last or base in work.snapshots.replayed else 1,
        FileKind.TIME_INDEX: TIME_INDEX_ENTRY_BYTES if is_last else 1,
    }
    for kind, entry_bytes in read.items():
        if kind in present and (rest := size_bytes(present[kind]) % entry_bytes):
            data = read_whole(present[kind])[:-rest]
            steps.append(Write(segment_file(kind, base), data, "its last entry is incomplete"))
    return steps


def write_if_different(name: str, path: str | None, data: bytes) -> list[Step]:
    """The write of a derived file, if `path` is missing or has other content. Raises `StorageError`."""
    if path is None:
        return [Write(name, data, "missing")]
    return [] if read_whole(path) == data else [Write(name, data, "differs from what the segment gives")]
