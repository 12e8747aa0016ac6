"""The `leader-epoch-checkpoint` of a converted log, if batches get a leader epoch that it does not have.

Messages of magic 0 and 1 have no leader epoch, so a checkpoint knows nothing of them. After a clean stop
Kafka does not look for epochs in batches. A leader of epoch 0 would then note that its epoch starts at the
log's end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from klog.convert.partition_plan import PartitionPlan
from klog.convert.tasks import NewSegment
from klog.formats.checkpoints import EpochCheckpoint, EpochEntry, build_epochs
from klog.formats.errors import FormatError
from klog.formats.names import FileKind, segment_file
from klog.kernel.columns import BatchTable
from klog.storage.files.checkpoint_files import read_leader_epochs
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, write_atomically
from klog.storage.repair.recovery_epochs import note_epochs

_MAGIC_AT: Final = 16
_OLD_EPOCH: Final = 0
"""What messages before the first epoch of the checkpoint get (`EpochOfOffset`)."""


def write_epochs(plan: PartitionPlan, segments: Sequence[NewSegment]) -> None:
    """Add the epoch of messages that had none to the checkpoint in the target. Raises `StorageError`."""
    if not segments or not _is_old(plan):
        return
    try:
        entries = read_leader_epochs(plan.directory)
    except FormatError:
        return  # a broker that cannot read it makes it anew from the batches
    first = EpochEntry(_OLD_EPOCH, segments[0].base_offset)
    if not entries:
        entries = _of_batches(plan, first)
    elif entries[0].start_offset <= first.start_offset:
        return
    elif entries[0].epoch <= _OLD_EPOCH:
        entries = (first, *entries[1:])
    else:
        entries = (first, *entries)
    path = os.path.join(plan.target, FileKind.LEADER_EPOCH_CHECKPOINT)
    write_atomically(path, build_epochs(EpochCheckpoint(entries)))


def _is_old(plan: PartitionPlan) -> bool:
    """Whether the log begins with messages of magic 0 or 1."""
    source = plan.tasks[0].sources[0]
    with open_for_reading(_log(plan, source.base_offset)) as file:
        file.seek(source.start_bytes + _MAGIC_AT)
        return file.read(1) < b"\2"


def _of_batches(plan: PartitionPlan, first: EpochEntry) -> tuple[EpochEntry, ...]:
    """The epochs of a log that has no checkpoint."""
    found = [first]
    table = BatchTable()
    for base in sorted((*plan.replaces, *plan.kept)):
        with open_for_reading(_log(plan, base)) as file:
            for _ in chunks(file, table):
                note_epochs(table, len(table), found)
    return tuple(found)


def _log(plan: PartitionPlan, base_offset: int) -> str:
    return os.path.join(plan.directory, segment_file(FileKind.LOG, base_offset))
