"""Logs and batches for the tests of the storage engine: real directories, a clock that stands still."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from klog.config.topic import TopicConfig, default_topic_config
from klog.formats import record_batch
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable
from klog.kernel.kernel import scan
from klog.storage.log.append_values import Origin
from klog.storage.log.loading import Loaded, LoadSettings, create_log, load_log
from klog.storage.log.partition_log import AppendInfo, PartitionLog
from klog.storage.log.reading import Read
from klog.storage.log.second_opinions import SecondOpinions
from klog.storage.log.time_lookup import TimedOffset

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)
SMALL_INDEXES = {"segment.index.bytes": "4096", "index.interval.bytes": "100"}


class Clock:
    """Time that moves when a test says so."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Later:
    """What a log leaves to others, done at once (flush) or kept (deletion)."""

    def __init__(self, *, flushes: bool = True) -> None:
        self.flushes = flushes
        self.deletions: list[str] = []
        self.failures: list[Exception] = []
        self.opinions = SecondOpinions()

    def flush(self, log: PartitionLog, up_to_offset: int) -> None:
        if self.flushes:
            log.flush(up_to_offset)

    def failed(self, log: PartitionLog, error: Exception) -> None:
        self.failures.append(error)

    def delete_later(self, log: PartitionLog, paths: Sequence[str], delay_ms: int) -> None:
        self.deletions.extend(paths)


def config(**overrides: str) -> TopicConfig:
    """Topic configs; `_` in a name stands for `.`."""
    return default_topic_config({name.replace("_", "."): value for name, value in overrides.items()})


def settings(root: Path, **values: Any) -> LoadSettings:
    return LoadSettings(NOW_MS, str(root / "quarantine"), **values)


def new_log(
    root: Path,
    overrides: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    background: Later | None = None,
    partition: TopicPartition = PARTITION,
) -> PartitionLog:
    """An empty log in `root/logs`."""
    directory = root / "logs" / str(partition)
    directory.mkdir(parents=True)
    topic = default_topic_config(dict(overrides or {}))
    state = create_log(str(directory), topic, settings(root))
    return _log(directory, topic, state, clock, background, partition)


def _log(
    directory: Path, topic: TopicConfig, state: Any, clock: Any, background: Any, partition: Any = PARTITION
) -> PartitionLog:
    return PartitionLog(
        partition,
        str(directory),
        topic,
        state,
        clock_ms=clock or Clock(),
        background=background or Later(),
    )


def reload(log: PartitionLog, root: Path, **values: Any) -> tuple[PartitionLog, Loaded]:
    """The log loaded again from its directory."""
    loaded = load_log(log.directory, log.config, settings(root, **values))
    return _log(Path(log.directory), log.config, loaded.state, None, None), loaded


def batch(
    values: int | Sequence[bytes | None] = 1,
    *,
    key: bytes | None = b"k",
    timestamp: int = NOW_MS,
    base_offset: int = 0,
    **fields: Any,
) -> memoryview:
    """A writable magic 2 batch; `values` is how many records, or what is in them."""
    contents = [b"v%d" % n for n in range(values)] if isinstance(values, int) else values
    records = [RecordData(base_offset + n, timestamp, key, value) for n, value in enumerate(contents)]
    return memoryview(build_batch(records, BatchFields(**fields)))


def idempotent(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, **fields: Any
) -> memoryview:
    """A batch of an idempotent producer."""
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)


def transactional(sequence: int, count: int = 1, **fields: Any) -> memoryview:
    """A batch inside a transaction."""
    return idempotent(sequence, count, is_transactional=True, **fields)


def marker(
    *, commit: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0, base_offset: int = 0
) -> memoryview:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, coordinator_epoch)
    fields = BatchFields(producer_id=producer, producer_epoch=epoch, is_transactional=True, is_control=True)
    return memoryview(build_batch([RecordData(base_offset, NOW_MS, key, value)], fields))


def resealed(data: memoryview, **changes: int) -> memoryview:
    """The batch with header fields changed (`last_offset_delta=3`) and its checksum made right again."""
    layout = {"attributes": (21, ">h"), "last_offset_delta": (23, ">i"), "max_timestamp": (35, ">q"),
              "base_sequence": (53, ">i"), "count": (57, ">i"), "base_offset": (0, ">q")}  # fmt: skip
    for name, value in changes.items():
        position, form = layout[name]
        struct.pack_into(form, data, position, value)
    return reseal(data)


def reseal(data: memoryview) -> memoryview:
    from klog.formats.checksums import crc32c

    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def append(
    log: PartitionLog, data: memoryview, *, epoch: int = 0, origin: Origin = Origin.CLIENT
) -> AppendInfo:
    """Append as leader, now."""
    with log.lock:
        return log.append_as_leader(data, epoch, NOW_MS, origin)


def fill(log: PartitionLog, appends: int, records: int = 1, **fields: Any) -> None:
    """Append that many batches, and let the high watermark follow."""
    for _ in range(appends):
        append(log, batch(records, **fields))
    log.set_high_watermark(log.log_end_offset)


def bytes_of(read: Read) -> bytes:
    """What a read would send."""
    return b"" if read.file is None else os.pread(read.file.fileno(), read.size, read.position)


def offsets_of(read: Read) -> list[tuple[int, int]]:
    """First and last offsets of the whole batches that a read would send."""
    table = BatchTable()
    scan(bytes_of(read), 0, True, table)
    return list(zip(table.base_offset, table.last_offset, strict=True))


def stored(log: PartitionLog) -> list[Any]:
    """Every batch on disk, by the definition, checksums checked."""
    found = []
    for segment in log.segments:
        data = os.pread(segment.file.fileno(), segment.size, 0)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            found.append(record_batch.parse(data[at : at + size]))
            at += size
    return found


def files(directory: str | Path) -> dict[str, bytes]:
    """Name and content of every file in a directory."""
    return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir()) if path.is_file()}


def latest(log: PartitionLog) -> TimedOffset:
    """The log end offset, as ListOffsets answers a follower that asks for the latest one."""
    return TimedOffset(-1, log.log_end_offset, log.epochs.latest)
