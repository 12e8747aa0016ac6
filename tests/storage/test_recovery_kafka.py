"""Recovery compared with real Kafka, on directories with random damage: the same files, byte for byte."""

from __future__ import annotations

import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.storage.repair.recovery import plan_recovery
from klog.storage.repair.recovery_plan import RecoverySettings
from klog.storage.repair.recovery_run import run_recovery
from klog.storage.repair.segment_scan import IndexSettings
from tests.corpora import PartitionDirectory, corpora, partitions
from tests.fuzz.mutations import LOG_DAMAGES, damage
from tests.peers import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.storage.partition_copies import as_kafka_reads, contents

pytestmark = pytest.mark.kafka

INDEXES = IndexSettings(interval_bytes=1024, max_bytes=131_072)
SEEDS = range(200)
EPOCHS = "leader-epoch-checkpoint"
NO_EPOCHS = b"0\n0\n"
SOURCES = [
    partition
    for partition in partitions([corpus for corpus in corpora() if not corpus.is_corrupt])
    if partition.files(".log") and "." not in partition.name
]


@pytest.fixture(scope="module")
def kafka_loader(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadServer]:
    with LoadServer(kafka3, tmp_path_factory.mktemp("kafka") / "kafka.log") as server:
        yield server


Damage = Callable[[Path, random.Random], object]


def _rewrite(change: Callable[[bytearray, random.Random], bytes | bytearray]) -> Damage:
    def damage(log: Path, chance: random.Random) -> None:
        log.write_bytes(change(bytearray(log.read_bytes()), chance))

    return damage


def _flip(data: bytearray, chance: random.Random) -> bytearray:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _shift_offset(data: bytearray, chance: random.Random) -> bytearray:
    """The checksum does not cover the offsets of magic 2."""
    positions, at = [], 0
    while at + 12 <= len(data):
        positions.append(at)
        size = struct.unpack_from(">i", data, at + 8)[0]
        if size < 14:
            break
        at += 12 + size
    if positions:
        position = chance.choice(positions)
        offset = struct.unpack_from(">q", data, position)[0]
        struct.pack_into(">q", data, position, max(0, offset + chance.choice([-40, -5, 3, 50])))
    return data


def _drop(*suffixes: str) -> Damage:
    return lambda log, chance: log.with_suffix(chance.choice(suffixes)).unlink(missing_ok=True)


def _drop_snapshots(log: Path, chance: random.Random) -> None:
    for snapshot in sorted(log.parent.glob("*.snapshot")):
        if chance.random() < 0.6:
            snapshot.unlink()


def _damage_snapshots(log: Path, chance: random.Random) -> None:
    for snapshot in sorted(log.parent.glob("*.snapshot")):
        if chance.random() < 0.6:
            snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"x")


DAMAGES: list[Damage] = [
    _rewrite(_flip),
    _rewrite(_shift_offset),
    _rewrite(lambda data, chance: data[: chance.randrange(len(data) + 1)]),
    _rewrite(lambda data, chance: data + bytes(chance.randrange(1, 3000))),
    _rewrite(lambda data, chance: data + chance.randbytes(chance.randrange(1, 3000))),
    _rewrite(lambda data, chance: b""),
    _drop(".index", ".timeindex", ".txnindex"),
    _drop(".log"),
    _drop_snapshots,
    _damage_snapshots,
    lambda log, chance: (log.parent / "leader-epoch-checkpoint").unlink(missing_ok=True),
    lambda log, chance: log.with_suffix(".txnindex").write_bytes(chance.randbytes(68)),
]


def damaged_copy(seed: int, target: Path) -> tuple[Path, random.Random, PartitionDirectory]:
    chance = random.Random(seed)
    source = chance.choice(SOURCES)
    directory = target / source.name
    shutil.copytree(source.path, directory)
    for _ in range(chance.choice([0, 1, 1, 2])):
        logs = sorted(directory.glob("*.log"))
        if logs:
            chance.choice(DAMAGES)(chance.choice(logs), chance)
    return directory, chance, source


