"""The broker's cleaner: its threads, its checkpoints, and logs that are paused or set aside."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.config.topic import TopicConfig, default_topic_config
from klog.formats.names import TopicPartition
from klog.storage.cleaner.checkpoint_file import CleanerCheckpointFile
from klog.storage.cleaner.cleaner_values import CleanerConfig
from klog.storage.cleaner.cleaning import clean
from klog.storage.cleaner.closed_log import open_closed_log
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.cleaner.swap import remove, swap_in
from klog.storage.cleaner.task import CleanedGroup
from klog.storage.cleaner.throttle import Throttle
from klog.storage.cleaner.view import LastRecords, LogView
from klog.storage.cleaner.worker import WorkerDiedError, clean_in_worker
from tests.storage.cleaner.logs import FOREVER_MS, NOW_MS, LogWriter
from tests.storage.cleaner.test_swap import last_values, records_of

WAIT_S = 30


class DirectoryLog:
    """A log of the cleaner that is a directory without writers."""

    def __init__(self, directory: Path, number: int, **config: str) -> None:
        self.partition = TopicPartition("events", number)
        self.directory = directory / str(self.partition)
        self.log_directory = str(directory)
        self.config: TopicConfig = default_topic_config(
            {"cleanup.policy": "compact"} | {name.replace("_", "."): value for name, value in config.items()}
        )
        self.retention_runs = 0
        self.failing: OSError | None = None
        self.was_truncated = False

    def _open(self) -> Any:
        return open_closed_log(
            str(self.directory),
            self.partition,
            self.config,
            log_start_offset=0,
            now_ms=NOW_MS,
            producer_expiration_ms=FOREVER_MS,
        )

    def view(self) -> LogView:
        view: LogView = self._open().view
        return view

    def last_records(self) -> LastRecords:
        records: LastRecords = self._open().last_records
        return records

    def replace_segments(self, group: CleanedGroup) -> None:
        if self.failing is not None:
            raise self.failing
        remove(swap_in(str(self.directory), group))

    def delete_old_segments(self, now_ms: int) -> None:
        self.retention_runs += 1


def make(directory: Path, number: int, *, repeats: int = 20, **config: str) -> DirectoryLog:
    log = DirectoryLog(directory, number, **config)
    writer = LogWriter(log.directory)
    for repeat in range(repeats):
        writer.data([(b"key-%d" % key, b"%d" % repeat) for key in range(50)])
    writer.roll()
    writer.finish()
    return log


class Broker:
    """Collects what the cleaner reports to the broker."""

    def __init__(self, directory: Path, *logs: DirectoryLog, **more: Any) -> None:
        self.logs = list(logs)
        self.failed: list[tuple[str, Exception]] = []
        self.aside: list[tuple[TopicPartition, Exception]] = []
        config = more.pop("config", CleanerConfig(dedupe_buffer_bytes=1 << 20, backoff_ms=10))
        self.cleaner = LogCleaner(
            lambda: list(self.logs),
            [str(each) for each in more.pop("directories", [directory])],
            config,
            clock_ms=lambda: NOW_MS,
            on_directory_failure=lambda path, error: self.failed.append((path, error)),
            on_uncleanable=lambda partition, error: self.aside.append((partition, error)),
            **({"clean": clean} | more),
        )
        self.checkpoint = CleanerCheckpointFile(str(directory))


def test_the_dirtiest_log_is_cleaned_and_its_checkpoint_written(tmp_path: Path) -> None:
    dirty, half = make(tmp_path, 0), make(tmp_path, 1, min_cleanable_dirty_ratio="0.9")
    before = records_of(dirty.directory)
    broker = Broker(tmp_path, dirty, half)
    broker.checkpoint.write({half.partition: 500})
    assert broker.cleaner.clean_dirtiest()
    assert broker.checkpoint.read() == {dirty.partition: 1000, half.partition: 500}
    after = records_of(dirty.directory)
    assert len(after) == 50
    assert last_values(after) == last_values(before)
    assert not broker.cleaner.clean_dirtiest()
    assert len(records_of(half.directory)) == 1000


def test_retention_is_applied_to_compacted_logs_each_round(tmp_path: Path) -> None:
    compacted, other = make(tmp_path, 0), make(tmp_path, 1, cleanup_policy="delete")
    Broker(tmp_path, compacted, other).cleaner.clean_dirtiest()
    assert (compacted.retention_runs, other.retention_runs) == (1, 0)


def test_a_checkpoint_outside_of_the_log_is_reset(tmp_path: Path) -> None:
    log = make(tmp_path, 0, min_compaction_lag_ms=str(NOW_MS), max_compaction_lag_ms=str(NOW_MS))
    broker = Broker(tmp_path, log)
    broker.checkpoint.write({log.partition: 5000, TopicPartition("gone", 0): 7})
    broker.cleaner.clean_dirtiest()
    assert broker.checkpoint.read() == {log.partition: 0}


def test_a_damaged_log_is_set_aside_and_counted(tmp_path: Path) -> None:
    log, sound = make(tmp_path, 0, repeats=30), make(tmp_path, 1, min_cleanable_dirty_ratio="0.1")
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    broker = Broker(tmp_path, log, sound)
    broker.checkpoint.write({sound.partition: 999})
    assert not broker.cleaner.clean_dirtiest()
    assert [partition for partition, _ in broker.aside] == [log.partition]
    assert "checksum" in str(broker.aside[0][1])
    assert bytes(data) == path.read_bytes()
    assert broker.cleaner.uncleanable_count(str(tmp_path)) == 1
    assert broker.cleaner.uncleanable_bytes(str(tmp_path)) == len(data)
    assert broker.cleaner.clean_dirtiest()  # the other one is cleaned
    assert broker.failed == []


def test_a_failing_disk_is_reported_and_the_log_not_set_aside(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    log.failing = OSError(errno.EIO, "gone")
    broker = Broker(tmp_path, log)
    assert not broker.cleaner.clean_dirtiest()
    assert [path for path, _ in broker.failed] == [str(tmp_path)]
    assert broker.cleaner.uncleanable_count(str(tmp_path)) == 0
    assert broker.checkpoint.read() == {log.partition: 0}


def test_a_paused_log_is_not_cleaned(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    broker = Broker(tmp_path, log)
    with broker.cleaner.paused(log.partition):
        assert not broker.cleaner.clean_dirtiest()
    assert broker.cleaner.clean_dirtiest()


def test_retention_of_other_logs_pauses_them(tmp_path: Path) -> None:
    log = make(tmp_path, 0, cleanup_policy="delete")
    broker = Broker(tmp_path, log)
    with broker.cleaner.retention_of_others() as partitions:
        assert partitions == [log.partition]
        log.config = default_topic_config({"cleanup.policy": "compact"})
        assert not broker.cleaner.clean_dirtiest()
    assert broker.cleaner.clean_dirtiest()


def test_aborting_waits_until_the_cleaning_has_stopped_and_left_no_files(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    before = records_of(log.directory)
    started, wanted = threading.Event(), threading.Event()

    def slow(task: Any, on_group: Any, on_bytes: Any) -> Any:
        def watched(advanced: int) -> None:
            started.set()
            wanted.wait(WAIT_S)
            on_bytes(advanced)

        return clean(task, on_group, watched)

    broker = Broker(tmp_path, log, clean=slow)
    broker.cleaner.start()
    try:
        assert started.wait(WAIT_S)
        threading.Timer(0.2, wanted.set).start()
        broker.cleaner.abort_and_pause(log.partition)
        assert wanted.is_set()
        assert records_of(log.directory) == before
        assert not list(log.directory.glob("*.cleaned"))
        assert log.partition not in broker.checkpoint.read()
        broker.cleaner.resume([log.partition])
    finally:
        broker.cleaner.stop()


def test_threads_clean_what_becomes_dirty_until_they_are_stopped(tmp_path: Path) -> None:
    logs = [make(tmp_path, number) for number in range(3)]
    broker = Broker(tmp_path, *logs, config=CleanerConfig(2, 1 << 20, backoff_ms=5))
    broker.cleaner.start()
    try:
        waiting = threading.Event()
        for _ in range(WAIT_S * 100):
            if len(broker.checkpoint.read()) == 3:
                break
            waiting.wait(0.01)
    finally:
        broker.cleaner.stop()
    assert broker.checkpoint.read() == {log.partition: 1000 for log in logs}
    assert broker.cleaner.gauges()["DeadThreadCount"] == 0
    assert broker.cleaner.gauges()["cleaner-recopy-percent"] < 20


def test_checkpoints_follow_truncation_and_deletion(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    broker = Broker(tmp_path, log)
    broker.cleaner.clean_dirtiest()
    broker.cleaner.truncated(log.partition, str(tmp_path), 700)
    assert broker.checkpoint.read() == {log.partition: 700}
    broker.cleaner.truncated(log.partition, str(tmp_path), 900)
    assert broker.checkpoint.read() == {log.partition: 700}
    broker.cleaner.forget([log.partition], str(tmp_path))
    assert broker.checkpoint.read() == {}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_checkpoint_of_a_log_moves_with_it_if_it_can_be_read(tmp_path: Path, is_damaged: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    log = make(tmp_path, 0)
    broker = Broker(tmp_path, log, directories=[tmp_path, other])
    broker.cleaner.clean_dirtiest()
    cleaned = broker.checkpoint.read()
    if is_damaged:
        Path(broker.checkpoint.path).write_text("no checkpoint\n")
    broker.cleaner.moved(log.partition, str(tmp_path), str(other))
    assert CleanerCheckpointFile(str(other)).read() == ({} if is_damaged else cleaned)
    assert broker.checkpoint.read() == {}
    assert broker.failed == []


def test_threads_share_the_buffers() -> None:
    settings = CleanerConfig(threads=4, dedupe_buffer_bytes=400, io_buffer_bytes=4000).of_one_thread
    assert (settings.dedupe_buffer_bytes, settings.io_buffer_bytes) == (100, 1000)


# In a process of its own


def test_a_worker_cleans_as_this_process_does(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    broker = Broker(tmp_path, log, clean=clean_in_worker)
    assert broker.cleaner.clean_dirtiest()
    assert len(records_of(log.directory)) == 50
    assert broker.checkpoint.read() == {log.partition: 1000}
    assert broker.cleaner.metrics.last_stats[0].records_read == 1000


def test_damage_found_by_a_worker_is_the_same_error(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    broker = Broker(tmp_path, log, clean=clean_in_worker)
    broker.cleaner.clean_dirtiest()
    ((partition, error),) = broker.aside
    assert partition == log.partition
    assert str(path) in str(error)
    assert "checksum" in str(error)


def test_a_missing_file_in_a_worker_is_a_failing_disk(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    view = log.view()
    log.view = lambda: view  # type: ignore[method-assign]
    log.last_records = dict  # type: ignore[method-assign,assignment]
    (log.directory / f"{0:020d}.log").unlink()
    broker = Broker(tmp_path, log, clean=clean_in_worker)
    broker.cleaner.clean_dirtiest()
    assert [path for path, _ in broker.failed] == [str(tmp_path)]


def test_an_aborted_worker_leaves_no_file(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    broker = Broker(tmp_path, log)
    before = sorted(path.name for path in log.directory.iterdir())

    class StoppedError(Exception):
        pass

    def stop(_: object) -> None:
        raise StoppedError

    def stopped(task: Any, on_group: Any, on_bytes: Any) -> Any:
        with pytest.raises(StoppedError):
            clean_in_worker(task, stop, on_bytes)
        assert not list(log.directory.glob("*.cleaned"))
        return clean(task, on_group, on_bytes)

    broker.cleaner._clean = stopped
    assert broker.cleaner.clean_dirtiest()
    assert sorted(path.name for path in log.directory.iterdir()) == before


def test_a_worker_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make(tmp_path, 0)
    monkeypatch.setattr("sys.executable", "/bin/false")
    broker = Broker(tmp_path, log, clean=clean_in_worker)
    broker.cleaner.clean_dirtiest()
    assert isinstance(broker.aside[0][1], WorkerDiedError)
    assert os.path.exists(log.directory / f"{0:020d}.log")


@pytest.mark.parametrize("said", [b"", pickle.dumps("a task")[:-3]])
def test_a_worker_whose_broker_dies_before_sending_the_task_ends_silently(said: bytes) -> None:
    command = [sys.executable, "-m", "klog.storage.cleaner.worker"]
    done = subprocess.run(command, input=said, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_worker_whose_broker_dies_during_its_work_ends_silently_and_leaves_no_file(tmp_path: Path) -> None:
    log = make(tmp_path, 0)
    broker = Broker(tmp_path, log)
    before = sorted(path.name for path in log.directory.iterdir())

    def abandoned(task: Any, on_group: Any, on_bytes: Any) -> Any:
        command = [sys.executable, "-m", "klog.storage.cleaner.worker"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stderr is not None
            worker.stdout.close()  # first, so that its first report has no reader
            worker.stdin.write(pickle.dumps(task))
            worker.stdin.close()
            assert (worker.wait(60), worker.stderr.read()) == (0, b"")
        assert sorted(path.name for path in log.directory.iterdir()) == before
        return clean(task, on_group, on_bytes)

    broker.cleaner._clean = abandoned
    assert broker.cleaner.clean_dirtiest()


# Throttling


def test_bytes_wait_for_those_before_them() -> None:
    now = 0.0
    waits: list[float] = []
    throttle = Throttle(1000, waits.append, lambda: now)
    throttle.take(500)
    throttle.take(500)
    now = 5.0
    throttle.take(100)
    assert waits == pytest.approx([0.5, 1.0, 0.1])


def test_without_a_limit_there_is_no_waiting() -> None:
    waits: list[float] = []
    Throttle(float("inf"), waits.append).take(1 << 40)
    assert waits == []


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name.startswith("log-cleaner")]
