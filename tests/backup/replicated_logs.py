"""Replicas of partitions on several brokers' disks, as leaders and followers write them, and the truth about
them: a tree of batches. Each log that a replica ever had is a path from the root of that tree.

No sockets: batches go through `PartitionLog`. What followers and elections do is decided by the test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from klog.config.topic import default_topic_config
from klog.formats.names import FileKind, TopicPartition
from klog.storage.cleaner.cleaner_values import CleanerConfig
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.log.append_values import Origin
from klog.storage.log.loading import create_log
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.retention import apply_retention
from tests.export.logs import write_checkpoint, write_topic_id
from tests.storage.log.building import Clock, Later, bytes_of, settings

_FETCHED_BYTES = 700


@dataclass(frozen=True, eq=False)
class Entry:
    """A batch that a leader has appended after `parent`. `values` are its records: key and value by offset.

    `sequences` are the next ones of producers, and `open_ones` the producers of open transactions after it.
    """

    epoch: int
    base: int
    end: int
    at_ms: int
    data: bytes
    parent: Entry | None
    values: Mapping[int, tuple[bytes, bytes | None]]
    sequences: Mapping[int, int]
    open_ones: frozenset[int]


def path_to(tip: Entry | None) -> Iterator[Entry]:
    """The log that ends with a batch, from its end."""
    while tip is not None:
        yield tip
        tip = tip.parent


def fork_of(one: Entry | None, other: Entry | None) -> Entry | None:
    """The last batch that two logs have in common."""
    ours = set(path_to(one))
    return next((each for each in path_to(other) if each in ours), None)


def last_before(tip: Entry | None, end: int) -> Entry | None:
    """The last batch of a log that ends at or before an offset."""
    return next((each for each in path_to(tip) if each.end <= end), None)


def end_of(tip: Entry | None) -> int:
    return 0 if tip is None else tip.end


@dataclass
class Replica:
    """A replica, and the last batch of all that its log has had, compacted or not."""

    log: PartitionLog
    tip: Entry | None = None


@dataclass
class Broker:
    """A broker's disks, and what it has written into its checkpoints."""

    number: int
    disks: list[Path]
    segment_bytes: int
    is_running: bool = True
    replicas: dict[TopicPartition, Replica] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.disks[0].parent

    def begin(self) -> None:
        """Empty disks."""
        for disk in self.disks:
            disk.mkdir(parents=True)
            (disk / "meta.properties").write_text(f"version=0\nbroker.id={self.number}\ncluster.id=abc\n")

    def checkpoint(self) -> None:
        for disk in self.disks:
            logs = {
                f"{each.topic}_{each.partition}": found.log
                for each, found in self.replicas.items()
                if Path(found.log.directory).parent == disk
            }
            marks = {name: log.high_watermark for name, log in logs.items()}
            write_checkpoint(disk, FileKind.REPLICATION_CHECKPOINT, **marks)
            starts = {name: log.log_start_offset for name, log in logs.items()}
            write_checkpoint(disk, FileKind.LOG_START_CHECKPOINT, **starts)
        self.marks = {each: found.log.high_watermark for each, found in self.replicas.items()}

    marks: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Topic:
    """A partition since its topic was created. `committed` is the last batch that was below the high
    watermark and was not lost since by an unclean election. `begun` are the last batches of leaders when
    their epochs began.
    """

    partition: TopicPartition
    topic_id: str
    config: dict[str, str]
    replicas: set[int]
    leader: int | None = None
    epoch: int = 0
    in_sync: set[int] = field(default_factory=set)
    committed: Entry | None = None
    entries: dict[tuple[int, int], Entry] = field(default_factory=dict)
    begun: dict[int, Entry | None] = field(default_factory=dict)