@pytest.mark.parametrize("seed", SEEDS)
def test_random_damage_is_recovered_as_kafka_does(
    seed: int, kafka_loader: LoadServer, tmp_path: Path
) -> None:
    ours, chance, source = damaged_copy(seed, tmp_path / "klog")
    theirs = tmp_path / "kafka" / source.name
    shutil.copytree(ours, theirs)
    start = chance.choice([0, 0, 0, 3, 50, 1000])
    flushed = chance.choice([0, 0, 0, 40, 200, 10**6])
    settings = RecoverySettings(
        time.time_ns() // 1_000_000, INDEXES, recovery_point=flushed, log_start_offset=start
    )
    loaded = kafka_loader.load(
        theirs,
        index_interval_bytes=INDEXES.interval_bytes,
        segment_index_bytes=INDEXES.max_bytes,
        recovery_point=flushed,
        log_start_offset=start,
    )
    plan = plan_recovery(str(ours), settings)
    assert (plan.kafka_refuses is not None) == bool(loaded.refusal), (source, loaded.refusal)
    run_recovery(plan, settings, str(tmp_path / "quarantine"))
    if loaded.refusal:
        return
    assert plan.log_end_offset == loaded.log_end_offset
    expected = {name: data for name, data in contents(theirs).items() if not name.endswith(".deleted")}
    got = as_kafka_reads(contents(ours))
    assert got.keys() == expected.keys(), source
    assert [name for name in got if got[name] != expected[name]] == [], source


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_what_klog_recovered_kafka_opens_without_recovering(
    seed: int, kafka_loader: LoadServer, tmp_path: Path
) -> None:
    """As after a clean stop: nothing is rebuilt, truncated or refused, and no byte changes."""
    directory, _, source = damaged_copy(seed, tmp_path)
    settings = RecoverySettings(time.time_ns() // 1_000_000, INDEXES)
    plan = plan_recovery(str(directory), settings)
    run_recovery(plan, settings, str(tmp_path / "quarantine"))
    before = contents(directory)
    loaded = kafka_loader.load(
        directory,
        index_interval_bytes=INDEXES.interval_bytes,
        segment_index_bytes=INDEXES.max_bytes,
        recovery_point=plan.log_end_offset,
        clean=True,
    )
    assert loaded.refusal == ""
    assert loaded.log_end_offset == plan.log_end_offset
    assert contents(directory) == before, source


@pytest.mark.parametrize("seed", range(300))
def test_damage_that_no_checksum_shows_is_recovered_as_kafka_does(
    seed: int, kafka_loader: LoadServer, tmp_path: Path
) -> None:
    """Duplicated, dropped and swapped batches, edge values of headers, bad payloads with a valid checksum."""
    chance = random.Random(seed)
    source = chance.choice(SOURCES)
    ours, theirs = tmp_path / "klog" / source.name, tmp_path / "kafka" / source.name
    shutil.copytree(source.path, ours)
    done = damage(ours, chance, LOG_DAMAGES)
    shutil.copytree(ours, theirs)
    settings = RecoverySettings(time.time_ns() // 1_000_000, INDEXES)
    loaded = kafka_loader.load(
        theirs, index_interval_bytes=INDEXES.interval_bytes, segment_index_bytes=INDEXES.max_bytes
    )
    plan = plan_recovery(str(ours), settings)
    assert (plan.kafka_refuses is not None) == bool(loaded.refusal), (source, done, loaded.refusal)
    run_recovery(plan, settings, str(tmp_path / "quarantine"))
    if loaded.refusal:
        return
    assert plan.log_end_offset == loaded.log_end_offset, (source, done)
    if (theirs / EPOCHS).read_bytes() == NO_EPOCHS:
        # Kafka has just deleted the only entry, and finds those of the batches when it recovers once more.
        # klog writes them at once.
        kafka_loader.load(
            theirs, index_interval_bytes=INDEXES.interval_bytes, segment_index_bytes=INDEXES.max_bytes
        )
    expected = {name: data for name, data in contents(theirs).items() if not name.endswith(".deleted")}
    got = as_kafka_reads(contents(ours))
    assert got.keys() == expected.keys(), (source, done)
    assert [name for name in got if got[name] != expected[name]] == [], (source, done)
