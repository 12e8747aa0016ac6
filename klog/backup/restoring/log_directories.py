"""Writes log directories by a plan: partitions, replicas, and what a broker leaves that stopped cleanly."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from klog.backup.moment.corrections import KeyValue, offset_corrections, transaction_corrections
from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.moment.view import PartitionView
from klog.backup.restoring.batches import PieceSource, read_batches
from klog.backup.restoring.histories import OnBytes, ignore_bytes
from klog.backup.restoring.partition_files import PartitionWriter, WrittenPartition
from klog.backup.restoring.plan import PlannedPartition, RestorePlan
from klog.backup.restoring.state_records import committed_offsets, transaction_states
from klog.backup.restoring.target import RestoreTarget
from klog.formats.names import CONSUMER_OFFSETS, FileKind, TopicPartition
from klog.jobs.threads import side_by_side
from klog.kernel.batch_builder import RecordData, build_batch
from klog.storage.files.file_system_sync import can_sync_file_system, sync_file_system
from klog.storage.files.files import storage_error
from klog.storage.log.data_directory import DataDirectory
from klog.storage.repair.segment_scan import IndexSettings

_SYNCED_BYTES: Final = 1 << 30
"""So much may have to be written again after a kill."""
_SYNCED_PARTITIONS: Final = 256
_RECORDS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Layout:
    """Which brokers get which replicas. `directories` are names below the target by broker id; the name of a
    target that is itself the log directory is empty.
    """

    directories: Mapping[int, str]
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    cluster_id: str | None = None
    settings: Mapping[str, IndexSettings] = field(default_factory=dict)


Written = Mapping[TopicPartition, WrittenPartition]
Finish = Callable[[Written], None]


def write_log_directories(
    source: PieceSource,
    plan: RestorePlan,
    target: RestoreTarget,
    layout: Layout,
    *,
    jobs: int = 1,
    finish: Finish | None = None,
    on_bytes: OnBytes = ignore_bytes,
    stays: Callable[[PlannedPartition], bool] = lambda planned: False,  # noqa: ARG005
) -> Written:
    """Fill the target, with `jobs` partitions at a time. `finish` is called when all are there, to add the
    metadata. `on_bytes` may be called by several threads. The batches of a partition that `stays` in the
    repository are left out: its log has only what is added, from the cut on.

    Raises `UsageError` (the target holds something else), `StorageError`, `FormatError`. What was done stays,
    and the next call with the same plan goes on.
    """
    target.begin()
    paths = {broker_id: target.guard(name) for broker_id, name in layout.directories.items()}
    writing = _Writing(source, plan, layout, target, paths, on_bytes, stays)
    written = writing.partitions(jobs)
    for broker_id, path in paths.items():
        _write_checkpoints(
            path, {each: made for each, made in written.items() if broker_id in layout.replicas[each]}
        )
        if layout.cluster_id is not None:
            DataDirectory(path).write_identity(broker_id, layout.cluster_id)
    if finish is not None:
        finish(written)
    for path in paths.values():
        DataDirectory(path).write_clean_marker()
        _sync(path)
    target.finish(paths.values())
    return written


class _Writing:
    """The partitions that are being written, and those that must still be forced to disk."""

    def __init__(
        self,
        source: PieceSource,
        plan: RestorePlan,
        layout: Layout,
        target: RestoreTarget,
        paths: Mapping[int, str],
        on_bytes: OnBytes,
        stays: Callable[[PlannedPartition], bool],
    ) -> None:
        self._stays = stays
        self._source = source
        self._plan = plan
        self._layout = layout
        self._target = target
        self._paths = paths
        self._on_bytes = on_bytes
        self._ends = {each.target: each.cut.restored_end for each in plan.partitions}
        self._names = {each.view.partition.topic: each.target.topic for each in plan.partitions}
        self._unsynced: dict[str, Any] = {}
        self._unsynced_bytes = 0

    def partitions(self, jobs: int) -> dict[TopicPartition, WrittenPartition]:
        """Write all partitions that are not done. The last ones are not on the disk yet."""
        written = {}
        due = []
        for planned in self._plan.partitions:
            done = self._target.done.get(str(planned.target))
            if done is None:
                due.append(planned)
            else:
                written[planned.target] = WrittenPartition(*done)
                self._on_bytes(planned.size_bytes)
        for planned, made in zip(due, side_by_side(jobs, self._write, due), strict=True):
            written[planned.target] = made
            self._note(planned.target, made)
        return written

    def _write(self, planned: PlannedPartition) -> WrittenPartition:
        first, *others = self._layout.replicas[planned.target]
        directory = self._target.new_directory(self._paths[first], str(planned.target))
        made = self._write_replica(directory, planned)
        for broker_id in others:
            _copy(directory, self._target.new_directory(self._paths[broker_id], str(planned.target)))
        return made

    def _write_replica(self, directory: str, planned: PlannedPartition) -> WrittenPartition:
        view, cut = planned.view, planned.cut
        if self._stays(planned):
            view = emptied(view, cut.end_offset)
        settings = self._layout.settings.get(view.partition.topic, IndexSettings())
        snapshot = None
        if view.snapshot is not None and view.snapshot.offset <= cut.end_offset:
            snapshot = self._source.read_stored(view.snapshot.stored)
        writer = PartitionWriter(directory, view, settings, snapshot)
        try:
            gaps = deque(sorted(cut.gaps.items()))
            for rows in read_batches(self._source, view.parts, cut.end_offset, checked=True):
                while gaps and rows.table.last_offset[rows.first] >= gaps[0][0].end_offset:
                    for marker in gaps.popleft()[1]:
                        writer.append_marker(marker)
                writer.copy(rows)
                self._on_bytes(len(rows.span()))
            for marker in cut.added:
                writer.append_marker(marker)
            for batch in self._corrections(planned, writer):
                records = [
                    RecordData(number, self._plan.moment_ms, *each) for number, each in enumerate(batch)
                ]
                writer.append(build_batch(records), len(records))
            return writer.finish()
        finally:
            writer.close()

    def _corrections(self, planned: PlannedPartition, writer: PartitionWriter) -> list[list[KeyValue]]:
        """The records that must follow in a partition of a coordinator's topic, in batches."""
        topic = planned.view.partition.topic
        if topic == TRANSACTION_TOPIC:
            states = transaction_states(writer.batches())
            ids = (each.producer.producer_id for each in states.values())
            writer.largest_producer_id = max(ids, default=-1)
            found = transaction_corrections(states, self._plan.moment_ms)
        elif topic == CONSUMER_OFFSETS:
            groups = committed_offsets(str(planned.target), writer.batches())
            found = [
                record
                for group_id, offsets in sorted(groups.items())
                for record in offset_corrections(group_id, offsets, self._ends, self._names)
            ]
        else:
            return []
        return [found[start : start + _RECORDS_AT_ONCE] for start in range(0, len(found), _RECORDS_AT_ONCE)]

    def _note(self, partition: TopicPartition, made: WrittenPartition) -> None:
        self._unsynced[str(partition)] = astuple(made)
        self._unsynced_bytes += made.size_bytes
        if self._unsynced_bytes >= _SYNCED_BYTES or len(self._unsynced) >= _SYNCED_PARTITIONS:
            self._commit()

    def _commit(self) -> None:
        for path in self._paths.values():
            _sync(path)
        self._target.commit(self._unsynced)
        self._unsynced, self._unsynced_bytes = {}, 0


