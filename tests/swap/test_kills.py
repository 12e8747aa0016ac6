"""The broker is killed with SIGKILL at random moments under load.

After the next start every acknowledged record is there, once, at its offset. Kafka can open the log
directory.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.peers.kafka import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.swap.clients import Admin, Record, Writer, Written, read
from tests.swap.klog_process import Config, KlogBroker
from tests.swap.world import CODECS
from tests.threads import join, started
from tests.waiting import eventually

ROUNDS = int(os.environ.get("KLOG_TEST_KILLS", "4"))
TOPICS = ("small", "large", "compacted")
CONFIG: Config = {
    "num.partitions": 2,
    "log.segment.bytes": 40_000,
    "log.index.interval.bytes": 512,
    "log.roll.jitter.ms": 0,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.initial.task.delay.ms": 10,
    "log.flush.scheduler.interval.ms": 20,
    "log.flush.interval.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 50,
    "log.flush.start.offset.checkpoint.interval.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 30,
}


class Load:
    """Producers of all codecs that write until `end` is called. Every record has a unique value."""

    def __init__(self, bootstrap: str, acknowledged: Written, round_number: int) -> None:
        self._ending = threading.Event()
        self._bootstrap = bootstrap
        self._acknowledged = acknowledged
        self._round = round_number
        self._threads = [
            started(self._write, codec)
            for codec in (CODECS[round_number % 5], CODECS[(round_number + 2) % 5])
        ]

    def _write(self, codec: str) -> None:
        # Idempotent: a record that is sent again after a lost answer must not be there twice.
        writer = Writer(
            self._bootstrap, self._acknowledged, compression_type=codec, batch_num_messages=50, acks="all"
        )
        number = 0
        while not self._ending.is_set():
            topic = TOPICS[number % len(TOPICS)]
            value = f"{self._round}/{codec}/{number}/".encode() * (200 if topic == "large" else 3)
            writer.write(topic, value, b"%d" % (number % 30) if topic == "compacted" else None)
            number += 1
            if number % 20 == 0:
                time.sleep(0.002)
        writer.abandon()

    def end(self) -> None:
        self._ending.set()
        join(self._threads)


def count(acknowledged: Written) -> int:
    return sum(map(len, list(acknowledged.values())))


def check(found: Written, acknowledged: Written) -> None:
    """Checks that all acknowledged records are at their offsets, once. Compaction may drop old ones."""
    for partition, offsets in acknowledged.items():
        if partition[0] == "compacted":
            check_compacted(found[partition], offsets)
        else:
            assert offsets.items() <= found[partition].items(), partition
            assert list(found[partition]) == list(range(len(found[partition]))), partition
        values = [record.value for record in found[partition].values()]
        assert len(values) == len(set(values)), f"{partition}: a record is there twice"


def check_compacted(found: dict[int, Record], offsets: dict[int, Record]) -> None:
    newest = {record.key: offset for offset, record in found.items()}
    for offset, record in offsets.items():
        assert found.get(offset, record) == record
        assert offset in found or newest[record.key] > offset


@pytest.mark.slow
@pytest.mark.kafka
def test_all_that_was_acknowledged_survives_kill_9_at_any_moment_under_load(
    tmp_path: Path, kafka3: KafkaPeer
) -> None:
    chance = random.Random(4)
    acknowledged: Written = {}
    with KlogBroker(tmp_path, CONFIG) as klog, LoadServer(kafka3, tmp_path / "load.log") as kafka:
        klog.start()
        compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        Admin(klog.bootstrap).create({"small": (2, {}), "large": (2, {}), "compacted": (1, compaction)})
        for number in range(ROUNDS):
            load = Load(klog.bootstrap, acknowledged, number)
            time.sleep(chance.uniform(0.1, 1.5))
            # On a busy machine the producers may not have started yet.
            eventually(lambda number=number: count(acknowledged) > 100 * (number + 1))
            klog.kill()
            load.end()
            opened_by_kafka(kafka, klog, tmp_path / "copy")
            klog.start()
            assert "Traceback" not in klog.log_text
            eventually(lambda: acknowledged.keys() <= Admin(klog.bootstrap).led())
            check(read(klog.bootstrap, acknowledged), acknowledged)
        klog.stop()
        for directory in (tmp_path / "logs").glob("*-[0-9]"):
            assert kafka.load(directory, clean=True).refusal == ""


def copied(directory: Path, copy: Path) -> bool:
    """Copies the directory. Returns False if a file vanished: a cleaner deletes its files after a kill."""
    try:
        shutil.copytree(directory, copy)
    except shutil.Error:
        shutil.rmtree(copy)
        return False
    return True


def opened_by_kafka(kafka: LoadServer, klog: KlogBroker, copy: Path) -> None:
    """Kafka recovers a copy of the killed broker's log directory."""
    eventually(lambda: copied(klog.log_directories()[0], copy))
    for directory in copy.glob("*-[0-9]"):
        result = kafka.load(directory)
        assert result.refusal == "", directory
    shutil.rmtree(copy)


@pytest.mark.slow
def test_kills_during_the_start_itself_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(5)
    acknowledged: Written = {}
    with KlogBroker(tmp_path, CONFIG) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"small": (2, {}), "large": (2, {}), "compacted": (1, {})})
        load = Load(klog.bootstrap, acknowledged, 0)
        time.sleep(1)
        eventually(lambda: count(acknowledged) > 100)
        klog.kill()
        load.end()
        for _ in range(ROUNDS):
            klog.spawn()
            time.sleep(chance.uniform(0, 0.8))
            klog.kill()
        klog.start()
        eventually(lambda: acknowledged.keys() <= Admin(klog.bootstrap).led())
        check(read(klog.bootstrap, acknowledged), acknowledged)
        klog.stop()


@pytest.mark.slow
def test_a_signal_during_recovery_is_obeyed_and_nothing_is_lost(tmp_path: Path) -> None:
    acknowledged: Written = {}
    with KlogBroker(tmp_path, {**CONFIG, "log.segment.bytes": 10_000_000}) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"small": (2, {}), "large": (2, {}), "compacted": (1, {})})
        load = Load(klog.bootstrap, acknowledged, 0)
        time.sleep(2)
        eventually(lambda: count(acknowledged) > 100)
        klog.kill()
        load.end()
        for delay_ms in (200, 300, 400):
            klog.spawn()
            time.sleep(delay_ms / 1000)
            klog.process.send_signal(signal.SIGTERM)
            assert klog.ended() in (0, -signal.SIGTERM)
            assert "Traceback" not in klog.log_text
        klog.start()
        eventually(lambda: acknowledged.keys() <= Admin(klog.bootstrap).led())
        check(read(klog.bootstrap, acknowledged), acknowledged)
        klog.stop()
