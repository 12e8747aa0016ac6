"""Finds the files that `klog recover` leaves as they are, since `klog verify` would call them valid.

Kafka's recovery writes indexes, snapshots and leader epochs again, and their content depends on the topic's
settings, on the Kafka version and on the time. A file with other content can be valid, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Final

from klog.formats.errors import FormatError
from klog.formats.names import FileKind, FileState, parse_file
from klog.storage.files.files import read_whole
from klog.storage.indexes.index_check import check_indexes
from klog.storage.indexes.index_file import read_index
from klog.storage.reading.producer_state import producers_in
from klog.storage.repair.epoch_check import ascending, epoch_problems
from klog.storage.repair.producer_rebuild import txn_index_problem
from klog.storage.repair.recovery_plan import Step, Write, WriteIndexes
from klog.storage.repair.recovery_state import Recovery
from klog.storage.repair.snapshot_check import contradicts

_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


def without_valid(steps: Iterable[Step], work: Recovery, log_start: int, log_end: int) -> list[Step]:
    """The steps without the writes of files that are valid beside the segments as recovery leaves them.

    Raises `StorageError`.
    """
    valid = _ValidFiles(work, log_start, log_end)
    return list(chain.from_iterable(map(valid.needed, steps)))


class _ValidFiles:
    def __init__(self, work: Recovery, log_start: int, log_end: int) -> None:
        self._work = work
        self._log_start = log_start
        self._log_end = log_end
        self._checked: dict[int, set[FileKind]] = {}

    def needed(self, step: Step) -> list[Step]:
        """What of a step is needed."""
        if isinstance(step, WriteIndexes):
            valid = self._indexes(step.base_offset)
            kinds = tuple(kind for kind in step.kinds if kind not in valid)
            return [replace(step, kinds=kinds)] if kinds else []
        if isinstance(step, Write) and self._is_valid(step.name):
            return []
        return [step]

    def _is_valid(self, name: str) -> bool:
        if name == FileKind.LEADER_EPOCH_CHECKPOINT:
            return self._has_valid_epochs(name)
        file = parse_file(name)
        if file.offset is None or file.state is not FileState.NORMAL:
            return False
        if file.kind is FileKind.PRODUCER_SNAPSHOT:
            return self._is_valid_snapshot(file.offset)
        if file.kind is FileKind.TXN_INDEX:
            return self._is_valid_txn_index(file.offset)
        return file.kind in self._indexes(file.offset)

    def _indexes(self, base: int) -> set[FileKind]:
        if base not in self._checked:
            self._checked[base] = self._valid_indexes(base)
        return self._checked[base]

    def _valid_indexes(self, base: int) -> set[FileKind]:
        recovered = self._work.recovered.get(base)
        present = self._work.resolved.indexes.get(base, {})
        if recovered is None or recovered.scan.disordered:
            return set()
        old = {
            kind: read_index(present[kind], kind, sorted_only=True) if kind in present else None
            for kind in _INDEXES
        }
        active = base == max(self._work.segments)
        with self._work.open(self._work.segments[base]) as file:
            found = check_indexes(file, base, *old.values(), active=active, end_bytes=recovered.valid_bytes)
        problems = dict(zip(_INDEXES, (found.offset_problem, found.time_problem), strict=True))
        return {
            kind
            for kind, index in old.items()
            if index is not None and problems[kind] is None and not index.is_allocated_in_full(kind)
        }

    def _is_valid_txn_index(self, base: int) -> bool:
        recovered = self._work.recovered.get(base)
        path = self._work.resolved.indexes.get(base, {}).get(FileKind.TXN_INDEX)
        if recovered is None or recovered.scan.disordered or path is None:
            return False
        problem = txn_index_problem(read_whole(path), base, recovered.aborted, recovered.lone_aborts)
        return problem is None

    def _is_valid_snapshot(self, offset: int) -> bool:
        path = self._work.resolved.snapshots.get(offset)
        if path is None:
            return False
        try:
            producers = producers_in(read_whole(path))
        except FormatError:
            return False
        from_batches = producers_in(self._work.snapshots.taken[offset])
        return not contradicts(producers.values(), from_batches, offset, self._log_start)

    def _has_valid_epochs(self, name: str) -> bool:
        if FileKind.LEADER_EPOCH_CHECKPOINT not in self._work.files.plain:
            return False
        recovered = (self._work.recovered.get(base) for base in sorted(self._work.segments))
        in_log = ascending(one.epochs for one in recovered if one is not None)
        path = self._work.files.named(name)
        return not epoch_problems(path, in_log, self._log_start, self._log_end)
