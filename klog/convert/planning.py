"""Plans the conversion of a partition directory: which segments, and in which independent tasks.

Rules: as in `klog clean`, the active segment and what lies above the high watermark stays, because other
replicas may not have it. So the end of a follower's log never lies inside a batch that was joined here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from klog.convert.batches import EpochOfOffset
from klog.convert.boundaries import SegmentPlace, division_in
from klog.convert.options import ConvertOptions
from klog.convert.partition_plan import PartitionPlan
from klog.convert.partition_state import PartitionState
from klog.convert.tasks import ConvertTask, Source
from klog.formats.checkpoints import EpochEntry
from klog.formats.errors import FormatError, StorageError
from klog.formats.names import FileKind, FileState, TopicPartition, segment_file
from klog.storage.files.checkpoint_files import offsets_if_any, read_leader_epochs
from klog.storage.files.kafka_files import partition_of
from klog.storage.files.partition_files import PartitionFiles, list_partition

METADATA_TOPIC: Final = "__cluster_metadata"
_NS_PER_MS: Final = 1_000_000


def plan_partition(
    directory: str,
    target: str,
    options: ConvertOptions,
    *,
    high_watermark: int | None,
    first_number: int = 0,
) -> PartitionPlan:
    """Plan a partition directory. The same files and options give the same plan.

    Tasks are numbered from `first_number` on. Nothing above `high_watermark` is converted (None: all is
    committed). Raises `KlogError` if files cannot be read, or something was interrupted there.
    """
    files = list_partition(directory)
    _require_finished(files, PartitionState(directory).exists)
    partition = partition_of(directory) or TopicPartition(os.path.basename(os.path.abspath(directory)), 0)
    bases, reason = _convertible(files, partition, options, high_watermark)
    sources = [_source(files, base) for base in bases]
    tasks: list[ConvertTask] = []
    if sources:
        epochs = _epochs(directory)
        for parts in _divided(files, sources, options, EpochOfOffset(epochs)):
            named = None if tasks else parts[0].base_offset
            number = first_number + len(tasks)
            tasks.append(
                ConvertTask(number, partition, directory, target, named, tuple(parts), options, epochs)
            )
    kept = tuple(base for base in files.segments if base not in set(bases))
    size = sum(_size(files, base) for base in files.segments)
    return PartitionPlan(partition, directory, target, tuple(tasks), tuple(bases), kept, size, reason)


def high_watermarks(log_directory: str) -> dict[TopicPartition, int] | None:
    """The high watermarks of a log directory; None if it has no such checkpoint (a copy of partitions)."""
    return offsets_if_any(os.path.join(log_directory, FileKind.REPLICATION_CHECKPOINT))


def _require_finished(files: PartitionFiles, converting: bool) -> None:
    """Refuse files of anything else that was interrupted. A conversion leaves `.cleaned` files."""
    unfinished = [
        name
        for name in files.transient
        if name.kind is not FileKind.METADATA_SNAPSHOT
        and not (converting and name.state is FileState.CLEANED)
    ]
    if unfinished:
        cure = "run the same conversion without --dry-run" if converting else "run `klog recover` first"
        raise StorageError(
            f"{unfinished[0]} is left from something that was interrupted", file=files.path, cure=cure
        )


def _convertible(
    files: PartitionFiles, partition: TopicPartition, options: ConvertOptions, high_watermark: int | None
) -> tuple[list[int], str | None]:
    """The base offsets of the segments to convert, without empty ones at both ends."""
    bases = list(files.segments)
    if partition.topic == METADATA_TOPIC:
        return [], "the log of the KRaft quorum is never converted"
    if not options.converts_active:
        ends = bases[1:]
        committed = [
            base
            for base, end in zip(bases, ends, strict=False)
            if high_watermark is None or end <= high_watermark
        ]
        if not committed:
            return [], "only the active segment" if not ends else f"above the high watermark {high_watermark}"
        bases = committed
    full = [at for at, base in enumerate(bases) if _size(files, base)]
    if not full:
        return [], "there are no batches"
    return bases[full[0] : full[-1] + 1], None


def _size(files: PartitionFiles, base: int) -> int:
    return files.sizes[segment_file(FileKind.LOG, base)]


def _source(files: PartitionFiles, base: int) -> Source:
    size = _size(files, base)
    modified_ms = os.stat(files.file(FileKind.LOG, base)).st_mtime_ns // _NS_PER_MS
    return Source(base, 0, size, size, modified_ms)


def _epochs(directory: str) -> tuple[EpochEntry, ...]:
    try:
        return read_leader_epochs(directory)
    except FormatError:
        return ()  # a broker that cannot read it makes it anew from the batches


def _divided(
    files: PartitionFiles, sources: Sequence[Source], options: ConvertOptions, epoch_of: EpochOfOffset
) -> Iterator[list[Source]]:
    """The sources of each task. A segment may belong to two: its first batches may be joined with those
    before them.
    """
    current: list[Source] = []
    group_bytes = 0
    due = False
    for at, source in enumerate(sources):
        limit = options.segment_bytes
        if limit is None or group_bytes + source.size_bytes > limit:
            due = True
        position: int | None = None
        if due and current:
            places = [_place(files, one) for one in (_last_full(sources[:at]), source)]
            position = division_in(places[0], places[1], options, epoch_of) if source.size_bytes else None
        if not current or position is None:
            due = due and bool(current)
            current.append(source)
            group_bytes += source.size_bytes
            continue
        if position:
            current.append(source._replace(end_bytes=position))
        yield current
        current = [source._replace(start_bytes=position)]
        group_bytes = source.size_bytes - position
        due = False
    if current:
        yield current


def _last_full(sources: Sequence[Source]) -> Source:
    return next(source for source in reversed(sources) if source.size_bytes)


def _place(files: PartitionFiles, source: Source) -> SegmentPlace:
    base = source.base_offset
    return SegmentPlace(
        files.file(FileKind.LOG, base), files.file(FileKind.OFFSET_INDEX, base), source.size_bytes, base
    )
