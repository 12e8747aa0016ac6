"""Recovery compared with real Kafka, on damage with difficult consequences: the same files, byte for byte,
and a refusal exactly if Kafka refuses.
"""

from __future__ import annotations

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
from tests.corpora import Corpus
from tests.peers import KafkaPeer
from tests.peers.load_server import LoadServer
from tests.storage.partition_copies import as_kafka_reads, batch_positions, contents

pytestmark = pytest.mark.kafka

INDEXES = IndexSettings(interval_bytes=1024, max_bytes=8_200)
EVERYTHING_FLUSHED = 10**6

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def kafka_loader(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadServer]:
    with LoadServer(kafka3, tmp_path_factory.mktemp("kafka") / "kafka.log") as server:
        yield server


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def _swapped(place: int, change: Callable[[bytes], bytes] = bytes, *, index: bool = False) -> Damage:
    """A segment with the name of a cleaned one that will be swapped in."""

    def damage(directory: Path) -> None:
        log = _logs(directory)[place]
        log.with_suffix(".log.swap").write_bytes(change(log.read_bytes()))
        log.unlink()
        if index:
            log.with_suffix(".index").rename(log.with_suffix(".index.swap"))

    return damage


def _write(name: str, data: bytes) -> Damage:
    return lambda directory: (directory / name).write_bytes(data)


def _lengthen(suffix: str, place: int) -> Damage:
    def damage(directory: Path) -> None:
        path = _logs(directory)[place].with_suffix(suffix)
        path.write_bytes(path.read_bytes() + b"\0")

    return damage


def _relabel(old: bytes, new: bytes) -> Damage:
    def damage(directory: Path) -> None:
        path = directory / "partition.metadata"
        path.write_bytes(path.read_bytes().replace(old, new))

    return damage


def _shifted(place: int, batches: dict[int, int], *drop: str, tail: bytes = b"") -> Damage:
    """Offsets of batches (by place, in a segment by place) moved up; the checksum does not cover them."""

    def damage(directory: Path) -> None:
        log = _logs(directory)[place]
        data = bytearray(log.read_bytes())
        positions = batch_positions(data)
        for batch, distance in batches.items():
            offset = struct.unpack_from(">q", data, positions[batch])[0]
            struct.pack_into(">q", data, positions[batch], offset + distance)
        log.write_bytes(data + tail)
        for suffix in drop:
            log.with_suffix(suffix).unlink(missing_ok=True)

    return damage


FAR = 1 << 33

CASES: dict[str, tuple[Damage, int]] = {
    "a swap without its index": (_swapped(1), 0),
    "a swap without its index, flushed": (_swapped(1), EVERYTHING_FLUSHED),
    "the last segment as a swap": (_swapped(-1), EVERYTHING_FLUSHED),
    "a swap with its index": (_swapped(1, index=True), EVERYTHING_FLUSHED),
    "an empty swap": (_swapped(1, lambda data: b""), EVERYTHING_FLUSHED),
    "a swap cut inside a batch": (_swapped(1, lambda data: data[:-7]), EVERYTHING_FLUSHED),
    "a swap followed by garbage": (_swapped(1, lambda data: data + b"\xff" * 40), 0),
    "the last batch too far": (_shifted(0, {-1: FAR}), 0),
    "the last batch of the last segment too far": (_shifted(-1, {-1: FAR}), 0),
    "the last batches too far": (_shifted(0, {-2: FAR, -1: FAR}), 0),
    "batches too far from each other": (_shifted(0, {1: FAR, -1: 3 * FAR}), 0),
    "all batches too far": (_shifted(0, dict.fromkeys(range(-1, 1), FAR)), 0),
    "an inner batch too far": (_shifted(0, {0: FAR}), 0),
    "the last batch too far, no indexes": (_shifted(0, {-1: FAR}, ".index"), 0),
    "a later batch too far, no indexes": (_shifted(1, {-1: FAR}, ".index"), 0),
    "the last batch too far, bytes after it": (_shifted(0, {-1: FAR}, tail=b"\0" * 9), 0),
    "the last batch too far, flushed": (_shifted(-1, {-1: FAR}), EVERYTHING_FLUSHED),
    "an epoch file of one byte": (_write("leader-epoch-checkpoint", b"0"), EVERYTHING_FLUSHED),
    "an epoch file of one line": (_write("leader-epoch-checkpoint", b"0\n"), EVERYTHING_FLUSHED),
    "half an entry at an offset index": (_lengthen(".index", 0), EVERYTHING_FLUSHED),
    "half an entry at the last offset index": (_lengthen(".index", -1), EVERYTHING_FLUSHED),
    "half an entry at a time index": (_lengthen(".timeindex", 0), EVERYTHING_FLUSHED),
    "half an entry at the last time index": (_lengthen(".timeindex", -1), EVERYTHING_FLUSHED),
    "other labels in partition.metadata": (_relabel(b"topic_id", b"popic/d"), 0),
    "a label without its colon": (_relabel(b"topic_id:", b"topic_id"), 0),
    "blanks after a value": (_relabel(b": 0", b": 0 "), 0),
}


# The first offset of a compressed message set of magic 1 is known only after decompression.
RUNS = [(case, "k39-unclean", partition) for case in CASES for partition in ("u-none-0", "u-txn-0")]
RUNS += [(case, "k010-unclean", "u-gzip-0") for case in CASES if "too far" in case]


@pytest.mark.parametrize(("case", "corpus", "partition"), RUNS)
def test_damage_is_recovered_as_kafka_does(
    case: str, corpus: str, partition: str, kafka_loader: LoadServer, tmp_path: Path
) -> None:
    damage, flushed = CASES[case]
    ours, theirs = tmp_path / "klog" / partition, tmp_path / "kafka" / partition
    shutil.copytree(Corpus(corpus).log_dir().partition(partition).path, ours)
    damage(ours)
    shutil.copytree(ours, theirs)
    loaded = kafka_loader.load(
        theirs,
        index_interval_bytes=INDEXES.interval_bytes,
        segment_index_bytes=INDEXES.max_bytes,
        recovery_point=flushed,
    )
    settings = RecoverySettings(time.time_ns() // 1_000_000, INDEXES, recovery_point=flushed)
    plan = plan_recovery(str(ours), settings)
    run_recovery(plan, settings, str(tmp_path / "quarantine"))
    assert (plan.kafka_refuses is not None) == bool(loaded.refusal), loaded.refusal
    if loaded.refusal:
        return
    assert plan.log_end_offset == loaded.log_end_offset
    expected = {name: data for name, data in contents(theirs).items() if not name.endswith(".deleted")}
    got = as_kafka_reads(contents(ours))
    assert got.keys() == expected.keys()
    assert [name for name in got if got[name] != expected[name]] == []
