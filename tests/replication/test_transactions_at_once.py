"""Producers begin and end transactions in one partition at the same time, while consumers read it."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

from klog.kernel.markers import Marker, build_marker
from klog.replication.partition import Partition
from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import PartitionLog
from tests.server.handlers.parts import Broker, batch
from tests.storage.log.consuming import committed_records
from tests.threads import join, started

PRODUCERS = 4
TRANSACTIONS = 150


class Sender:
    """One producer and its coordinator. `committed` and `aborted` are the values of ended transactions."""

    def __init__(self, broker: Broker, partition: Partition, producer_id: int) -> None:
        self._clock = broker.clock
        self._partition = partition
        self._producer_id = producer_id
        self._chance = random.Random(producer_id)
        self._sequence = 0
        self.committed: list[bytes] = []

    def run(self) -> None:
        for number in range(TRANSACTIONS):
            values = [
                b"%d:%d:%d" % (self._producer_id, number, each) for each in range(self._chance.randint(1, 3))
            ]
            for value in values:
                self._send(value)
            aborted = self._chance.random() < 0.5
            if not aborted:
                self.committed += values
            self._end(aborted)

    def _send(self, value: bytes) -> None:
        now_ms, sequence = self._clock(), self._sequence
        guard = self._partition.begin_verification(self._producer_id, 0, sequence, now_ms)
        data = batch(
            value,
            now_ms=now_ms,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._partition.append(memoryview(data), -1, now_ms, guard=guard)
        self._sequence += 1

    def _end(self, aborted: bool) -> None:
        data = build_marker(self._producer_id, 0, Marker(aborted, 0, self._clock()))
        self._partition.append(memoryview(data), -1, self._clock(), Origin.COORDINATOR)


def test_the_last_stable_offset_never_goes_back_and_shows_only_what_is_decided(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {"orders": {"segment.bytes": "4000", "index.interval.bytes": "500"}})
    partition = broker.lead()
    senders = [Sender(broker, partition, producer_id) for producer_id in range(PRODUCERS)]
    done = threading.Event()
    faults: list[str] = []

    def read(log: PartitionLog) -> None:
        last = 0
        while not done.is_set():
            with log.lock:
                stable, high_watermark = log.last_stable_offset, log.high_watermark
                open_from = min((each.txn_first_offset for each in open_in(log)), default=high_watermark)
            if not last <= stable <= open_from <= high_watermark:
                faults.append(f"{stable} after {last}, open from {open_from} of {high_watermark}")
            last = stable
            read = log.read(0, 1 << 20, stable, committed=True)
            if read.file is not None:
                os.pread(read.file.fileno(), read.size, read.position)

    readers = [started(read, partition.log) for _ in range(2)]
    join([started(sender.run) for sender in senders])
    done.set()
    join(readers)
    log = partition.log
    assert faults == []
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset
    seen = [value for _, value in committed_records(log, 1 << 20) if value is not None]
    for number, sender in enumerate(senders):
        assert [value for value in seen if value.startswith(b"%d:" % number)] == sender.committed
    assert len(seen) == sum(len(sender.committed) for sender in senders)


def open_in(log: PartitionLog) -> list:
    return [each for each in log.producers.by_id.values() if each.txn_first_offset >= 0]