def emptied(view: PartitionView, end_offset: int) -> PartitionView:
    """The log without its batches, as it goes on at its end."""
    return replace(view, parts=(), log_start_offset=end_offset, snapshot=None, empty_segments=())


def _copy(directory: str, replica: str) -> None:
    try:
        for name in sorted(os.listdir(directory)):
            shutil.copyfile(os.path.join(directory, name), os.path.join(replica, name))
    except OSError as error:
        raise storage_error("cannot be written", replica, error) from error


def _write_checkpoints(path: str, written: Written) -> None:
    directory = DataDirectory(path)
    ends = {partition: made.end_offset for partition, made in written.items()}
    directory.write_offsets(FileKind.RECOVERY_POINT_CHECKPOINT, ends)
    directory.write_offsets(FileKind.REPLICATION_CHECKPOINT, ends)
    # The name of the first segment says the rest.
    starts = {
        partition: made.log_start_offset
        for partition, made in written.items()
        if made.log_start_offset > made.segment_start
    }
    directory.write_offsets(FileKind.LOG_START_CHECKPOINT, starts)


def _sync(path: str) -> None:
    """Force all that was written below a directory to disk."""
    try:
        if can_sync_file_system():
            sync_file_system(path)
        else:
            os.sync()
    except OSError as error:
        raise storage_error("cannot be forced to disk", path, error) from error
