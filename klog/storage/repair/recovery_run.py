"""Carries out the recovery of a partition directory: the steps of a plan, one durable change at a time.

What leaves the directory is moved into the quarantine first. The manifest is written before anything moves.
The plan gives the order of the steps. If a run is killed anywhere and planned again, the result is the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, segment_file
from klog.storage.files.disk import Disk
from klog.storage.files.files import open_for_reading, size_bytes
from klog.storage.files.quarantine import (
    MANIFEST_NAME,
    REPLACED_SUFFIX,
    TAIL_SUFFIX,
    Kept,
    holds_records,
    is_unfinished,
    manifest,
    new_directory,
    unfinished_files,
)
from klog.storage.repair.recovery_plan import (
    Cut,
    RecoveryPlan,
    RecoverySettings,
    SetAside,
    SplitOff,
    Step,
    SwapIn,
    Trim,
    Write,
    WriteIndexes,
)
from klog.storage.repair.segment_scan import scan_segment

_REPLACED: Final = "replaced"
_MOVED: Final = "moved"
_RENAMED: Final = "renamed"
_ZEROS: Final = "zeros, allocated and never written"


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The quarantine directory (None: nothing was kept), and the files that were moved into it.

    `dropped` are files that were removed and not kept.
    """

    quarantine: str | None
    kept: tuple[Kept, ...]
    dropped: tuple[str, ...] = ()


def run_recovery(
    plan: RecoveryPlan,
    settings: RecoverySettings,
    quarantine_root: str | None,
    disk: Disk | None = None,
    *,
    keep_replaced: bool = True,
) -> RecoveryResult:
    """Carry out `plan`. Raises `StorageError`; steps that were not reached have changed nothing.

    Without a `quarantine_root` what leaves the directory is lost, as in Kafka.

    With `keep_replaced` false only what held records is kept: no derived files and no zeros after a segment's
    last batch. A broker that starts uses that: after a crash every active segment has such indexes and zeros,
    and often a producer snapshot that no longer counts.
    """
    disk = Disk() if disk is None else disk
    if quarantine_root is not None:
        for unfinished in unfinished_files(quarantine_root, plan.path):
            disk.remove(unfinished)
    if not plan.steps:
        return RecoveryResult(None, ())
    kept = [] if quarantine_root is None else _all_kept(plan, keep_replaced=keep_replaced)
    moved = {entry.original for entry in kept if entry.how == _MOVED}
    dropped = tuple(s.name for s in plan.steps if isinstance(s, SetAside) and s.name not in moved)
    directory = None
    if quarantine_root is not None and kept:
        begun = manifest(plan.path, settings.now_ms, kept, complete=False)
        _require_space(plan, quarantine_root, kept, len(begun), disk)
        directory = new_directory(quarantine_root, plan.path, settings.now_ms)
        disk.make_directories(directory)
        manifest_path = os.path.join(directory, MANIFEST_NAME)
        disk.replace(manifest_path, begun)
    for step in plan.steps:
        if keep_replaced and directory is not None:
            _preserve_replaced(step, plan, directory, disk)
        if isinstance(step, SetAside) and step.name in dropped:
            disk.remove(os.path.join(plan.path, step.name))
        else:
            _carry_out(step, plan, settings, directory, disk)
    if directory is not None:
        disk.replace(manifest_path, manifest(plan.path, settings.now_ms, kept, complete=True))
    return RecoveryResult(directory, tuple(kept), dropped)


def _all_kept(plan: RecoveryPlan, *, keep_replaced: bool) -> list[Kept]:
    """The entries of the quarantine. Files that a killed recovery was writing are never kept."""

    def is_kept(step: Step) -> bool:
        if isinstance(step, SetAside):
            wanted = keep_replaced or holds_records(plan.path, step.name)
            return wanted and not is_unfinished(step.name)
        return keep_replaced or not isinstance(step, Trim)

    found = (entry for step in plan.steps if is_kept(step) for entry in _kept(plan, step))
    kept = [entry for entry in found if keep_replaced or entry.how != _REPLACED]
    # A swap that is renamed into place loses nothing, so for a broker it is no reason for a quarantine.
    return kept if keep_replaced or any(entry.how != _RENAMED for entry in kept) else []


