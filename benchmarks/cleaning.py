"""Compares the wall time of klog's cleaner, in its worker process, with Kafka's cleaner in a warm JVM."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path

from benchmarks.contestants import KAFKA
from benchmarks.measure import MIB, BenchmarkError
from benchmarks.rows import Rows
from klog.config.topic import default_topic_config
from klog.formats.names import TopicPartition
from klog.storage.cleaner.closed_log import open_closed_log
from klog.storage.cleaner.selection import dirty_log
from klog.storage.cleaner.swap import remove, swap_in
from klog.storage.cleaner.task import DEFAULT_DEDUPE_BUFFER_BYTES, CleanerSettings, CleanTask
from klog.storage.cleaner.worker import clean_in_worker
from tests.peers import CleanServer

NOW_MS = 1_800_000_000_000
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(256 * MIB)}
WARM_UP_ROUNDS = 2


def compare(source: Path, work: Path, rounds: int, wanted: float, codec: str, rows: Rows) -> str:
    """Cleans copies of `source` in turns. Both must clean up to the same offset."""
    ours, peers = [], []
    with CleanServer(KAFKA, work / "cleaner.log") as server:
        for number in range(WARM_UP_ROUNDS + rounds):
            outcome = server.clean(
                _copy(source, work / "kafka"),
                now_ms=NOW_MS,
                dedupe_buffer_bytes=DEFAULT_DEDUPE_BUFFER_BYTES,
                config=CONFIG,
            )
            copy = _copy(source, work / "klog")
            started = time.perf_counter()
            end_offset, records = _clean(copy)
            if number >= WARM_UP_ROUNDS:
                ours.append(time.perf_counter() - started)
                peers.append(outcome.clean_ns / 1e9)
            if outcome.refusal or end_offset != outcome.end_offset:
                raise BenchmarkError(f"cleaned up to {end_offset}, Kafka up to {outcome}")
    klog_s, kafka_s = statistics.median(ours), statistics.median(peers)
    rows.add(f"cleaning, {codec}, s", klog_s, kafka_s)
    verdict = "met" if kafka_s / klog_s >= wanted else "MISSED"
    return (
        f"klog {klog_s:.2f} s, Kafka's cleaner {kafka_s:.2f} s: {kafka_s / klog_s:.1f} times as fast "
        f"(aim: {wanted:g}, {verdict}); {records} records kept"
    )


def _clean(directory: Path) -> tuple[int, int]:
    config = default_topic_config(CONFIG)
    log = open_closed_log(
        str(directory), TopicPartition("bench", 0), config, log_start_offset=0, now_ms=NOW_MS
    )
    if log is None:
        raise BenchmarkError(f"{directory} holds no segment")
    task = CleanTask.of(dirty_log(log.view, None, NOW_MS), NOW_MS, log.last_records, CleanerSettings())
    result = clean_in_worker(task, lambda group: remove(swap_in(str(directory), group)))
    return result.end_offset, result.stats.records_written


def _copy(source: Path, target: Path) -> Path:
    """A copy of the partition. Log files are linked, because no cleaner writes to them."""
    partition = target / "bench-0"
    shutil.rmtree(target, ignore_errors=True)
    partition.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".log" and path.stat().st_size:
            os.link(path, partition / path.name)
        else:
            shutil.copy2(path, partition / path.name)
    return partition
