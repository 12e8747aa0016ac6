"""What a loss of power leaves of a log: what was not flushed may be missing, torn or stale.

That holds for the batches, and for what is derived from them: indexes, producer snapshots and the file of
leader epochs. What was flushed is whole.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from klog.formats.names import FileKind
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.segment import LogSegment

Damage = Callable[[], object]

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
        cut = rng.randint(position, segment.size)
        path = segment.path(FileKind.LOG)
        damage: list[Damage] = [lambda: os.truncate(path, cut)]
        for each in log.segments:
            if each.base_offset > segment.base_offset:
                damage.append(_emptied(each.path(FileKind.LOG)))
            if each.base_offset >= segment.base_offset:
                damage += _damaged_indexes(each, rng)
        damage += _damaged_snapshots(log, rng)
        if log.epochs.take_unsynced() is not None and rng.random() < 0.5:
            file = os.path.join(log.directory, FileKind.LEADER_EPOCH_CHECKPOINT)
            # Renamed before its bytes were on the disk.
            damage.append(_emptied(file))
        return damage


def _emptied(path: str) -> Damage:
    return lambda: os.truncate(path, 0)


def _damaged_indexes(segment: LogSegment, rng: random.Random) -> list[Damage]:
    used = {
        FileKind.OFFSET_INDEX: segment.offset_index.entries * segment.offset_index.entry.size,
        FileKind.TIME_INDEX: segment.time_index.entries * segment.time_index.entry.size,
    }
    damage = []
    for kind in _INDEXES:
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
