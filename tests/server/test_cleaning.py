"""The cleaner inside the broker."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from klog.config.broker import BrokerConfig
from klog.formats.names import FileKind, TopicPartition
from klog.server.cleaning import ServedLogs, open_cleaner
from tests.storage.log.building import NOW_MS, batch
from tests.storage.log.managing import Managed

WHERE = TopicPartition("t", 0)


def test_a_disk_that_fails_under_the_cleaner_holds_up_nobody_who_deletes_that_log(tmp_path: Path) -> None:
    broker = Managed(tmp_path / "logs", topics={"t": {"cleanup.policy": "compact", "segment.bytes": "2000"}})
    manager = broker.start()
    cleaner = open_cleaner(manager, manager.online, BrokerConfig({}), broker.clock)
    served = ServedLogs(manager, cleaner, lambda topic: None)
    log = served.get_or_create(WHERE, None, is_new=True)
    for repeat in range(20):
        log.append_as_leader(batch([b"v" * 400], key=b"%d" % repeat), 0, NOW_MS)
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
    assert broker.listener.failed == [(str(tmp_path / "logs"), (WHERE,))]
