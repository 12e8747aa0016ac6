"""Backs up a klog broker over the wire, beside clients that fetch the same records and discard them.

All sides are processes on one machine with the broker, in turns; the figures are medians of whole processes.
The last part is what a small request of a producer takes (p99) alone, and while backups run again and again.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

import klog.testing
from benchmarks.measure import MIB, Contestant, Medians, Run, add_wall, medians, run_once
from benchmarks.rows import Rows
from klog.testing.process import BrokerProcess

TOPIC: Final = "records"
PARTITIONS: Final = 4
_PROBES: Final = 1_000
_PAUSE_S: Final = 0.003
_RUN: Final = (sys.executable, "-m", "klog", "backup", "run", "--quiet", "--to")
OF_DISK: Final = "klog backup run of the log directory"

# Fetches every partition once with the client core and discards the batches.
_RAW_FETCH: Final = """
import sys
from functools import partial
from klog.admin import connect
from klog.admin.settings import settings_of
from klog.backup.wire.clients import Clients
from klog.backup.wire import reader as reading
from klog.formats.names import TopicPartition

reading.FETCH_BYTES = int(sys.argv[4]) << 20
settings = settings_of({}, bootstrap=sys.argv[1])
clients = Clients(partial(connect.cluster, settings))
clients.topics = [sys.argv[2]]
client = clients.get()
for number in range(int(sys.argv[3])):
    reader = reading.PartitionReader(client, TopicPartition(sys.argv[2], number), None)
    reader.begin()
    offset, end = reader.ends()
    while offset < end:
        offset = reader.fetch(offset).next_offset(offset)
clients.close()
"""

# Consumes every partition with librdkafka up to its end.
_LIBRDKAFKA: Final = """
import sys
from confluent_kafka import Consumer, KafkaError, TopicPartition

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "benchmark", "enable.partition.eof": True,
    "enable.auto.commit": False, "check.crcs": False, "fetch.message.max.bytes": 4 << 20})
left = int(sys.argv[3])
consumer.assign([TopicPartition(sys.argv[2], number, 0) for number in range(left)])
while left:
    for message in consumer.consume(10_000, 1.0):
        if message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF:
            left -= 1
consumer.close()
"""


def fill(broker: BrokerProcess, mebibytes: int) -> None:
    """Writes records that do not compress."""
    broker.create_topic(TOPIC, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "batch.size": 1 << 18, "linger.ms": 20}
    )
    value = os.urandom(1 << 16)
    for number in range(mebibytes * 1024):
        start = number * 61 % 60_000
        producer.produce(TOPIC, value[start : start + 1000], partition=number // 1024 % PARTITIONS)
        if number % 1024 == 0:
            producer.flush()
    producer.flush()


def p99_ms(broker: BrokerProcess) -> float:
    """The 99th percentile of what a small request of a producer takes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "acks": "1"})
    found = []
    for _ in range(_PROBES):
        begin_s = time.monotonic()
        producer.produce(TOPIC, b"probe", partition=0)
        producer.flush()
        found.append(1000 * (time.monotonic() - begin_s))
        time.sleep(_PAUSE_S)
    return statistics.quantiles(found, n=100)[98]


@contextmanager
def again_and_again(work: Callable[[], object]) -> Iterator[None]:
    """Works in another thread until the block ends."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def compare(work: Path, mebibytes: int, rounds: int, rows: Rows) -> str:
    """Backs up records over the wire, and reads them with clients that discard, in turns."""
    work.mkdir(parents=True, exist_ok=True)
    place = work / "repository"
    with klog.testing.broker() as broker:
        fill(broker, mebibytes)
        wire = (*_RUN, str(place), "-b", broker.bootstrap_servers, "--topic", TOPIC)
        client = (broker.bootstrap_servers, TOPIC, str(PARTITIONS))
        commands = {
            "klog backup run, zstd": wire,
            "klog backup run": (*wire, "--compression", "none"),
            "klog backup run, --jobs 1": (*wire, "--compression", "none", "--jobs", "1"),
            "raw Fetch of 2 MiB, discards": (sys.executable, "-c", _RAW_FETCH, *client, "2"),
            "raw Fetch of 4 MiB, discards": (sys.executable, "-c", _RAW_FETCH, *client, "4"),
            "librdkafka, discards": (sys.executable, "-c", _LIBRDKAFKA, *client),
            OF_DISK: (*_RUN, str(place), str(broker.log_dirs[0]), "--compression", "none"),
        }
        contestants = {name: Contestant(name, command) for name, command in commands.items()}

        def run(name: str) -> Run:
            shutil.rmtree(place, ignore_errors=True)
            return run_once(contestants[name])

        taken: dict[str, list[Run]] = {name: [] for name in contestants}
        for _ in range(rounds + 1):
            for name, runs in taken.items():
                runs.append(run(name))
        found = {name: medians(name, runs[1:]) for name, runs in taken.items()}  # the first round warms up
        lines = [_figures(each, mebibytes) for each in found.values()]
        ours = found["klog backup run"]
        for peer in list(contestants)[3:6]:
            add_wall(rows, f"beside {peer}", ours, found[peer])
            lines.append(f"  {ours.label}: {ours.ratio_to(found[peer]):.2f} times the speed of {peer}")
        alone_ms = p99_ms(broker)
        lines.append(f"  p99 of a producer, alone: {alone_ms:.2f} ms")
        for name in ("klog backup run, zstd", OF_DISK):
            with again_and_again(lambda name=name: run(name)):  # type: ignore[misc]
                lines.append(f"  p99 of a producer, beside {name}: {p99_ms(broker):.2f} ms")
    return "\n".join(lines)


def _figures(each: Medians, mebibytes: int) -> str:
    speed, peak_mib = mebibytes / each.wall_s, each.peak_rss_bytes / MIB
    size = f"{speed:6.0f} MiB/s, {each.cpu_s:6.2f} s of CPU, {peak_mib:4.0f} MiB"
    return f"  {each.label:34} {each.wall_s:6.2f} s, {size}"
