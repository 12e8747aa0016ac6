"""What a loss of power leaves of a log: what was not flushed may be missing, torn or stale.

That holds for the batches, and for what is derived from them: indexes, producer snapshots and the file of
leader epochs. What was flushed is whole.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Final

from klog.formats.constants import ENTRY_PREFIX_BYTES
from klog.formats.names import FileKind
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.segment import LogSegment

Damage = Callable[[], object]

OFFSET_BYTES: Final = 8
"""The base offset of a batch, which its size follows."""

_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_SNAPSHOT = f".{FileKind.PRODUCER_SNAPSHOT}"


def power_loss(log: PartitionLog, rng: random.Random) -> list[Damage]:
    """What happens to the files of a log; to be carried out when nobody has them open any more.

    Batches end somewhere between what was flushed and the log's end, also inside a batch.
    """
    with log.lock:
        point = log.recovery_point
        segment = log.segments[log.segments.floor(point)]
        flushed = segment.find(point)
        position = segment.size if flushed is None else flushed.position
        path = segment.path(FileKind.LOG)
        cut = rng.randint(position, segment.size)
        later = sum(each.base_offset > segment.base_offset for each in log.segments)
        is_cut = later > 1 or (later == 1 and cut < segment.size)
        if is_cut:
            cut = _inside_a_batch(path, position, cut)
        damage: list[Damage] = [lambda: os.truncate(path, cut)]
        for each in log.segments:
            if each.base_offset > segment.base_offset:
                damage.append(_emptied(each.path(FileKind.LOG)))
            if each.base_offset >= segment.base_offset:
                # Kafka recovers a segment with a damaged transaction index while it loads, and does not
                # compare its end with the next segment then.
                kinds = _INDEXES[:-1] if is_cut and each is segment else _INDEXES
                damage += _damaged_indexes(each, kinds, rng)
        damage += _damaged_snapshots(log, rng)
        if log.epochs.take_unsynced() is not None and rng.random() < 0.5:
            file = os.path.join(log.directory, FileKind.LEADER_EPOCH_CHECKPOINT)
            # Renamed before its bytes were on the disk.
            damage.append(_emptied(file))
        return damage


def _inside_a_batch(path: str, position: int, cut: int) -> int:
    """`cut`, or the byte after it if it is where a batch begins. `position` is where some batch begins.

    Recovery sees that a closed segment has lost its end if the end is inside a batch, and drops the segments
    after it. If the end is between two batches, Kafka's recovery sees nothing, and keeps a hole; so it does
    if this segment is whole and a closed one after it is empty, as cleaning may leave it.
    """
    with open(path, "rb") as file:
        while position < cut:
            file.seek(position + OFFSET_BYTES)
            position += ENTRY_PREFIX_BYTES + int.from_bytes(file.read(ENTRY_PREFIX_BYTES - OFFSET_BYTES))
    return cut + (position == cut)


def _emptied(path: str) -> Damage:
    return lambda: os.truncate(path, 0)


def _damaged_indexes(segment: LogSegment, kinds: Sequence[FileKind], rng: random.Random) -> list[Damage]:
    used = {
        FileKind.OFFSET_INDEX: segment.offset_index.entries * segment.offset_index.entry.size,
        FileKind.TIME_INDEX: segment.time_index.entries * segment.time_index.entry.size,
    }
    damage = []
    for kind in kinds:
        path = segment.path(kind)
        if os.path.exists(path) and rng.random() < 0.7:
            size_bytes = used.get(kind, os.path.getsize(path))
            kept = rng.randint(0, size_bytes)
            fate = rng.choice((_torn, _zeroed, _garbled))
            damage.append(fate(path, kept, size_bytes, rng.randrange(1, 256)))
    return damage


def _torn(path: str, kept: int, _size_bytes: int, _noise: int) -> Damage:
    return lambda: os.truncate(path, kept)


def _zeroed(path: str, kept: int, _size_bytes: int, _noise: int) -> Damage:
    def damage() -> None:
        size_bytes = os.path.getsize(path)
        os.truncate(path, kept)
        os.truncate(path, size_bytes)

    return damage


def _garbled(path: str, kept: int, size_bytes: int, noise: int) -> Damage:
    def damage() -> None:
        with open(path, "r+b") as file:
            file.seek(kept)
            file.write(bytes([noise]) * (size_bytes - kept))

    return damage


def _damaged_snapshots(log: PartitionLog, rng: random.Random) -> list[Damage]:
    damage: list[Damage] = []
    for name in sorted(os.listdir(log.directory)):
        if (
            name.endswith(_SNAPSHOT)
            and int(name.partition(".")[0]) > log.recovery_point
            and rng.random() < 0.7
        ):
            path = os.path.join(log.directory, name)
            if rng.random() < 0.3:
                damage.append(_removed(path))
            else:
                kept = rng.randint(0, os.path.getsize(path))
                damage.append(_torn(path, kept, 0, 0))
    return damage


def _removed(path: str) -> Damage:
    return lambda: os.unlink(path)
