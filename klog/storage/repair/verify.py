"""Verifies the segments, partitions and log directories that PATH arguments name, in order."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.errors import FormatError, KlogError, StorageError
from klog.formats.names import FileKind, FileState, parse_file, segment_file
from klog.jobs.progress import OnBytes
from klog.storage.files.checkpoint_files import Checkpoints
from klog.storage.files.directory_lock import holder_of
from klog.storage.files.files import GZIP_SUFFIX, size_bytes
from klog.storage.files.log_directory import log_directory_of
from klog.storage.files.partition_files import list_partition
from klog.storage.files.targets import Target, is_partition, targets
from klog.storage.repair.index_rebuild import PARALLEL_FROM_BYTES, tasks_of
from klog.storage.repair.index_reports import RebuildOptions, SegmentTask
from klog.storage.repair.problem import OFFLINE, Problem
from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import RecoveryPlan, RecoverySettings
from klog.storage.repair.verify_damage import judged
from klog.storage.repair.verify_log_directory import verify_log_directory, verify_together
from klog.storage.repair.verify_partition import PartitionFacts, verify_partition
from klog.storage.repair.verify_segment import SegmentFacts, verify_segment


@dataclass(frozen=True, slots=True)
class Scope:
    """What to verify. `log_directories` are those named as a whole; `unreadable` are problems of directories
    that cannot be listed.
    """

    targets: tuple[Target, ...]
    tasks: tuple[SegmentTask, ...]
    log_directories: tuple[str, ...]
    unreadable: tuple[Problem, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(task.size_bytes for task in self.tasks)


def scope_of(paths: Iterable[str]) -> Scope:
    """What `paths` name. Raises `StorageError` and `UsageError`."""
    named = list(paths)
    found: list[Target] = []
    tasks: list[SegmentTask] = []
    unreadable: list[Problem] = []
    is_held = functools.cache(lambda log_directory: holder_of(log_directory) is not None)
    for target in targets(named, gzipped=True):
        try:
            held = is_held(log_directory_of(target.directory))
            tasks += [replace(task, is_held=held) for task in tasks_of(target.directory, target.base_offset)]
            tasks += _gzipped_tasks_of(target.directory, target.base_offset)
        except StorageError as error:
            unreadable.append(Problem(target.directory, error.what, OFFLINE, error.cure or ""))
        else:
            found.append(target)
    log_directories = [path for path in named if os.path.isdir(path) and not is_partition(path)]
    return Scope(tuple(found), tuple(tasks), tuple(log_directories), tuple(unreadable))


def _gzipped_tasks_of(directory: str, only: int | None = None) -> list[SegmentTask]:
    """The gzip copies of segments in a directory that are not there as plain files. Raises `StorageError`."""
    files = list_partition(directory)
    found = []
    for name in files.unknown:
        with contextlib.suppress(FormatError):
            parsed = parse_file(name.removesuffix(GZIP_SUFFIX))
            is_segment = parsed.kind is FileKind.LOG and parsed.state is FileState.NORMAL
            if name.endswith(GZIP_SUFFIX) and is_segment and parsed.offset is not None:
                found.append((parsed.offset, size_bytes(os.path.join(directory, name))))
    return [
        SegmentTask(directory, base, False, size, is_gzipped=True)
        for base, size in sorted(found)
        if base not in files.segments and (only is None or base == only)
    ]


def verify(
    scope: Scope,
    options: RebuildOptions,
    *,
    deep: bool = True,
    processes: int = 0,
    on_bytes: OnBytes,
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[Problem]:
    """Problems in the order of paths: segments, then their partition, then their log directory.

    With `processes` 0 the number of processes depends on the sizes; `max_decompressed_bytes` limits one
    batch. Raises `StorageError` if a directory cannot be read.
    """
    yield from scope.unreadable
    partitions: list[PartitionFacts] = []
    read: dict[str, dict[int, SegmentFacts]] = {}
    results = _segments(scope, options, deep, max_decompressed_bytes, processes, on_bytes)
    for task, segment in zip(scope.tasks, results, strict=True):
        read.setdefault(task.directory, {})[task.base_offset] = segment
    for target in scope.targets:
        segments = read.get(target.directory, {})
        if target.base_offset is not None:
            yield from _one_segment(target.directory, segments[target.base_offset], options)
            continue
        facts = verify_partition(target.directory, list(segments.values()), _log_start(target.directory))
        partitions.append(facts)
        yield from _whole_partition(facts, segments.values(), options)
    for directory in scope.log_directories:
        here = [facts for facts in partitions if os.path.dirname(facts.path) == os.path.normpath(directory)]
        yield from verify_log_directory(directory, here)
    yield from verify_together(scope.log_directories)


def _one_segment(directory: str, facts: SegmentFacts, options: RebuildOptions) -> list[Problem]:
    damage = list(facts.damage)
    if facts.is_suspicious and (plan := _recovery_of(directory, options)) is not None:
        log = os.path.join(directory, segment_file(FileKind.LOG, facts.base_offset))
        damage = [problem for problem in judged(damage, (), plan) if problem.file == log]
    return [*damage, *facts.problems]


def _whole_partition(
    facts: PartitionFacts, segments: Collection[SegmentFacts], options: RebuildOptions
) -> list[Problem]:
    damage = [problem for segment in segments for problem in segment.damage]
    others = [problem for segment in segments for problem in segment.problems]
    others += facts.problems
    plan = _recovery_of(facts.path, options) if facts.is_suspicious else None  # none for gzip copies alone
    return [*damage, *others] if plan is None else judged(damage, others, plan)


def _recovery_of(directory: str, options: RebuildOptions) -> RecoveryPlan | None:
    """What recovery would do to a partition; None if it cannot read it, which is another problem."""
    settings = RecoverySettings(
        options.now_ms,
        options.settings,
        options.producer_expiration_ms,
        log_start_offset=_log_start(directory),
        keeps_valid=True,
    )
    try:
        return plan_recovery(directory, settings)
    except KlogError:
        return None


def _verified(
    options: RebuildOptions, deep: bool, max_decompressed_bytes: int, task: SegmentTask, on_bytes: OnBytes
) -> SegmentFacts:
    return verify_segment(task, options, deep, max_decompressed_bytes, on_bytes)


def _log_start(partition_directory: str) -> int:
    return Checkpoints(log_directory_of(partition_directory)).log_start(partition_directory)


def _segments(
    scope: Scope,
    options: RebuildOptions,
    deep: bool,
    max_decompressed_bytes: int,
    processes: int,
    on_bytes: OnBytes,
) -> Iterator[SegmentFacts]:
    tasks = scope.tasks
    if processes == 0:
        processes = min(os.cpu_count() or 1, len(tasks)) if scope.size_bytes >= PARALLEL_FROM_BYTES else 1
    if processes <= 1:
        for task in tasks:
            yield verify_segment(task, options, deep, max_decompressed_bytes, on_bytes)
        return
    from klog.jobs.processes import map_in_order

    yield from map_in_order(
        partial(_verified, options, deep, max_decompressed_bytes), tasks, processes, on_bytes
    )
