"""How far a log reached, by the files beside its segments: these prove a loss that the segments do not show.

Rules: a broker appends to a `.log` before it adds to an index. Checkpoints, leader epochs and producer
snapshots name offsets that the log had reached. When a broker truncates a log, it shortens these files too.
"""

from __future__ import annotations

from collections.abc import Iterator

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, FileState
from klog.replicas.files import list_directory
from klog.replicas.replica_files import Replica, file_name


def recorded_end(replica: Replica) -> tuple[int, str]:
    """The highest offset that the log had reached, and what says so; 0 if nothing says any."""
    return max(_recorded(replica), key=lambda one: one[0], default=(0, ""))


def _recorded(replica: Replica) -> Iterator[tuple[int, str]]:
    if replica.partial:
        return  # the segments that were not requested may hold the rest
    if replica.high_watermark is not None:
        end = replica.high_watermark
        yield end, f"the broker's checkpoint has a high watermark of {end}"
    if replica.recovery_point is not None:
        end = replica.recovery_point
        yield end, f"the broker's checkpoint says that it was flushed up to {end}"
    if replica.cleaned_to is not None:
        yield replica.cleaned_to, f"the checkpoint of the cleaner is at {replica.cleaned_to}"
    for entry in replica.epochs[-1:]:
        yield entry.start_offset, f"leader epoch {entry.epoch} begins at {entry.start_offset}"
    for end, _ in replica.snapshots[-1:]:
        yield end, f"a producer snapshot is of offset {end}"


def is_unchanged(replica: Replica) -> bool:
    """Whether the segments are those that were listed, and of the same sizes.

    If a broker has appended meanwhile, the other files may say more than the segments that were listed.
    """
    segments = (*replica.segments, *replica.swaps)
    last = max((segment.base_offset for segment in segments), default=-1)
    left = {segment.log: segment.size_bytes for segment in segments}
    try:
        entries = list_directory(replica.directory)
    except StorageError:
        return False
    for entry in entries:
        name = file_name(entry)
        if name is None or name.kind is not FileKind.LOG:
            continue
        if left.pop(entry.path, entry.size_bytes) != entry.size_bytes:
            return False
        if name.state is FileState.NORMAL and name.offset is not None and name.offset > last:
            return False
    return not left