def _require_space(plan: RecoveryPlan, root: str, kept: list[Kept], manifest_bytes: int, disk: Disk) -> None:
    """Raise `StorageError`, before anything changes, if the quarantine has no space for what it will get.

    A file that is moved or linked within one file system needs none.
    """
    free_bytes, is_same = disk.space_below(root, plan.path)
    # While the manifest is written again, it is there twice.
    needed_bytes = 2 * manifest_bytes
    needed_bytes += sum(step.size_bytes - step.valid_bytes for step in plan.steps if isinstance(step, Cut))
    if not is_same:
        here = [os.path.join(plan.path, one.original) for one in kept if one.how in (_MOVED, _REPLACED)]
        needed_bytes += sum(size_bytes(path) for path in here if os.path.exists(path))
    if needed_bytes > free_bytes:
        raise StorageError(
            f"the quarantine needs {needed_bytes} bytes, but {free_bytes} are free on its disk",
            file=root,
            cure="free some space there, or name another directory with --quarantine; nothing was changed",
        )


def _replaced_names(plan: RecoveryPlan, step: Step) -> list[str]:
    """Derived files that a step writes and that will exist already at that time."""
    names = []
    if isinstance(step, Write):
        names = [step.name]
    elif isinstance(step, WriteIndexes):
        names = [segment_file(kind, step.base_offset) for kind in step.kinds]
    swapped_in = {other.target for other in plan.steps if isinstance(other, SwapIn)}
    aside = {other.name for other in plan.steps if isinstance(other, SetAside)}
    return [
        name
        for name in names
        if name in swapped_in or (os.path.exists(os.path.join(plan.path, name)) and name not in aside)
    ]


def _kept(plan: RecoveryPlan, step: Step) -> list[Kept]:
    if isinstance(step, SetAside):
        return [Kept(step.name, step.name, _MOVED, step.why)]
    if isinstance(step, SwapIn):
        return [Kept(step.name, step.target, _RENAMED, "a swap of cleaned segments that did not end")]
    if isinstance(step, Cut):
        return [Kept(step.name, f"{step.name}{TAIL_SUFFIX}", "tail", step.why, step.valid_bytes)]
    if isinstance(step, Trim):
        return [Kept(step.name, f"{step.name}{TAIL_SUFFIX}", "tail", _ZEROS, step.valid_bytes)]
    if isinstance(step, SplitOff):
        return []
    names = _replaced_names(plan, step)
    return [Kept(name, f"{name}{REPLACED_SUFFIX}", _REPLACED, step.why) for name in names]


def _preserve_replaced(step: Step, plan: RecoveryPlan, quarantine: str | None, disk: Disk) -> None:
    if isinstance(step, Trim):
        kept_as = os.path.join(quarantine or "", f"{step.name}{TAIL_SUFFIX}")
        disk.save_zeros(step.size_bytes - step.valid_bytes, kept_as)
    elif isinstance(step, Write | WriteIndexes):
        for name in _replaced_names(plan, step):
            kept_as = os.path.join(quarantine or "", f"{name}{REPLACED_SUFFIX}")
            disk.preserve(os.path.join(plan.path, name), kept_as)


def _carry_out(
    step: Step, plan: RecoveryPlan, settings: RecoverySettings, quarantine: str | None, disk: Disk
) -> None:
    def here(name: str) -> str:
        return os.path.join(plan.path, name)

    def there(name: str) -> str:
        return os.path.join(quarantine or "", name)

    if isinstance(step, SetAside):
        disk.move(here(step.name), there(step.name))
    elif isinstance(step, SwapIn):
        disk.move(here(step.name), here(step.target))
    elif isinstance(step, Cut):
        if quarantine is not None:
            disk.save_tail(here(step.name), step.valid_bytes, there(f"{step.name}{TAIL_SUFFIX}"))
        disk.truncate(here(step.name), step.valid_bytes)
    elif isinstance(step, Trim):
        disk.truncate(here(step.name), step.valid_bytes)
    elif isinstance(step, SplitOff):
        disk.copy_part(here(step.source), step.start_bytes, step.end_bytes, here(step.name))
    elif isinstance(step, Write):
        # The epochs of records that were flushed are in no other file.
        is_derived = step.name != FileKind.LEADER_EPOCH_CHECKPOINT
        (disk.replace_derived if is_derived else disk.replace)(here(step.name), step.data)
    else:
        _write_indexes(step, plan.path, settings, disk)


def _write_indexes(step: WriteIndexes, path: str, settings: RecoverySettings, disk: Disk) -> None:
    log = os.path.join(path, segment_file(FileKind.LOG, step.base_offset))
    with open_for_reading(log) as file:
        scan = scan_segment(file, step.base_offset, settings.index, end_bytes=step.valid_bytes, checked=True)
    contents = {FileKind.OFFSET_INDEX: scan.offset_index, FileKind.TIME_INDEX: scan.time_index}
    for kind in step.kinds:
        disk.replace_derived(os.path.join(path, segment_file(kind, step.base_offset)), contents[kind])
