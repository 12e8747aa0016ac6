"""`--verify`: checks the indexes of each dumped segment against its batches (`indexes.index_check`)."""

from __future__ import annotations

import os

from klog.commands.shared.records.plan import DumpFile, DumpPlan
from klog.commands.shared.records.problems import Problems
from klog.formats.errors import FormatError, KlogError
from klog.formats.names import FileKind, FileState
from klog.storage.files.files import open_for_reading
from klog.storage.files.kafka_files import files_of
from klog.storage.indexes.index_check import IndexProblem, check_indexes
from klog.storage.indexes.index_file import IndexFile, read_index

_CURE = "`klog rebuild-index` builds a new one from the segment"


def check(plan: DumpPlan) -> int:
    """Report what is wrong with the indexes of the plan's segments; returns 1 if something is, else 0."""
    problems = Problems(strict=plan.strict)
    for file in plan.files:
        if file.kind is FileKind.LOG and file.base_offset is not None and file.path.endswith(".log"):
            try:
                _check(file, file.base_offset, problems)
            except KlogError as error:
                problems(error.at(file.path))
    return problems.exit_code


def _check(file: DumpFile, base_offset: int, problems: Problems) -> None:
    stem = file.path.removesuffix(".log")
    offset_path, time_path = f"{stem}.index", f"{stem}.timeindex"
    with open_for_reading(file.path) as opened:
        found = check_indexes(
            opened,
            base_offset,
            _index(offset_path, FileKind.OFFSET_INDEX),
            _index(time_path, FileKind.TIME_INDEX),
            active=_is_active(file, base_offset),
        )
    _report(offset_path, found.offset_problem, problems)
    _report(time_path, found.time_problem, problems)


def _index(path: str, kind: FileKind) -> IndexFile | None:
    return read_index(path, kind, sorted_only=True) if os.path.exists(path) else None


def _is_active(file: DumpFile, base_offset: int) -> bool:
    """Whether it is the last segment: its indexes may be pre-allocated, and lack the last entry."""
    later = (
        other.base_offset
        for other in files_of(os.path.dirname(file.path) or ".")
        if other.kind is FileKind.LOG and other.state is FileState.NORMAL
    )
    return all(offset is None or offset <= base_offset for offset in later)


def _report(path: str, found: IndexProblem | None, problems: Problems) -> None:
    if found is not None:
        problems(FormatError(found.what, file=path, position_bytes=found.position_bytes, cure=_CURE))