class Cluster:
    """Brokers whose replicas are written step by step."""

    def __init__(self, root: Path, clock: Clock, segment_bytes: Sequence[int]) -> None:
        self.clock = clock
        self._root = root
        self.brokers = {
            number: Broker(number, [root / f"broker-{number}" / f"disk-{each}" for each in (1, 2)], size)
            for number, size in enumerate(segment_bytes, 1)
        }
        for each in self.brokers.values():
            each.begin()
        self.topics: dict[TopicPartition, Topic] = {}

    def log(self, topic: Topic, number: int) -> PartitionLog:
        return self.brokers[number].replicas[topic.partition].log

    def running(self, numbers: set[int]) -> list[int]:
        return sorted(each for each in numbers if self.brokers[each].is_running)

    # -- topics and replicas ---------------------------------------------------------------------------------

    def create(
        self, partition: TopicPartition, topic_id: str, config: dict[str, str], replicas: set[int]
    ) -> None:
        topic = Topic(partition, topic_id, config, set())
        self.topics[partition] = topic
        for number in sorted(replicas):
            self.add_replica(topic, number, 0)
        topic.in_sync = set(replicas)
        self.lead(topic, self.running(replicas)[0])

    def delete(self, partition: TopicPartition) -> None:
        topic = self.topics.pop(partition)
        for number in list(topic.replicas):
            self.remove_replica(topic, number)

    def add_replica(self, topic: Topic, number: int, disk: int) -> None:
        """An empty replica."""
        broker = self.brokers[number]
        directory = broker.disks[disk] / str(topic.partition)
        directory.mkdir()
        config = default_topic_config({**topic.config, "segment.bytes": str(broker.segment_bytes)})
        state = create_log(str(directory), config, settings(self._root))
        log = PartitionLog(
            topic.partition, str(directory), config, state, clock_ms=self.clock, background=Later()
        )
        write_topic_id(directory, topic.topic_id)
        broker.replicas[topic.partition] = Replica(log)
        topic.replicas.add(number)
        broker.checkpoint()

    def remove_replica(self, topic: Topic, number: int) -> None:
        log = self.brokers[number].replicas.pop(topic.partition).log
        log.close()
        shutil.rmtree(log.directory)
        topic.replicas.discard(number)
        topic.in_sync.discard(number)
        self.brokers[number].checkpoint()

    def move(self, topic: Topic, number: int) -> None:
        """Between the disks of a broker."""
        log = self.log(topic, number)
        old = Path(log.directory)
        [other] = [disk for disk in self.brokers[number].disks if disk != old.parent]
        log.rename_directory(str(other / old.name))
        self.brokers[number].checkpoint()

    def wipe(self, number: int) -> None:
        """The disks of a broker that is down are replaced by empty ones."""
        broker = self.brokers[number]
        topics = [self.topics[each] for each in broker.replicas]
        for each in broker.replicas.values():
            each.log.close()
        shutil.rmtree(broker.path)
        broker.replicas.clear()
        broker.begin()
        for topic in topics:
            topic.in_sync.discard(number)
            self.add_replica(topic, number, 0)

    # -- leaders and followers -------------------------------------------------------------------------------

    def lead(self, topic: Topic, number: int, by: int = 1) -> None:
        """A broker becomes the leader. If it is not in sync, that is an unclean election."""
        replica = self.brokers[number].replicas[topic.partition]
        topic.epoch += by
        topic.leader = number
        topic.begun[topic.epoch] = replica.tip
        if number not in topic.in_sync:
            topic.in_sync = {number}
            topic.committed = fork_of(topic.committed, replica.tip)
        replica.log.assign_epoch(topic.epoch, replica.log.log_end_offset)
        self._commit(topic)

    def stop(self, number: int) -> None:
        """A broker ends; others lead what it has led, if they are in sync."""
        self.brokers[number].checkpoint()
        self.brokers[number].is_running = False
        for topic in self.topics.values():
            if topic.leader == number:
                others = self.running(topic.in_sync - {number})
                topic.leader = None
                if others:
                    topic.in_sync.discard(number)
                    self.lead(topic, others[0])
            elif len(topic.in_sync) > 1:
                topic.in_sync.discard(number)
                self._commit(topic)

    def start(self, number: int) -> None:
        self.brokers[number].is_running = True
        for topic in self.topics.values():
            if topic.leader is None and number in topic.in_sync:
                self.lead(topic, number)

    def append(
        self,
        topic: Topic,
        batch: bytearray,
        values: Sequence[tuple[bytes, bytes | None]],
        *,
        sequences: Mapping[int, int] | None = None,
        opened: int | None = None,
        closed: int | None = None,
    ) -> None:
        assert topic.leader is not None
        replica = self.brokers[topic.leader].replicas[topic.partition]
        log, before = replica.log, replica.tip
        origin = Origin.CLIENT if closed is None else Origin.COORDINATOR
        with log.lock:
            info = log.append_as_leader(memoryview(batch), topic.epoch, self.clock.now_ms, origin)
        open_ones = frozenset() if before is None else before.open_ones
        entry = Entry(
            topic.epoch,
            info.first_offset,
            info.last_offset + 1,
            self.clock.now_ms,
            bytes(batch),
            before,
            {info.first_offset + number: each for number, each in enumerate(values)},
            {**({} if before is None else before.sequences), **(sequences or {})},
            (open_ones | ({opened} - {None})) - {closed},
        )
        topic.entries[entry.epoch, entry.end] = replica.tip = entry
        self._commit(topic)

    def fetch(self, topic: Topic, number: int) -> bool:
        """A follower truncates what its leader does not have, and takes what follows. Is it behind then?"""
        assert topic.leader is not None
        ahead = self.brokers[topic.leader].replicas[topic.partition]
        behind = self.brokers[number].replicas[topic.partition]
        log = behind.log
        fork = fork_of(ahead.tip, behind.tip)
        if end_of(fork) < log.log_end_offset and end_of(behind.tip) > end_of(fork):
            log.truncate_to(end_of(fork))
            behind.tip = fork
            self._checkpoint_if_shorter(topic, number)
        if log.log_end_offset < ahead.log.log_start_offset:
            start = ahead.log.log_start_offset
            within = [each.base for each in path_to(ahead.tip) if each.base < start < each.end]
            log.restart_at(within[0] if within else start, start)
            behind.tip = last_before(ahead.tip, log.log_end_offset)
            self._checkpoint_if_shorter(topic, number)
        if log.log_end_offset < ahead.log.log_end_offset:
            first = max(log.log_end_offset, ahead.log.log_start_offset)
            read = ahead.log.read(first, _FETCHED_BYTES, ahead.log.log_end_offset, at_least_one=True)
            log.append_as_follower(memoryview(bytearray(bytes_of(read))), topic.epoch, self.clock.now_ms)
            behind.tip = last_before(ahead.tip, log.log_end_offset)
        log.set_high_watermark(max(log.high_watermark, min(ahead.log.high_watermark, log.log_end_offset)))
        log.advance_log_start(min(ahead.log.log_start_offset, log.high_watermark))
        is_in_sync = log.log_end_offset >= ahead.log.high_watermark
        if is_in_sync and log.log_end_offset == ahead.log.log_end_offset:
            topic.in_sync.add(number)
        self._commit(topic)
        return log.log_end_offset < ahead.log.log_end_offset

    def catch_up(self, topic: Topic, number: int) -> None:
        while self.fetch(topic, number):
            pass

    def shrink(self, topic: Topic, number: int) -> None:
        """A follower is no longer in sync."""
        topic.in_sync.discard(number)
        self._commit(topic)

    def _commit(self, topic: Topic) -> None:
        if topic.leader is None:
            return
        leader = self.brokers[topic.leader].replicas[topic.partition]
        end = min(self.log(topic, each).log_end_offset for each in topic.in_sync)
        leader.log.set_high_watermark(max(leader.log.high_watermark, end))
        committed = last_before(leader.tip, leader.log.high_watermark)
        if end_of(committed) > end_of(topic.committed):
            topic.committed = committed

    def _checkpoint_if_shorter(self, topic: Topic, number: int) -> None:
        """A high watermark above the end would mean a loss."""
        broker = self.brokers[number]
        if broker.marks.get(topic.partition, 0) > self.log(topic, number).log_end_offset:
            broker.checkpoint()

    # -- what removes records --------------------------------------------------------------------------------

    def roll(self, topic: Topic, number: int) -> None:
        log = self.log(topic, number)
        if log.segments.active.size:
            log.roll()

    def compact(self, topic: Topic, number: int) -> None:
        self.roll(topic, number)
        log, background = self.log(topic, number), Later()
        cleaner = LogCleaner(
            lambda: [OpenLog(log, background, self.clock)],
            [str(Path(log.directory).parent)],
            CleanerConfig(dedupe_buffer_bytes=1 << 20),
            clock_ms=self.clock,
            on_directory_failure=_fail,
            on_uncleanable=_fail,
        )
        cleaner.clean_dirtiest()
        for path in background.deletions:
            os.unlink(path)

    def retain(self, topic: Topic, number: int, size_bytes: int) -> None:
        log = self.log(topic, number)
        keeping = log.config
        log.reconfigure(replace(keeping, retention_bytes=size_bytes))
        apply_retention(log, self.clock.now_ms)
        log.reconfigure(keeping)
        self.brokers[number].checkpoint()

    def delete_records(self, topic: Topic, offset: int) -> None:
        assert topic.leader is not None
        self.log(topic, topic.leader).advance_log_start(offset)
        self.brokers[topic.leader].checkpoint()


def _fail(*what: object) -> None:
    raise AssertionError(what)
