"""What is left over, missing or damaged beside a log's records, loaded by klog and by Kafka: the same log."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.formats import compression
from tests.peers import KafkaPeer
from tests.peers.log_server import LogServer
from tests.storage.log.beside_kafka import TwoLogs
from tests.storage.log.test_against_kafka import Writer, sealed

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka_log(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    with LogServer(kafka3, tmp_path_factory.mktemp("kafka") / "log.log") as server:
        yield server


LEFT_OVER = (
    "00000000000000005000.index",
    "00000000000000005000.txnindex",
    "00000000000000000003.log.cleaned",
    "00000000000000000003.timeindex.cleaned",
    "00000000000000000002.log.deleted",
    "00000000000000000002.snapshot.deleted",
    "00000000000000000007.snapshot",
    "00000000000000009000.snapshot",
    "7.snapshotx",
    "notes.txt",
)
NO_PRODUCERS = struct.pack(">hIi", 1, 0, 0)


def disturb(logs: TwoLogs, chance: random.Random) -> str:
    """Do the same to both directories; says what."""
    kafka, klog = logs.directories
    shutil.rmtree(kafka)
    shutil.copytree(klog, kafka)
    indexes = sorted(path.name for path in klog.glob("*.index"))
    snapshots = sorted(path.name for path in klog.glob("*.snapshot"))
    content = chance.choice((b"", b"\xff" * 40, NO_PRODUCERS))
    what = chance.choice(("left over", "left over", "index", "snapshot", "snapshot"))
    if what == "left over" or not snapshots:
        name = chance.choice(LEFT_OVER)
        for directory in logs.directories:
            (directory / name).write_bytes(content)
    elif what == "snapshot" and chance.random() < 0.7:
        name = chance.choice(snapshots)
        for directory in logs.directories:
            (directory / name).write_bytes(content)
    else:
        name = chance.choice(indexes if what == "index" else snapshots)
        for directory in logs.directories:
            (directory / name).unlink()
    return f"{what}: {name}"


@pytest.mark.parametrize("follower", [False, True], ids=["leader", "follower"])
@pytest.mark.parametrize("seed", range(20))
def test_what_lies_beside_the_records_of_a_log_is_taken_as_by_kafka(
    seed: int, follower: bool, kafka_log: LogServer, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    configs = {"segment.bytes": 1000, "segment.index.bytes": 4000, "index.interval.bytes": 100}
    logs = TwoLogs(kafka_log, tmp_path, configs, chance.choice((86_400_000, 8000)))
    writer = Writer(logs, chance, follower=follower)
    logs.check("epoch", 0, 0)
    for _ in range(4):
        for _ in range(chance.randrange(12)):
            logs.now_ms += chance.choice((0, 1000))
            writer.append(0)
        logs.close()
        disturb(logs, chance)
        logs.open(clean=chance.random() < 0.6, log_start_offset=logs.log.log_start_offset)
        logs.require_same_files()
        logs.check("watermark", logs.log.log_end_offset)
        logs.check("start", chance.randrange(logs.log.log_end_offset + 1))
    logs.close()


def messages(chance: random.Random, offset: int, now_ms: int) -> bytes:
    """Messages of magic 0 or 1 as a leader keeps them, from `offset` on."""
    magic, count = chance.randrange(2), chance.choice((1, 2, 5))
    if chance.random() < 0.5:
        return b"".join(sealed(magic, offset + n, 0, now_ms - n, b"k", b"v" * 30) for n in range(count))
    inner = b"".join(sealed(magic, n if magic else offset + n, 0, now_ms, b"k", b"v") for n in range(count))
    block = compression.compress(compression.GZIP, inner, magic=magic)
    return sealed(magic, offset + count - 1, compression.GZIP, now_ms, None, block)


@pytest.mark.parametrize("seed", range(10))
def test_a_log_of_old_and_new_messages_is_recovered_as_by_kafka(
    seed: int, kafka_log: LogServer, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    configs = {"segment.bytes": 1000, "segment.index.bytes": 4000, "index.interval.bytes": 100}
    logs = TwoLogs(kafka_log, tmp_path, configs)
    writer = Writer(logs, chance, follower=True)
    for _ in range(20):
        logs.now_ms += 1000
        if chance.random() < 0.5:
            writer.append(0)
        else:
            offset = logs.log.log_end_offset + chance.choice((0, 0, 7))
            logs.check("follower", 0, messages(chance, offset, logs.now_ms))
        if chance.random() < 0.3:
            logs.crash()
            logs.open(clean=False, recovery_point=chance.choice((0, logs.log.recovery_point)))
            logs.require_same_files()
    logs.crash()
    logs.open(clean=False)
    logs.require_same_files()
    logs.close()
