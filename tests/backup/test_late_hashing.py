"""What is stored has the hash of its name, however late the thread is that hashes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

import klog.testing
from klog.backup import copying, pieces
from klog.backup.hashing import BackgroundHash
from klog.backup.joining import JoinRules
from klog.backup.wire import reader
from klog.formats.checksums import Bytes
from klog.formats.names import TopicPartition
from klog.storage.files import chunks
from tests.backup.repositories import Backups, log_files
from tests.export.logs import batch, write_segment

ORDERS = TopicPartition("orders", 0)


class LatestHash(BackgroundHash):
    """Hashes as late as the thread of a `BackgroundHash` may."""

    def __init__(self) -> None:
        super().__init__()
        self._later: list[Bytes] = []

    def begin(self, data: Bytes) -> None:
        self._later.append(data)

    def _wait_for_all_but(self, left: int) -> None:
        while len(self._later) > left:
            self._hash.update(self._later.pop(0))


@pytest.fixture(autouse=True)
def _late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BackgroundHash", LatestHash)


def test_of_log_directories_and_pieces_that_are_joined(
    backups: Backups, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_BYTES", 3_000)
    monkeypatch.setattr(
        chunks.chunks, "__kwdefaults__", {**chunks.chunks.__kwdefaults__, "chunk_bytes": 3_000}
    )
    rules = JoinRules(fewest=3, most=5, limits_bytes=(1 << 20,), largest_bytes=1 << 20)
    written: list[bytes] = []
    for _ in range(6):
        written += [batch(first, 1, size=900) for first in range(len(written), len(written) + 20)]
        write_segment(logs / "orders-0", written)
        assert backups.run(logs, joining=rules).is_clean
        assert backups.segments("orders") == log_files(logs / "orders-0")
    assert len(backups.states()[ORDERS].pieces) < 6


def test_of_a_cluster(backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FETCH_BYTES", 200_000)
    with klog.testing.broker() as broker:
        broker.create_topic("orders", partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(12):
            producer.produce("orders", os.urandom(150_000))
            producer.flush(30)
        assert backups.run_over_wire(broker.bootstrap_servers).is_clean
        assert backups.segments("orders") == log_files(broker.partition_dir("orders"))
