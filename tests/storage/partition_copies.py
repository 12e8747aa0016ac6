"""Shared by the tests of rebuild and recovery: copies of fixtures, and the settings with which they were
made.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from klog.formats.errors import FormatError
from klog.storage.reading.producer_state import pack_snapshot, producers_in
from klog.storage.repair.recovery_plan import RecoverySettings
from klog.storage.repair.segment_scan import IndexSettings
from tests.corpora import Corpus, PartitionDirectory, corpora

# Settings and time of the brokers that made the recovered fixtures; no producer had expired.
KAFKA_INDEXES = IndexSettings(interval_bytes=1024, max_bytes=16384)
NOW_MS = 1_795_253_400_000  # 2026-11-21T09:30Z
SETTINGS = RecoverySettings(NOW_MS, KAFKA_INDEXES)


def copied(partition: PartitionDirectory, target: Path) -> Path:
    """A copy of a partition directory that a test may change."""
    directory = target / "logs" / partition.name
    shutil.copytree(partition.path, directory)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a directory by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def as_kafka_reads(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with the producer snapshots that Kafka would write of what it reads from them.

    klog's keep earlier batches of a producer, which Kafka replaces with the last one. Damaged ones stay.
    """
    return {name: _rewritten(data) if name.endswith(".snapshot") else data for name, data in files.items()}


def _rewritten(snapshot: bytes) -> bytes:
    try:
        return pack_snapshot(producers_in(snapshot))
    except FormatError:
        return snapshot


def damaged() -> list[PartitionDirectory]:
    """Every corruption of every corrupt corpus."""
    return [partition for corpus in corpora("corrupt-") for partition in corpus.log_dir().partitions()]


def after_kafka(partition: PartitionDirectory) -> dict[str, bytes] | None:
    """The directory after Kafka's recovery, without files that wait for deletion; None if Kafka refused to
    start.
    """
    recovered = partition.corpus.log_dir("logs_unclean" if partition.corpus.is_corrupt else "logs_recovered")
    directory = recovered.partition(partition.name).path
    if not directory.is_dir():
        return None
    return {name: data for name, data in contents(directory).items() if not name.endswith(".deleted")}


def refused(partition: PartitionDirectory, mode: str) -> bool:
    """Whether Kafka refused to start on the directory."""
    results = partition.corpus.manifest["load_result"][mode]
    return partition.name in results["broker_refuses_to_start_on"]


def unclean(name: str) -> list[PartitionDirectory]:
    """The partitions of a corpus whose broker was killed."""
    return Corpus(name).log_dir().partitions()


def batch_positions(data: bytes | bytearray) -> list[int]:
    """The positions of the batches of a `.log`."""
    positions = []
    at = 0
    while at + 12 <= len(data):
        positions.append(at)
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    return positions


def overlong(target: Path) -> Path:
    """A copy of a valid partition whose last batch has offsets too far from its segment's base for an
    index (KAFKA-6264); its checksum does not cover them.
    """
    directory = copied(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0"), target)
    log = directory / "00000000000000000025.log"
    data = bytearray(log.read_bytes())
    struct.pack_into(">q", data, batch_positions(data)[-1], 2**31 + 100)
    log.write_bytes(data)
    return directory
