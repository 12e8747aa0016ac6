"""Backups of log directories that a broker is using: up to its high watermark, while it goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from klog.backup.restoring.request import RestoreRequest
from klog.formats.names import FileKind, TopicPartition
from klog.testing import broker
from tests.backup.recorded import restore
from tests.backup.repositories import Backups, log_files
from tests.export.logs import Log, batch, replica, write_checkpoint, write_segment

ORDERS = TopicPartition("orders", 0)
_HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(logs: Path) -> Iterator[None]:
    """Another process has the lock of a log directory, as a broker has."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(logs / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


def batches(first: int, count: int) -> list[bytes]:
    return [batch(first + 5 * each, 5) for each in range(count)]


def test_records_above_the_high_watermark_are_left_to_later_runs(backups: Backups, logs: Path) -> None:
    path = write_segment(logs / "orders-0", batches(0, 8))
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=25)
    with held(logs):
        first = backups.run(logs)
        assert first.is_clean
        assert backups.segments("orders") == {path.name: b"".join(batches(0, 5))}
        assert backups.states()[ORDERS].end_offset == 25

        write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=40)
        backups.run(logs)
        assert backups.segments("orders") == {path.name: path.read_bytes()}
        assert [piece.first_offset for piece in backups.states()[ORDERS].pieces] == [0, 25]


def test_a_checkpoint_that_is_older_after_a_crash_doubles_no_batch(
    backups: Backups, logs: Path, tmp_path: Path
) -> None:
    path = write_segment(logs / "orders-0", batches(0, 8))
    with held(logs):
        for high_watermark in (25, 20, 40):
            write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=high_watermark)
            backups.run(logs)
    between_ms = backups.now_ms - 500

    restore(backups.repository, RestoreRequest(between_ms), tmp_path / "new")

    assert log_files(tmp_path / "new" / "orders-0") == {path.name: path.read_bytes()}


def test_the_log_end_can_be_asked_for(backups: Backups, logs: Path) -> None:
    write_segment(logs / "orders-0", batches(0, 8))
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=25)
    with held(logs):
        backups.run(logs, log_end=True)
    assert backups.states()[ORDERS].end_offset == 40


def test_segments_above_the_high_watermark_are_left_out(backups: Backups, logs: Path) -> None:
    replica(logs / "orders-0", batches(0, 12))
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=15)
    with held(logs):
        backups.run(logs)
    assert list(backups.segments("orders")) == ["00000000000000000000.log"]


def test_a_batch_that_is_being_written_is_no_damage(backups: Backups, logs: Path) -> None:
    log = Log(logs / "orders-0")
    path = log.append(*batches(0, 4)).write() / "00000000000000000000.log"
    whole = path.read_bytes()
    path.write_bytes(whole + batches(20, 1)[0][:70])
    with held(logs):
        assert backups.run(logs).is_clean
        assert backups.segments("orders") == {path.name: whole}
        path.write_bytes(whole + batches(20, 1)[0])
        backups.run(logs)
    assert backups.segments("orders") == log_files(logs / "orders-0")


def test_damage_below_the_high_watermark_is_said_of_a_running_broker_too(
    backups: Backups, logs: Path
) -> None:
    path = write_segment(logs / "orders-0", batches(0, 4))
    write_checkpoint(logs, FileKind.REPLICATION_CHECKPOINT, orders_0=20)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with held(logs):
        result = backups.run(logs)
    assert result.damaged == (ORDERS,)
    [problem] = result.manifest.problems
    assert "the log ends at 15, but the broker's checkpoint has a high watermark of 20" in problem.what


def test_a_broker_that_is_written_to(backups: Backups) -> None:
    with broker() as running:
        running.create_topic("orders", partitions=2)
        logs = running.partition_dir("orders").parent
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(1, 4):
            for each in range(200):
                producer.produce("orders", f"{number}-{each}".encode(), str(each).encode())
            assert producer.flush(30) == 0
            result = backups.run(logs, log_end=True)
            assert result.is_clean, result.manifest.problems
            ends = [
                state.end_offset
                for partition, state in backups.states().items()
                if partition.topic == "orders"
            ]
            assert sum(ends) == 200 * number
        running.stop()
        backups.run(logs)
        for number in range(2):
            assert backups.segments("orders", number) == log_files(logs / f"orders-{number}")


def _ends(backups: Backups, topic: str) -> list[int]:
    return [state.end_offset for partition, state in backups.states().items() if partition.topic == topic]
