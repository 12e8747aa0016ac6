"""A broker's log in a process of its own, which a test kills: appends, rolls, checkpoints, deletes.

Each line on stdout says what is on disk for good: the log end offset that was flushed, and the log start.
"""

from __future__ import annotations

import random
import sys
import time

from klog.config.topic import TopicConfig, default_topic_config
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings, Progress
from klog.storage.log.scheduler import Scheduler

CONFIGS = {
    "segment.bytes": "2048",
    "segment.index.bytes": "480",
    "index.interval.bytes": "300",
    "file.delete.delay.ms": "1",
}
WHERE = TopicPartition("t", 0)
PRODUCER = 5


class Deaf:
    """Nobody listens."""

    def loaded(self, progress: Progress) -> None:
        """Nothing."""

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """Nothing."""

    def all_directories_failed(self) -> None:
        """Nothing."""


def now_ms() -> int:
    return int(time.time() * 1000)


def topic_config(topic: str) -> TopicConfig:
    return default_topic_config(CONFIGS)


def value_of(offset: int) -> bytes:
    """What the record at an offset holds."""
    return b"%d" % offset * 5


def open_manager(directory: str) -> LogManager:
    """The log directory opened and loaded, with its scheduler running."""
    scheduler = Scheduler()
    manager = LogManager(ManagerSettings((directory,)), topic_config, scheduler, Deaf(), clock_ms=now_ms)
    manager.open()
    manager.claim(1, "c")
    manager.load()
    scheduler.start()
    return manager


def main(directory: str, seed: int) -> None:
    chance = random.Random(seed)
    manager = open_manager(directory)
    log = manager.get_or_create(WHERE, None, is_new=True)
    known = log.producers.entries().get(PRODUCER)
    sequence = known.last_sequence + 1 if known else 0
    while True:
        first, count = log.log_end_offset, chance.randint(1, 6)
        records = [RecordData(first + n, now_ms(), b"k", value_of(first + n)) for n in range(count)]
        batch = memoryview(
            build_batch(
                [record._replace(offset=n) for n, record in enumerate(records)],
                BatchFields(
                    chance.randrange(5), producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
                ),
            )
        )
        with log.lock:
            log.append_as_leader(batch, leader_epoch=log.log_end_offset // 100, now_ms=now_ms())
        sequence += count
        log.set_high_watermark(log.log_end_offset)
        what = chance.random()
        if what < 0.3:
            log.flush()
            sys.stdout.write(f"{log.log_start_offset} {log.log_end_offset}\n")
            sys.stdout.flush()
        elif what < 0.4:
            manager.checkpoint()
        elif what < 0.45 and log.segments.active.size:
            log.roll()
        elif what < 0.5 and len(log.segments) > 5:
            log.advance_log_start(log.segments.bases[2] + 1)
            log.delete_oldest(2)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
