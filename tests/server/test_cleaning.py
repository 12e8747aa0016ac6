"""The cleaner inside the broker."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.formats.names import FileKind, TopicPartition
from klog.server.logs.cleaning import ServedLogs, open_cleaner
from klog.storage.cleaner.checkpoint_file import CleanerCheckpointFile
from tests.storage.log.building import append, batch
from tests.storage.log.managing import Managed

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def cleaned(tmp_path: Path):
    """A compacted log that has been cleaned up to an offset above 10, with what is needed to truncate it."""
    broker = Managed(tmp_path / "logs", topics={"t": {"cleanup.policy": "compact", "segment.bytes": "2000"}})
    manager = broker.start()
    cleaner = open_cleaner(manager, manager.online, BrokerConfig({}), broker.clock)
    served = ServedLogs(manager, cleaner, lambda topic: None)
    log = served.get_or_create(PARTITION, None, is_new=True)
    for repeat in range(20):
        append(log, batch([b"v" * 400], key=b"%d" % (repeat % 3)))
    log.set_high_watermark(log.log_end_offset)
    assert cleaner.clean_dirtiest()
    assert first_dirty_offset(broker) > 10
    yield broker, cleaner, served, log
    broker.stop()


def first_dirty_offset(broker: Managed) -> int:
    (directory,) = broker.manager.online
    return CleanerCheckpointFile(directory).read()[PARTITION]


def test_configs_are_read_once_for_all_partitions_of_a_topic_that_are_created_together(
    tmp_path: Path,
) -> None:
    broker = Managed(tmp_path / "logs")
    manager = broker.start()
    read: list[str] = []
    served = ServedLogs(
        manager, open_cleaner(manager, manager.online, BrokerConfig({}), broker.clock), read.append
    )
    with served.creating():
        for topic in ("t", "u"):
            for number in range(3):
                served.get_or_create(TopicPartition(topic, number), None, is_new=True)
    assert read == ["t", "u"]
    served.get_or_create(TopicPartition("t", 3), None, is_new=True)
    assert read == ["t", "u", "t"]
    broker.stop()


@pytest.mark.parametrize("change", ["truncate_to", "restart_at"])
def test_a_truncated_log_is_dirty_from_there_on_and_is_not_cleaned_meanwhile(
    cleaned, monkeypatch, change: str
) -> None:
    broker, cleaner, served, log = cleaned
    for repeat in range(10):
        append(log, batch([b"w" * 400], key=b"%d" % (repeat % 3)))
    log.set_high_watermark(log.log_end_offset)
    truncate, found = getattr(broker.manager, change), []

    def watched(offsets):
        found.append(cleaner.clean_dirtiest())
        return truncate(offsets)

    monkeypatch.setattr(broker.manager, change, watched)
    absent = TopicPartition("t", 7)
    failed = getattr(served, change)({PARTITION: 10, absent: 10})
    assert (found, list(failed)) == ([False], [absent])
    assert (log.log_end_offset, first_dirty_offset(broker)) == (10, 10)
    for repeat in range(20):
        append(log, batch([b"x" * 400], key=b"%d" % (repeat % 3)))
    log.set_high_watermark(log.log_end_offset)
    assert cleaner.clean_dirtiest(), "it is cleaned again afterwards"


def test_a_deleted_log_is_forgotten_by_the_cleaner(cleaned) -> None:
    broker, _cleaner, served, _log = cleaned
    assert served.delete([PARTITION]) == {}
    with pytest.raises(KeyError):
        first_dirty_offset(broker)


def test_a_disk_that_fails_under_the_cleaner_holds_up_nobody_who_deletes_that_log(tmp_path: Path) -> None:
    broker = Managed(tmp_path / "logs", topics={"t": {"cleanup.policy": "compact", "segment.bytes": "2000"}})
    manager = broker.start()
    cleaner = open_cleaner(manager, manager.online, BrokerConfig({}), broker.clock)
    served = ServedLogs(manager, cleaner, lambda topic: None)
    log = served.get_or_create(PARTITION, None, is_new=True)
    for repeat in range(20):
        append(log, batch([b"v" * 400], key=b"%d" % repeat))
    log.set_high_watermark(log.log_end_offset)
    os.unlink(log.segments[0].path(FileKind.LOG))
    # Like the replica manager: a failing directory is reported after a deletion that is running.
    changing = threading.RLock()
    report = broker.listener.directory_failed

    def report_when_free(directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:
        with changing:
            report(directory, partitions, why)

    broker.listener.directory_failed = report_when_free  # type: ignore[method-assign]
    cleaning = threading.Thread(target=cleaner.clean_dirtiest, daemon=True)
    with changing:
        cleaning.start()
        cleaning.join(30)
        assert not cleaning.is_alive()
        assert broker.listener.failed == []
    broker.pass_ms(0)
    assert broker.listener.failed == [(str(tmp_path / "logs"), (PARTITION,))]
