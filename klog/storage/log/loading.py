"""Opens a partition directory for a broker: trusted after a clean stop, recovered after any other.

Rules: Kafka's `LogLoader` and `UnifiedLog.rebuildProducerState`. Recovery is that of the offline command
`klog recover` (`klog.storage.repair.recovery`), which keeps what it removes. After a clean stop, a log
without leftovers is opened without scanning it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from klog.config.topic import TopicConfig
from klog.formats.constants import INT64_MAX
from klog.formats.errors import CorruptRecordError, StorageError
from klog.formats.names import FileKind, FileState
from klog.storage.files.checkpoint_files import epochs_problem, read_leader_epochs
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.log.epoch_file import EpochFile
from klog.storage.log.index_repair import require_fitting, txn_index_damage
from klog.storage.log.log_values import LogState
from klog.storage.log.producers import Producers
from klog.storage.log.segment import LogSegment
from klog.storage.log.snapshot_files import SnapshotFiles
from klog.storage.reading.producer_history import DEFAULT_PRODUCER_EXPIRATION_MS
from klog.storage.repair.leader_epochs import LeaderEpochs

if TYPE_CHECKING:
    from klog.storage.repair.recovery_plan import Finding

_ALL: Final = INT64_MAX

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How to load one log.

    `recovery_point` and `log_start_offset` are from the log directory's checkpoints (0 if it has no entry).
    `clean` says that the last broker stopped cleanly. Recovery moves what it removes to `quarantine_root`.
    With `syncs_derived` false, the caller forces indexes and snapshots that recovery makes to disk.
    """

    now_ms: int
    quarantine_root: str
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    syncs_derived: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """The parts of a log, and what recovery found (nothing after a clean stop).

    What recovery removed is in `quarantine`, or is lost because of `why_lost`. `dropped` are
    files that it removed and that held no records. `damage` are the files that were made anew from the
    batches.
    """

    state: LogState
    damage: tuple[CorruptRecordError, ...] = ()
    findings: tuple[Finding, ...] = ()
    quarantine: str | None = None
    dropped: tuple[str, ...] = ()
    why_lost: StorageError | None = None


def create_log(directory: str, config: TopicConfig, settings: LoadSettings) -> LogState:
    """The parts of a new log in an empty directory. Raises `OSError`, `StorageError`."""
    segment = LogSegment(directory, settings.log_start_offset, config, settings.now_ms)
    segment.preallocate()
    segment.activate()
    with open(os.path.join(directory, FileKind.LEADER_EPOCH_CHECKPOINT), "xb"):
        epochs = EpochFile(directory, LeaderEpochs())
    start = settings.log_start_offset
    snapshots = SnapshotFiles(directory, expiration_ms=settings.producer_expiration_ms, latest=start)
    return LogState((segment,), Producers((), start), snapshots, epochs, start, start, start)


def load_log(
    directory: str,
    config: TopicConfig,
    settings: LoadSettings,
    on_recovery: Callable[[str], None] = lambda directory: None,  # noqa: ARG005
) -> Loaded:
    """The parts of the log in `directory`. Raises `OSError`, `KlogError` if it cannot be read.

    `on_recovery` is called with the directory before a recovery, which reads all that may not have been
    flushed.
    """
    loaded = _load(directory, config, settings, on_recovery)
    active = loaded.state.segments[-1]
    require_fitting(active, loaded.state.log_end_offset)
    active.activate()
    return loaded


def _load(
    directory: str, config: TopicConfig, settings: LoadSettings, on_recovery: Callable[[str], None]
) -> Loaded:
    files, damage = _without_damaged(_without_deleted(list_partition(directory)))
    recovery_point: int | None = settings.recovery_point
    if settings.clean and epochs_problem(files) is not None:
        recovery_point = 0  # only all batches together have all epochs
    elif settings.clean:
        try:
            return replace(_trusted(directory, config, settings, files, on_recovery), damage=damage)
        except CorruptRecordError as error:
            _log.warning("%s; the log is recovered as after an unclean stop", error)
            files, recovery_point = list_partition(directory), _ALL
    on_recovery(directory)
    return replace(_recovered(directory, config, settings, files, recovery_point), damage=damage)


def _trusted(
    directory: str,
    config: TopicConfig,
    settings: LoadSettings,
    files: PartitionFiles,
    on_recovery: Callable[[str], None],
) -> Loaded:
    """The log as it is. If something is left over or missing, recovery repairs that and reads no more."""
    if _untouched(files):
        state = _opened(directory, config, settings, files)
        aborted_too_early = any(
            txn.last_offset < segment.base_offset for segment in state.segments for txn in segment.aborted()
        )
        if not aborted_too_early and state.log_end_offset >= settings.log_start_offset:
            # As recovery does. It must not be done twice: a log that is empty would lose its last epoch.
            state.epochs.truncate_from_end(state.log_end_offset)
            state.epochs.truncate_from_start(settings.log_start_offset)
            return Loaded(state)
    on_recovery(directory)
    return _recovered(directory, config, settings, files, None)


