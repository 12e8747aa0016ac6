"""The file system of the only log directory is full while the broker does what is not simply producing.

One clear line says so, nothing that was acknowledged is lost, and with free space the broker goes on.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import Config, KlogBroker
from tests.waiting import eventually

MIB = 1 << 20
SMALL: Config = {
    "log.index.size.max.bytes": 4096,
    "offsets.topic.num.partitions": 1,
    "log.cleaner.backoff.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.dedupe.buffer.size": 2_000_000,
}

pytestmark = pytest.mark.slow


class Disk:
    """A mounted tmpfs for the broker's only log directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.decode()}")

    def fill(self, left_bytes: int) -> None:
        free = os.statvfs(self.path)
        size = free.f_bavail * free.f_bsize - left_bytes
        (self.path / "ballast").write_bytes(bytes(size))

    def grow(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)
        self.run("mount", "-o", "remount,size=64m", str(self.path))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """12 MiB. Skips the test if nothing can be mounted."""
    mounted = Disk(tmp_path / "logs")
    mounted.path.mkdir()
    mounted.run("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(mounted.path))
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted.path)], check=True)


def assert_goes_on(klog: KlogBroker, disk: Disk, acknowledged: Written) -> None:
    disk.grow()
    klog.start()
    eventually(lambda: acknowledged.keys() <= Admin(klog.bootstrap).led())
    found = read(klog.bootstrap, acknowledged)
    assert all(offsets.items() <= found[partition].items() for partition, offsets in acknowledged.items())
    klog.stop()


def create_for_ever(admin: Admin) -> None:
    for number in itertools.count():
        admin.create({f"t{number}": (1, {})})


def require_one_offline_line(klog: KlogBroker) -> None:
    assert klog.ended() == 1
    (line,) = [line for line in klog.complaints if "goes offline" in line]
    assert "No space left on device" in line
    assert "Traceback" not in klog.log_text


def test_a_segment_without_space_takes_the_directory_offline(disk: Disk, tmp_path: Path) -> None:
    acknowledged: Written = {}
    with KlogBroker(tmp_path, SMALL) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (1, {"segment.bytes": "100000"})})
        writer = Writer(klog.bootstrap, acknowledged, message_timeout_ms=2000, batch_size=20_000)
        while klog.process.poll() is None:
            writer.write("t", os.urandom(10_000))
            writer.flush(0.01)
        writer.abandon()
        require_one_offline_line(klog)
        assert acknowledged
        assert_goes_on(klog, disk, acknowledged)


def test_a_cleaning_for_which_there_is_no_space_takes_the_directory_offline(
    disk: Disk, tmp_path: Path
) -> None:
    acknowledged: Written = {}
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.01"}
    with KlogBroker(tmp_path, {**SMALL, "log.cleaner.enable": "false"}) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (1, compacted)})
        writer = Writer(klog.bootstrap, acknowledged, batch_size=100_000)
        for number in range(250):
            writer.write("t", os.urandom(20_000), b"%d" % number)
        writer.finish()
        disk.fill(left_bytes=300_000)
        klog.stop()
        klog.spawn(log_cleaner_enable="true")
        require_one_offline_line(klog)
        assert_goes_on(klog, disk, acknowledged)


def test_metadata_for_which_there_is_no_space_are_refused_and_the_broker_serves_on(
    disk: Disk, tmp_path: Path
) -> None:
    acknowledged: Written = {}
    with KlogBroker(tmp_path, SMALL) as klog:
        klog.start()
        admin = Admin(klog.bootstrap)
        admin.create({"t": (1, {})})
        writer = Writer(klog.bootstrap, acknowledged)
        writer.write("t", b"before")
        writer.finish()
        disk.fill(left_bytes=0)
        with pytest.raises(KafkaException, match="full") as refused:
            create_for_ever(admin)
        assert refused.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
        (line,) = [line for line in klog.complaints if "the metadata cannot be changed" in line]
        assert "disk is full" in line
        assert "Traceback" not in klog.log_text
        disk.grow()
        admin.create({"after": (1, {})})
        writer.write("t", b"after")
        writer.finish()
        klog.stop()
        assert_goes_on(klog, disk, acknowledged)


def test_an_index_for_which_there_is_no_space_stays_as_it_was(disk: Disk, tmp_path: Path) -> None:
    acknowledged: Written = {}
    with KlogBroker(tmp_path, {**SMALL, "log.index.interval.bytes": 16}) as klog:
        klog.start()
        Admin(klog.bootstrap).create({"t": (1, {})})
        writer = Writer(klog.bootstrap, acknowledged, batch_num_messages=1)
        for number in range(2000):
            writer.write("t", b"%d" % number)
        writer.finish()
        klog.stop()
        index = disk.path / "t-0" / f"{0:020d}.index"
        index.write_bytes(damaged := bytes(8) + b"\xff" * 8)
        disk.fill(left_bytes=0)
        command = [sys.executable, "-m", "klog", "rebuild-index", "--force", str(disk.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, index.read_bytes()) == (1, damaged)
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert_goes_on(klog, disk, acknowledged)
