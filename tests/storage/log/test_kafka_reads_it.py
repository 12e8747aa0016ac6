"""Kafka opens what klog's log wrote: unchanged after a clean stop, mended to the same files after a crash."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.formats.names import FileKind
from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import PartitionLog
from tests.peers import DumpServer, KafkaPeer
from tests.peers.load_server import LoadServer
from tests.storage.log.building import (
    NOW_MS,
    append,
    batch,
    files,
    idempotent,
    marker,
    new_log,
    reload,
    transactional,
)
from tests.storage.partition_copies import as_kafka_reads

pytestmark = pytest.mark.kafka

CONFIGS = {"segment.bytes": "16384", "index.interval.bytes": "1024", "segment.index.bytes": "4080"}


@pytest.fixture(scope="module")
def kafka_loads(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadServer]:
    with LoadServer(kafka3, tmp_path_factory.mktemp("kafka") / "load.log") as server:
        yield server


def written(root: Path, **configs: str) -> PartitionLog:
    """A log with every codec, several segments, idempotent producers, transactions and two epochs."""
    log = new_log(root, CONFIGS | configs)
    sequence, transaction = 0, 0
    for n in range(60):
        epoch = n // 40
        times = NOW_MS + (n * 7919) % 1000
        append(log, batch([b"%d" % n * 100] * 5, codec=n % 5, timestamp=times), epoch=epoch)
        append(log, idempotent(sequence, 3, codec=(n + 1) % 5, timestamp=times), epoch=epoch)
        sequence += 3
        append(log, transactional(transaction, 2, producer=8, codec=n % 5), epoch=epoch)
        transaction += 2
        if n % 4 == 1:
            append(log, transactional(n // 4, producer=9), epoch=epoch)
        if n % 4 == 3:
            for producer, commit in ((8, n % 8 == 3), (9, False)):
                end = marker(commit=commit, producer=producer, coordinator_epoch=n)
                append(log, end, epoch=epoch, origin=Origin.COORDINATOR)
    append(log, transactional(transaction, 2, producer=8), epoch=1)
    log.set_high_watermark(log.log_end_offset)
    assert len(log.segments) >= 3
    return log


def without_complaint(kafka3_dump: DumpServer, log: PartitionLog) -> None:
    """Kafka's dump tool on every file, indexes checked against their logs."""
    base = Path(log.directory)
    for segment in sorted(base.glob("*.log")):
        dumped = kafka3_dump.dump([segment], "--deep-iteration", "--print-data-log")
        assert (dumped.thrown, dumped.stderr) == ("", b"")
        assert b"isvalid: false" not in dumped.stdout
    for index in sorted(base.glob("*.*index")):
        dumped = kafka3_dump.dump([index], "--verify-index-only")
        assert (dumped.thrown, dumped.stderr) == ("", b"")
        assert b"Mismatches" not in dumped.stdout
        assert b"Found timestamp mismatch" not in dumped.stdout
        assert b"Found out of order" not in dumped.stdout
    for snapshot in sorted(base.glob("*.snapshot")):
        dumped = kafka3_dump.dump([snapshot])
        assert (dumped.thrown, dumped.stderr) == ("", b"")


@pytest.mark.parametrize("preallocate", ["false", "true"])
def test_kafka_loads_a_cleanly_closed_log_and_changes_nothing(
    tmp_path: Path, kafka_loads: LoadServer, kafka3_dump: DumpServer, preallocate: str
) -> None:
    log = written(tmp_path, preallocate=preallocate)
    log.close()
    before = files(log.directory)
    without_complaint(kafka3_dump, log)
    loaded = kafka_loads.load(
        Path(log.directory), index_interval_bytes=1024, segment_index_bytes=4080, clean=True,
        recovery_point=log.log_end_offset,
    )  # fmt: skip
    assert (loaded.refusal, loaded.log_start_offset, loaded.log_end_offset) == ("", 0, log.log_end_offset)
    assert files(log.directory) == before


@pytest.mark.parametrize("preallocate", ["false", "true"])
@pytest.mark.parametrize("tail", [b"", b"half a batch"])
@pytest.mark.parametrize("flushed", [True, False])
def test_kafka_and_klog_recover_an_abandoned_log_to_the_same_files(
    tmp_path: Path,
    kafka_loads: LoadServer,
    kafka3_dump: DumpServer,
    tail: bytes,
    flushed: bool,
    preallocate: str,
) -> None:
    log = written(tmp_path, preallocate=preallocate)
    log.release()
    with open(log.segments.active.path(FileKind.LOG), "r+b") as file:
        file.seek(log.segments.active.size)
        file.write(tail)
    recovery_point = log.recovery_point if flushed else 0
    theirs = shutil.copytree(log.directory, tmp_path / "kafka" / "t-0")
    loaded = kafka_loads.load(
        theirs, index_interval_bytes=1024, segment_index_bytes=4080, recovery_point=recovery_point
    )
    assert (loaded.refusal, loaded.log_end_offset) == ("", log.log_end_offset)
    again, _ = reload(log, tmp_path, recovery_point=recovery_point)
    again.close()
    assert again.log_end_offset == log.log_end_offset
    assert as_kafka_reads(files(log.directory)) == as_kafka_reads(files(theirs))
    without_complaint(kafka3_dump, again)


def test_kafka_loads_a_log_that_was_cut_and_written_on(
    tmp_path: Path, kafka_loads: LoadServer, kafka3_dump: DumpServer
) -> None:
    log = written(tmp_path)
    log.truncate_to(log.segments.bases[2] + 11)
    log.advance_log_start(log.segments.bases[1] + 3)
    log.delete_oldest(1)
    append(log, batch(3), epoch=7)
    log.close()
    for path in Path(log.directory).glob("*.deleted"):
        path.unlink()
    before = files(log.directory)
    without_complaint(kafka3_dump, log)
    loaded = kafka_loads.load(
        Path(log.directory), index_interval_bytes=1024, segment_index_bytes=4080, clean=True,
        recovery_point=log.log_end_offset, log_start_offset=log.log_start_offset,
    )  # fmt: skip
    assert (loaded.refusal, loaded.log_start_offset, loaded.log_end_offset) == (
        "",
        log.log_start_offset,
        log.log_end_offset,
    )
    after = files(log.directory)
    assert {name: before[name] for name in after} == after
    # What a cut takes belongs to no segment, what is below the log start serves nobody: both go at a start.
    offsets = (*log.segments.bases, log.log_end_offset)
    needed = {f"{offset:020d}.snapshot" for offset in offsets if offset > log.log_start_offset}
    gone = before.keys() - after.keys()
    assert {name for name in gone if not name.endswith(".snapshot") or name in needed} == set()
