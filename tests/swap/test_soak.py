"""A mixed load with small segments, fast retention and compaction, and topics that are created and deleted.

Memory and open files stay constant, no record is lost, the stop is clean, and Kafka can open the log
directory. `KLOG_TEST_SOAK_S` sets the duration. The checks are the same for 15 seconds and for an hour.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peers.kafka import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.swap.clients import Admin, Record, Writer, Written, read
from tests.swap.klog_process import Config, KlogBroker
from tests.swap.world import CODECS
from tests.threads import join, started
from tests.waiting import eventually

SOAK_S = float(os.environ.get("KLOG_TEST_SOAK_S", "15"))
# During this time caches fill and modules are loaded.
WARM_UP_S = SOAK_S / 3
MAX_GROWTH_BYTES = 25_000_000

CONFIG: Config = {
    # Otherwise a producer that asks for a deleted topic would create it again.
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.retention.check.interval.ms": 200,
    "log.segment.delete.delay.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.flush.start.offset.checkpoint.interval.ms": 200,
    "replica.high.watermark.checkpoint.interval.ms": 200,
    "producer.id.expiration.ms": 5000,
    "producer.id.expiration.check.interval.ms": 500,
    "connections.max.idle.ms": 3000,
}
KEPT = {"retention.ms": "-1", "segment.bytes": "200000"}
SHORT_LIVED = {
    "retention.bytes": "100000",
    "segment.bytes": "20000",
    "file.delete.delay.ms": "100",
    "segment.ms": "500",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "200",
    "file.delete.delay.ms": "100",
}


class Soak:
    """Threads that run until the time is up. `run` raises the first exception of any of them."""

    def __init__(self, klog: KlogBroker) -> None:
        self.klog = klog
        self.bootstrap = klog.bootstrap
        self.acknowledged: Written = {}
        self.created = 0
        self.samples: list[tuple[int, int]] = []
        self._ending = threading.Event()
        self._failures: list[BaseException] = []

    def run(self) -> None:
        workers = (self._keep, self._churn_short_lived, self._compact, self._create_and_delete, self._connect)
        threads = [started(self._guarded, worker) for worker in workers]
        started_s = time.monotonic()
        # A busy machine takes longer for the same number of topics.
        while not self._failures and (time.monotonic() - started_s < SOAK_S or self.created <= SOAK_S):
            time.sleep(0.5)
            if time.monotonic() - started_s > WARM_UP_S:
                self.samples.append((self.klog.rss_bytes(), self.klog.open_files()))
        self._ending.set()
        join(threads)
        if self._failures:
            raise self._failures[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # told by `run`
            self._failures.append(failure)

    def _keep(self) -> None:
        """Writes records that must all be there at the end. The codec changes, and with it the producer."""
        number = 0
        while not self._ending.is_set():
            codec = CODECS[number % len(CODECS)]
            writer = Writer(self.bootstrap, self.acknowledged, compression_type=codec)
            for _ in range(50):
                writer.write("kept", b"%d/" % number * 20, headers=[("n", b"%d" % number)])
                number += 1
            writer.finish()

    def _churn_short_lived(self) -> None:
        writer = Writer(self.bootstrap, {}, compression_type="lz4", batch_num_messages=20)
        while not self._ending.is_set():
            for _ in range(50):
                writer.write("short-lived", os.urandom(300))
            time.sleep(0.05)
        writer.finish()

    def _compact(self) -> None:
        writer = Writer(self.bootstrap, self.acknowledged, compression_type="zstd", batch_num_messages=20)
        number = 0
        while not self._ending.is_set():
            for _ in range(50):
                value = None if number % 7 == 0 else b"%d/" % number * 30
                writer.write("compacted", value, b"key-%d" % (number % 101))
                number += 1
            time.sleep(0.05)
        writer.finish()

    def _create_and_delete(self) -> None:
        admin = Admin(self.bootstrap)
        while not self._ending.is_set():
            names = [f"passing-{self.created + number}" for number in range(5)]
            admin.create({name: (2, {"segment.index.bytes": "4096"}) for name in names})
            written: Written = {}
            writer = Writer(self.bootstrap, written)
            for name in names:
                writer.write(name, b"hello")
            writer.finish()
            assert read(self.bootstrap, written) == written
            admin.delete(names)
            self.created += len(names)

    def _connect(self) -> None:
        """Opens and closes consumers and admin clients."""
        while not self._ending.is_set():
            Admin(self.bootstrap).own_configs("kept")
            read(self.bootstrap, [("short-lived", 0)])
            time.sleep(0.1)


def quarters(values: list[int]) -> tuple[float, float]:
    """The mean of the first quarter and that of the last."""
    size = max(len(values) // 4, 1)
    return sum(values[:size]) / size, sum(values[-size:]) / size


def segments_of(klog: KlogBroker, partition: str) -> int:
    return len(list((klog.log_directories()[0] / partition).glob("*.log")))


@pytest.mark.slow
@pytest.mark.kafka
def test_under_mixed_load_memory_stays_constant_and_nothing_is_lost(
    tmp_path: Path, kafka3: KafkaPeer
) -> None:
    with KlogBroker(tmp_path, CONFIG) as klog:
        klog.start()
        admin = Admin(klog.bootstrap)
        admin.create({"kept": (2, KEPT), "short-lived": (1, SHORT_LIVED), "compacted": (1, COMPACTED)})
        soak = Soak(klog)
        soak.run()
        memory, files = zip(*soak.samples, strict=True)
        before_bytes, after_bytes = quarters(list(memory))
        assert after_bytes - before_bytes < MAX_GROWTH_BYTES, memory
        before_files, after_files = quarters(list(files))
        assert after_files - before_files < 40, files

        # Retention and compaction keep up with the load, and all other records are there.
        eventually(lambda: segments_of(klog, "short-lived-0") <= 8)
        eventually(lambda: not list((tmp_path / "logs").glob("passing-*")))
        eventually(lambda: is_compacted(klog, soak.acknowledged))
        found = read(klog.bootstrap, soak.acknowledged)
        for partition in (("kept", 0), ("kept", 1)):
            assert found[partition] == soak.acknowledged[partition]
        check_compacted(soak.acknowledged["compacted", 0], found["compacted", 0])
        assert klog.complaints == []
        klog.stop()
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    with LoadServer(kafka3, tmp_path / "load.log") as kafka:
        for directory in (tmp_path / "logs").glob("*-[0-9]"):
            assert kafka.load(directory, clean=True).refusal == ""


def is_compacted(klog: KlogBroker, written: Written) -> bool:
    """Whether compaction has removed most of the old records."""
    partition = ("compacted", 0)
    return len(read(klog.bootstrap, [partition])[partition]) < len(written[partition]) / 2


def check_compacted(written: dict[int, Record], found: dict[int, Record]) -> None:
    """Checks that the newest record of every key is there unchanged, and that every record was written."""
    newest = {record.key: offset for offset, record in written.items()}
    for offset in newest.values():
        if written[offset].value is not None:
            assert found[offset] == written[offset]
    assert found.items() <= written.items()
