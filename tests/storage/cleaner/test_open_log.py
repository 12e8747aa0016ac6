"""A log is written to and read while it is cleaned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.config.topic import default_topic_config
from klog.formats.names import FileKind, TopicPartition
from klog.storage.cleaner.cleaner_values import CleanerConfig
from klog.storage.cleaner.cleaning import OnBytes, OnGroup, clean
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.cleaner.task import CleanedGroup, CleanResult, CleanTask
from klog.storage.cleaner.worker import clean_in_worker
from klog.storage.log.disk_guard import LogClosedError
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.upkeep import Upkeep
from tests.storage.cleaner.test_swap import last_values, records_of
from tests.storage.log.building import NOW_MS, Clock, Later, batch, new_log, reload
from tests.storage.log.managing import Managed

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "4000", "index.interval.bytes": "100"}


def filled(root: Path, background: Later) -> PartitionLog:
    log = new_log(root, CONFIG, background=background)
    for repeat in range(40):
        for key in (b"a", b"b", b"c"):
            log.append_as_leader(batch([b"%d" % repeat * 50], key=key), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    # Adjacent segments fit one segment from now on.
    log.reconfigure(default_topic_config(CONFIG | {"segment.bytes": "100000"}))
    return log


def cleaner_of(log: PartitionLog, background: Later, *, worker: bool) -> LogCleaner:
    def logs() -> list[OpenLog]:
        return [OpenLog(log, background, Clock())]

    return LogCleaner(
        logs,
        [os.path.dirname(log.directory)],
        CleanerConfig(dedupe_buffer_bytes=1 << 20),
        clock_ms=Clock(),
        on_directory_failure=lambda path, error: pytest.fail(f"{path}: {error}"),
        on_uncleanable=lambda partition, error: pytest.fail(f"{partition}: {error}"),
        clean=clean_in_worker if worker else clean,
    )


@pytest.mark.parametrize("worker", [False, True])
def test_readers_and_writers_continue_with_the_cleaned_log(tmp_path: Path, worker: bool) -> None:
    background = Later()
    log = filled(tmp_path, background)
    before = records_of(Path(log.directory))
    segments, end = len(log.segments), log.log_end_offset
    active_base = log.segments.active.base_offset
    old_read = log.read(0, 1000, end)
    assert cleaner_of(log, background, worker=worker).clean_dirtiest()
    assert len(log.segments) < segments
    assert log.segments.active.base_offset == active_base
    assert old_read.file is not None
    assert len(os.pread(old_read.file.fileno(), 1000, 0)) == 1000  # replaced segments can still be sent
    after = records_of(Path(log.directory))
    assert last_values(after) == last_values(before)
    assert len(after) < len(before)
    read = log.read(0, 1 << 20, end)
    assert read.file is not None
    assert read.file.path.endswith(f"{0:020d}.log")
    log.append_as_leader(batch(1, key=b"d"), 0, NOW_MS)
    assert log.log_end_offset == end + 1
    assert background.deletions
    assert all(path.endswith(".deleted") and os.path.exists(path) for path in background.deletions)


def test_a_log_that_is_no_longer_compacted_keeps_its_segments_until_its_cleaning_has_stopped(
    tmp_path: Path,
) -> None:
    where = TopicPartition("t", 0)
    broker = Managed(tmp_path / "logs", topics={"t": CONFIG})
    manager = broker.start()
    log = manager.get_or_create(where, None, is_new=True)
    for repeat in range(40):
        log.append_as_leader(batch([b"v" * 400], key=b"%d" % repeat), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    deleted: list[int] = []

    def clean_while_others_work(task: CleanTask, on_group: OnGroup, on_bytes: OnBytes) -> CleanResult:
        broker.topics["t"] = {"cleanup.policy": "delete", "retention.ms": "1000"}
        manager.reconfigure("t")
        broker.pass_ms(5000)
        deleted.append(upkeep.retain())
        return clean(task, on_group, on_bytes)

    cleaner = LogCleaner(
        lambda: [OpenLog(log, manager, broker.clock) for log in manager.logs()],
        manager.online,
        CleanerConfig(dedupe_buffer_bytes=1 << 20),
        clock_ms=broker.clock,
        on_directory_failure=lambda path, error: pytest.fail(f"{path}: {error}"),
        on_uncleanable=lambda partition, error: pytest.fail(f"{partition}: {error}"),
        clean=clean_while_others_work,
    )
    upkeep = Upkeep(manager, broker.clock, cleaner.retention_of_others)
    segments = list(log.segments.bases)
    assert not cleaner.clean_dirtiest()
    assert deleted == [0]
    assert list(log.segments.bases) == segments
    assert not list(Path(log.directory).glob("*.cleaned"))
    assert log.segments.bases[0] == 0
    assert upkeep.retain() > 0
    assert log.segments.bases[0] == log.log_start_offset == log.log_end_offset
    broker.stop()


def test_what_was_truncated_while_it_was_cleaned_does_not_come_back(tmp_path: Path) -> None:
    background = Later()
    log = filled(tmp_path, background)
    cut = log.segments.bases[1] + 1

    def truncate_meanwhile(task: CleanTask, on_group: OnGroup, on_bytes: OnBytes) -> CleanResult:
        def on_cleaned(group: CleanedGroup) -> None:
            log.truncate_to(cut)
            on_group(group)

        return clean(task, on_cleaned, on_bytes)

    cleaner = LogCleaner(
        lambda: [OpenLog(log, background, Clock())],
        [os.path.dirname(log.directory)],
        CleanerConfig(dedupe_buffer_bytes=1 << 20),
        clock_ms=Clock(),
        on_directory_failure=lambda path, error: pytest.fail(f"{path}: {error}"),
        on_uncleanable=lambda partition, error: pytest.fail(f"{partition}: {error}"),
        clean=truncate_meanwhile,
    )
    assert not cleaner.clean_dirtiest()
    assert log.log_end_offset == cut
    before = records_of(Path(log.directory))
    assert not list(Path(log.directory).glob("*.swap"))
    assert not list(Path(log.directory).glob("*.cleaned"))
    log.close()
    loaded, _ = reload(log, tmp_path)
    assert loaded.log_end_offset == cut
    assert records_of(Path(log.directory)) == before


def test_a_cleaned_log_loads_as_it_is(tmp_path: Path) -> None:
    background = Later()
    log = filled(tmp_path, background)
    cleaner_of(log, background, worker=False).clean_dirtiest()
    for path in background.deletions:
        os.unlink(path)
    log.close()
    records, end = records_of(Path(log.directory)), log.log_end_offset
    loaded, _ = reload(log, tmp_path)
    assert loaded.log_end_offset == end
    assert records_of(Path(log.directory)) == records


def test_a_view_has_the_contents_of_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path, Later())
    view = OpenLog(log, Later(), Clock()).view()
    assert [segment.base_offset for segment in view.segments] == log.segments.bases
    assert view.size_bytes == log.size_bytes
    assert (view.log_end_offset, view.last_stable_offset) == (120, 120)
    first = view.segments[0]
    assert (first.first_timestamp_ms, first.largest_timestamp_ms) == (NOW_MS, NOW_MS)
    path = log.segments[0].path(FileKind.OFFSET_INDEX)
    assert first.offset_index_bytes == os.path.getsize(path) > 0


def test_a_closed_log_is_not_changed(tmp_path: Path) -> None:
    log = filled(tmp_path, Later())
    view = OpenLog(log, Later(), Clock())
    cleaner = cleaner_of(log, Later(), worker=False)
    log.close()
    with pytest.raises(LogClosedError):
        view.view()
    assert not cleaner.clean_dirtiest()
