"""Backs up a klog broker over the wire, beside clients that fetch the same records and discard them.

    python -m benchmarks.backup_wire --mebibytes 512 --rounds 3

All sides are processes on one machine with the broker, in turns; the figures are medians of whole processes.
The last part is what a small request of a producer takes (p99) alone, and while backups run again and again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer

import klog.testing
from klog.testing.process import BrokerProcess

TOPIC: Final = "records"
PARTITIONS: Final = 4
_PROBES: Final = 1_000
_PAUSE_S: Final = 0.003

# Fetches every partition once with the client core and discards the batches.
_RAW_FETCH: Final = """
import sys
from klog.admin import connect
from klog.admin.settings import settings_of
from klog.backup.wire.clients import Clients
from klog.backup.wire.reader import PartitionReader
from klog.formats.names import TopicPartition

settings = settings_of({}, bootstrap=sys.argv[1])
clients = Clients(lambda: connect.cluster(settings))
clients.topics = [sys.argv[2]]
client = clients.get()
for number in range(int(sys.argv[3])):
    reader = PartitionReader(client, TopicPartition(sys.argv[2], number), None)
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


class Measured(NamedTuple):
    """One process: seconds, seconds of CPU, and its peak memory in MiB."""

    seconds: float
    cpu_s: float
    memory_mib: float


def measured(command: list[str]) -> Measured:
    """Runs a command to its end."""
    begin_s = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:4]} failed")
    return Measured(time.monotonic() - begin_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


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


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, klog.testing.broker() as broker:
        fill(broker, options.mebibytes)
        place = Path(scratch, "repository")
        klog_command = [sys.executable, "-m", "klog", "backup", "run", "--to", str(place), "--quiet"]
        wire = [*klog_command, "-b", broker.bootstrap_servers, "--topic", TOPIC]
        client = [broker.bootstrap_servers, TOPIC, str(PARTITIONS)]
        sides = {
            "klog backup run, zstd": wire,
            "klog backup run, none": [*wire, "--compression", "none"],
            "klog backup run, none, --jobs 1": [*wire, "--compression", "none", "--jobs", "1"],
            "raw Fetch, discards": [sys.executable, "-c", _RAW_FETCH, *client],
            "librdkafka, discards": [sys.executable, "-c", _LIBRDKAFKA, *client],
            "klog backup run of the log directory, none": [
                *klog_command,
                "--compression",
                "none",
                str(broker.log_dirs[0]),
            ],
        }

        def backed_up(command: list[str]) -> Measured:
            shutil.rmtree(place, ignore_errors=True)
            return measured(command)

        found: dict[str, list[Measured]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, command in sides.items():
                found[name].append(backed_up(command))
        for name, runs in found.items():
            middle = [statistics.median(column) for column in zip(*runs, strict=True)]
            speed = options.mebibytes / middle[0]
            print(
                f"{name:45} {middle[0]:6.2f} s {speed:7.0f} MiB/s {middle[1]:6.2f} s CPU {middle[2]:5.0f} MiB"
            )
        alone = p99_ms(broker)
        print(f"p99 of a producer, alone: {alone:.2f} ms")
        for name in ("klog backup run, zstd", "klog backup run of the log directory, none"):
            with again_and_again(lambda command=sides[name]: backed_up(command)):  # type: ignore[misc]
                print(f"p99 of a producer, beside {name}: {p99_ms(broker):.2f} ms")


if __name__ == "__main__":
    main()
