"""Logs for the cleaner's tests: whole directories with all the files of what producers did."""

from __future__ import annotations

import os
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

from klog.config.topic import default_topic_config
from klog.formats import compression
from klog.formats.names import FileKind, TopicPartition, segment_file
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.storage.cleaner.cleaning import clean
from klog.storage.cleaner.closed_log import ClosedLog, open_closed_log
from klog.storage.cleaner.selection import DirtyLog, dirty_log
from klog.storage.cleaner.swap import remove, swap_in
from klog.storage.cleaner.task import CleanerSettings, CleanResult, CleanTask
from klog.storage.repair.index_rebuild import rebuild, tasks_of
from klog.storage.repair.index_reports import RebuildOptions
from klog.storage.repair.producer_rebuild import rebuild_snapshots
from klog.storage.repair.segment_scan import IndexSettings

NOW_MS = 1_800_000_000_000
BASE_MS = 1_700_000_000_000
PARTITION = TopicPartition("events", 0)
FOREVER_MS = 2**31 - 1
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1048576"}


@dataclass
class LogWriter:
    """Appends batches to segments of a partition directory; `finish` adds indexes and snapshots."""

    directory: Path
    next_offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    _base: int = 0

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.roll()

    def roll(self) -> None:
        """Start a new segment."""
        self._base = self.next_offset
        (self.directory / segment_file(FileKind.LOG, self._base)).touch()

    def append(self, batch: bytes | bytearray, count: int) -> None:
        with (self.directory / segment_file(FileKind.LOG, self._base)).open("ab") as file:
            file.write(batch)
        self.next_offset += count

    def data(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        *,
        codec: int = compression.NONE,
        producer: int | None = None,
        transactional: bool = False,
        headers: tuple[tuple[bytes, bytes | None], ...] = (),
        timestamp_ms: int = BASE_MS,
        log_append_time: bool = False,
    ) -> None:
        """A batch of (key, value); a producer id makes it idempotent."""
        rows = [
            RecordData(self.next_offset + number, timestamp_ms + 7 * number, key, value, headers)
            for number, (key, value) in enumerate(records)
        ]
        sequence = self.sequences.get(producer, 0) if producer is not None else -1
        fields = BatchFields(
            codec=codec,
            log_append_time_ms=timestamp_ms if log_append_time else None,
            leader_epoch=3,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else 0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        if producer is not None:
            self.sequences[producer] = sequence + len(records)
        self.append(build_batch(rows, fields), len(records))

    def marker(self, producer: int, *, commit: bool, timestamp_ms: int = BASE_MS) -> None:
        """The end transaction marker of a producer."""
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 5)
        fields = BatchFields(
            leader_epoch=3, producer_id=producer, producer_epoch=0, is_transactional=True, is_control=True
        )
        self.append(build_batch([RecordData(self.next_offset, timestamp_ms, key, value)], fields), 1)

    def finish(self) -> None:
        """Add the files that a broker keeps beside the segments."""
        index(self.directory)


def index(directory: Path, settings: IndexSettings = IndexSettings()) -> None:  # noqa: B008 (immutable)
    """Rebuild all indexes and producer snapshots of a directory."""
    options = RebuildOptions(
        now_ms=NOW_MS, settings=settings, force=True, snapshots=True, producer_expiration_ms=FOREVER_MS
    )
    for _ in rebuild(tasks_of(str(directory)), options):
        pass
    rebuild_snapshots(str(directory), options)


def random_log(directory: Path, seed: int, *, codecs: tuple[int, ...] = (0, 1, 2, 3, 4)) -> None:
    """A log of some segments in which everything happens for which the cleaner has a rule."""
    chance = random.Random(seed)
    log = LogWriter(directory, next_offset=chance.choice((0, 0, 17, 5_000_000_000)))
    keys = [b"k%d" % number for number in range(chance.choice((3, 10, 40)))]
    open_txns: set[int] = set()
    for number in range(chance.randrange(5, 60)):
        if chance.random() < 0.12:
            log.roll()
        producer = chance.choice((None, None, 1, 2, 7, 8, 9))
        transactional = producer is not None and producer >= 7
        if transactional and producer in open_txns and chance.random() < 0.4:
            log.marker(producer, commit=chance.random() < 0.5, timestamp_ms=BASE_MS + number)
            open_txns.discard(producer)
            continue
        if transactional:
            open_txns.add(producer)
        records = [_random_record(chance, keys) for _ in range(chance.choice((1, 1, 2, 5, 20, 60)))]
        log.data(
            records,
            codec=chance.choice(codecs),
            producer=producer,
            transactional=transactional,
            headers=chance.choice(((), (), ((b"h", b"v" * chance.randrange(200)), (b"", None)))),
            timestamp_ms=chance.choice((BASE_MS + 1000 * number, BASE_MS - 50 * number)),
            log_append_time=chance.random() < 0.2,
        )
        if chance.random() < 0.05:
            log.next_offset += chance.randrange(1, 50)
    for producer in sorted(open_txns):
        if chance.random() < 0.8:
            log.marker(producer, commit=chance.random() < 0.5)
    log.roll()
    if chance.random() < 0.5:
        log.data([(b"active", b"v")])
    log.finish()
    for number, path in enumerate(sorted(directory.glob("*.log"))):
        os.utime(path, (BASE_MS / 1000 + number, BASE_MS / 1000 + number))


def _random_record(chance: random.Random, keys: list[bytes]) -> tuple[bytes | None, bytes | None]:
    key = None if chance.random() < 0.03 else chance.choice(keys)
    value = None if chance.random() < 0.15 else b"v" * chance.choice((0, 3, 100, 700))
    return key, value


def closed(directory: Path, config: dict[str, str] | None = None, now_ms: int = NOW_MS) -> ClosedLog:
    """The directory as the cleaner sees it."""
    found = open_closed_log(
        str(directory),
        PARTITION,
        default_topic_config(COMPACT | (config or {})),
        log_start_offset=0,
        now_ms=now_ms,
        producer_expiration_ms=FOREVER_MS,
    )
    assert found is not None
    return found


def clean_directory(
    directory: Path,
    *,
    now_ms: int = NOW_MS,
    checkpoint: int | None = None,
    settings: CleanerSettings | None = None,
    config: dict[str, str] | None = None,
) -> tuple[DirtyLog, CleanResult | None]:
    """Clean a directory as a broker's cleaner would, if there is something to clean."""
    log = closed(directory, config, now_ms)
    dirty = dirty_log(log.view, checkpoint, now_ms)
    if not dirty.cleanable_bytes:
        return dirty, None
    task = CleanTask.of(dirty, now_ms, log.last_records, settings or SMALL)
    return dirty, clean(task, lambda group: remove(swap_in(str(directory), group)))


SMALL = CleanerSettings(dedupe_buffer_bytes=1 << 20)
