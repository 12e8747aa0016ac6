"""A broker starts with any content of the files beside its segments, and rebuilds what can be rebuilt."""

from __future__ import annotations

import logging
import random
import shutil
import struct
from pathlib import Path

import pytest

from klog.formats.names import TopicPartition, parse_directory
from klog.storage.log.batch_place import BatchPlace
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.segment import LogSegment
from klog.storage.log.time_lookup import TimedOffset, first_at_or_after, with_max_timestamp
from tests.corpora import Corpus
from tests.fuzz.mutated_directories import NOW_MS, sources
from tests.fuzz.mutations import SIDECAR_DAMAGES, damaged_text
from tests.storage.log.managing import Managed

CLEAN = '{"version":0,"brokerEpoch":-1}'
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
)
SEEDS_A_TEST = 25


def started(log_dir: Path) -> Managed:
    managed = Managed(log_dir)
    managed.clock.now_ms = NOW_MS
    managed.start()
    return managed


def log_of(managed: Managed, partition: TopicPartition) -> PartitionLog:
    assert managed.manager.offline == {}
    log = managed.manager.get(partition)
    assert log is not None
    return log


def scanned(segment: LogSegment, offset: int) -> BatchPlace | None:
    """The batch of an offset, found without an index."""
    position = 0
    while position < segment.size:
        place = segment.batch_at(position)
        if place.last_offset >= offset:
            return place
        position += place.size
    return None


def times(log: PartitionLog) -> list[TimedOffset | None]:
    """The answers to a few time lookups."""
    latest = max(segment.max_timestamp.timestamp for segment in log.segments)
    asked = (0, *range(latest - 100_000, latest, 10_000), latest)
    return [*(first_at_or_after(log, timestamp) for timestamp in asked), with_max_timestamp(log)]


def require_right_answers(log: PartitionLog) -> None:
    log.set_high_watermark(log.log_end_offset)
    step = max(1, (log.log_end_offset - log.log_start_offset) // 25)
    for offset in range(log.log_start_offset, log.log_end_offset, step):
        segment = log.segments[log.segments.floor(offset)]
        assert segment.find(offset) == scanned(segment, offset)


def closed_copy(
    chance: random.Random, log_dir: Path
) -> tuple[Path, TopicPartition, int, int, list[TimedOffset | None]]:
    """A partition that a broker has closed, with its start, its end and the answers to time lookups."""
    # In magic 0 and 1 a batch does not say its first offset, so not every wrong entry shows.
    new = [
        each
        for each in sources()
        if each.corpus.name.startswith(("k39", "k4", "k28")) and "metadata" not in each.name
    ]
    source = chance.choice(new)
    directory = log_dir / source.name
    shutil.copytree(source.path, directory)
    (log_dir / ".kafka_cleanshutdown").write_text(CLEAN)
    partition = parse_directory(source.name).partition
    managed = started(log_dir)
    log = log_of(managed, partition)
    known = (log.log_start_offset, log.log_end_offset, times(log))
    managed.stop()
    return directory, partition, *known


def damaged(chance: random.Random, directory: Path, partition: TopicPartition) -> str:
    if chance.random() < 0.7:
        return chance.choice(SIDECAR_DAMAGES)(directory, chance)
    checkpoint = directory.parent / chance.choice(CHECKPOINTS)
    usual = f"0\n1\n{partition.topic} {partition.partition} 3\n".encode()
    checkpoint.write_bytes(damaged_text(checkpoint.read_bytes() if checkpoint.exists() else usual, chance))
    return f"{checkpoint.name}: {checkpoint.read_bytes()[:50]!r}"


@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
def test_a_broker_serves_a_log_whatever_lies_beside_its_records(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        chance = random.Random(seed)
        log_dir = tmp_path / str(seed)
        directory, partition, start, end, known = closed_copy(chance, log_dir)
        done = [damaged(chance, directory, partition) for _ in range(chance.choice((1, 1, 2)))]
        if chance.random() < 0.2:
            (log_dir / ".kafka_cleanshutdown").unlink()
        for _ in range(2):
            managed = started(log_dir)
            log = log_of(managed, partition)
            # A log start beyond the log's end removes all records, as in Kafka.
            if log.log_end_offset > log.log_start_offset:
                assert log.log_end_offset == end, (seed, done)
            require_right_answers(log)
            if log.log_start_offset == start:
                assert times(log) == known, (seed, done)
            managed.stop()
        shutil.rmtree(log_dir)


def two_segments(tmp_path: Path) -> Path:
    """A cleanly closed partition of Kafka 3.9 with the segments 0 and 25."""
    directory = tmp_path / "logs" / "b-0"
    shutil.copytree(Corpus("corrupt-k39").log_dir().partition("c-b.intact-0").path, directory)
    (tmp_path / "logs" / ".kafka_cleanshutdown").write_text(CLEAN)
    return directory


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("00000000000000000025.index", struct.pack(">ii", 5, -5)),
        ("00000000000000000025.index", struct.pack(">ii", 2**31 - 1, 0)),
        ("00000000000000000025.index", b"\0" * 4096),
        ("00000000000000000025.timeindex", struct.pack(">qi", 2**62, 1)),
        ("00000000000000000025.timeindex", struct.pack(">qi", 1, -1)),
        ("00000000000000000000.index", struct.pack(">ii", 20, 3)),
        ("00000000000000000000.timeindex", struct.pack(">qi", 2**62, 3)),
        ("00000000000000000000.txnindex", b"?" * 34),
        ("00000000000000000025.txnindex", b"\0" * 7),
    ],
)
def test_a_bad_index_entry_is_named_and_the_index_is_rebuilt(
    name: str, entry: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = two_segments(tmp_path)
    index = directory / name
    before = index.read_bytes() if index.exists() else b""
    index.write_bytes(before + entry)
    with caplog.at_level(logging.WARNING):
        managed = started(directory.parent)
        log = log_of(managed, TopicPartition("b", 0))
        require_right_answers(log)
        times(log)
        managed.stop()
    assert [record for record in caplog.records if name in record.getMessage()] != []
    assert entry not in (index.read_bytes() if index.exists() else b"")


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("content", [b"\xff\xfe", b"1\n0\n", b"0\n7\n", b"0\n1\nb x 3\n", b"\n\n"])
def test_a_checkpoint_that_cannot_be_read_counts_as_empty_and_is_named(
    name: str, content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = two_segments(tmp_path)
    (directory.parent / name).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        managed = started(directory.parent)
        assert log_of(managed, TopicPartition("b", 0)).log_end_offset == 45
        managed.stop()
    assert [record for record in caplog.records if name in record.getMessage()] != []


def test_leader_epochs_that_cannot_be_read_are_found_in_all_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "logs" / "ep-0"
    shutil.copytree(Corpus("k39-epochs").log_dir("logs_1").partition("ep-0").path, directory)
    epochs = directory / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    (tmp_path / "logs" / ".kafka_cleanshutdown").write_text(CLEAN)
    epochs.write_bytes(b"zero\n")
    with caplog.at_level(logging.WARNING):
        managed = started(tmp_path / "logs")
        log_of(managed, TopicPartition("ep", 0))
        managed.stop()
    found = epochs.read_bytes().splitlines()
    assert set(found[2:]) <= set(before.splitlines()[2:])
    assert found[2:] != []
    assert "leader-epoch-checkpoint" in caplog.text