def _recovered(
    directory: str,
    config: TopicConfig,
    settings: LoadSettings,
    files: PartitionFiles,
    recovery_point: int | None,
) -> Loaded:
    """`recovery_point` as in `RecoverySettings`."""
    # Imported here, because most brokers that start were stopped cleanly.
    from klog.storage.files.disk import Disk
    from klog.storage.repair.recovery import plan_recovery
    from klog.storage.repair.recovery_plan import RecoverySettings
    from klog.storage.repair.recovery_run import run_recovery
    from klog.storage.repair.segment_scan import IndexSettings

    recovery = RecoverySettings(
        settings.now_ms,
        IndexSettings(config.index_interval_bytes, config.segment_index_bytes),
        settings.producer_expiration_ms,
        recovery_point,
        settings.log_start_offset,
        finds_producers=False,
    )
    if recovery_point is not None:
        _empty_indexes(files, recovery_point)
    plan = plan_recovery(directory, recovery)
    disk = Disk(syncs_derived=settings.syncs_derived)
    why_lost = None
    try:
        done = run_recovery(plan, recovery, settings.quarantine_root, disk, keep_replaced=False)
    except StorageError as error:
        # The quarantine is beside the log directory, where the broker may not be allowed to write. Kafka
        # keeps nothing at all. If it is the log directory that has failed, the second run fails, too.
        why_lost = error
        done = run_recovery(plan_recovery(directory, recovery), recovery, None, disk, keep_replaced=False)
    state = _opened(directory, config, settings, list_partition(directory))
    return Loaded(
        state,
        findings=plan.findings,
        quarantine=done.quarantine,
        dropped=done.dropped if why_lost is None else (),
        why_lost=why_lost,
    )


def _without_deleted(files: PartitionFiles) -> PartitionFiles:
    """Unlink the files that were renamed for deletion when the broker stopped."""
    deleted = [name for name in files.transient if name.state is FileState.DELETED]
    for name in deleted:
        os.unlink(files.named(name))
    return list_partition(files.path) if deleted else files


def _without_damaged(files: PartitionFiles) -> tuple[PartitionFiles, tuple[CorruptRecordError, ...]]:
    """Let recovery make transaction indexes anew that cannot belong to their segment.

    Recovery does that with all indexes of a segment that has no offset index, so this is removed.
    """
    damage = []
    for base in files.segments:
        problem = txn_index_damage(files, base)
        if problem is not None:
            damage.append(problem)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(files.file(FileKind.OFFSET_INDEX, base))
    return (list_partition(files.path) if damage else files), tuple(damage)


def _empty_indexes(files: PartitionFiles, recovery_point: int) -> None:
    """Empty the indexes that recovery will build: after a crash they have their full size, most of it a hole.

    If segments are still to be swapped in, recovery may begin with the last of them.
    """
    swaps = [
        name.offset
        for name in files.transient
        if name.state is FileState.SWAP and name.kind is FileKind.LOG and name.offset is not None
    ]
    bases = [*files.segments, *swaps]
    floor = max((base for base in bases if base <= recovery_point), default=0)
    for base, kind in files.indexes:
        if base >= floor and kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            path = files.file(kind, base)
            if os.path.islink(path):
                os.unlink(path)  # what a link leads to belongs to others
            else:
                os.truncate(path, 0)


def _untouched(files: PartitionFiles) -> bool:
    """Whether nothing is left over and nothing is missing."""
    bases = set(files.segments)
    return (
        bool(bases)
        and not files.transient
        and not any(name.endswith(FileState.TEMPORARY) for name in files.unknown)
        and all(base in bases for base, _ in files.indexes)
        and all(
            files.has(kind, base) for base in bases for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
        )
    )


def _opened(directory: str, config: TopicConfig, settings: LoadSettings, files: PartitionFiles) -> LogState:
    segments = [LogSegment(directory, base, config, settings.now_ms) for base in files.segments]
    end = segments[-1].next_offset()
    start = max(settings.log_start_offset, segments[0].base_offset)
    epochs = EpochFile(directory, _epochs(files))
    snapshots = SnapshotFiles(directory, expiration_ms=settings.producer_expiration_ms)
    snapshots.drop_strays(files.segments)
    producers = snapshots.load(
        end,
        log_start_offset=start,
        segments={segment.base_offset: segment.path(FileKind.LOG) for segment in segments},
        now_ms=settings.now_ms,
        replay=not settings.clean,
    )
    recovery_point = end if settings.clean else max(min(settings.recovery_point, end), start)
    return LogState(tuple(segments), producers, snapshots, epochs, start, end, recovery_point)


def _epochs(files: PartitionFiles) -> LeaderEpochs:
    if FileKind.LEADER_EPOCH_CHECKPOINT not in files.plain:
        with open(files.named(FileKind.LEADER_EPOCH_CHECKPOINT), "xb"):
            return LeaderEpochs()
    return LeaderEpochs(read_leader_epochs(files.path))
