"""One log used by many threads at once, as a broker's threads use it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from klog.kernel.columns import BatchTable
from klog.kernel.kernel import scan, verify
from klog.storage.log import time_lookup
from klog.storage.log.reading import OffsetOutOfRangeError
from klog.storage.log.retention import apply_retention
from tests.storage.log.building import NOW_MS, Later, append, batch, bytes_of, new_log
from tests.threads import join, started

SECONDS = 1.0
AT_MOST_SECONDS = 60.0  # on a machine that is busy with other things


def test_readers_see_whole_batches_while_others_write_flush_and_delete(tmp_path: Path) -> None:
    configs = {"segment.bytes": "4096", "index.interval.bytes": "200", "retention.bytes": "20000"}
    log = new_log(tmp_path, configs, background=Later(flushes=False))
    ends, latest = time.monotonic() + SECONDS, time.monotonic() + AT_MOST_SECONDS
    failures: list[BaseException] = []
    done: dict[str, int] = {"read": 0, "written": 0, "deleted": 0}

    def write() -> None:
        append(log, batch(3))
        log.set_high_watermark(log.log_end_offset)
        done["written"] += 1

    def read() -> None:
        offset = (log.log_start_offset + log.log_end_offset) // 2
        try:
            found = log.read(offset, 3000, log.high_watermark, at_least_one=True)
        except OffsetOutOfRangeError:
            assert offset < log.log_start_offset
            return
        data = bytes_of(found)
        scan(data, 0, False, table := BatchTable())
        assert verify(data, table) == 0
        if len(table):
            assert table.base_offset[0] <= offset <= table.last_offset[0]
            done["read"] += 1

    def flush() -> None:
        log.flush()

    def delete() -> None:
        done["deleted"] += apply_retention(log, NOW_MS)

    def look_up() -> None:
        time_lookup.first_at_or_after(log, NOW_MS)

    def again_and_again(task: Callable[[], None]) -> None:
        try:
            while time.monotonic() < (ends if min(done.values()) else latest) and not failures:
                task()
        except BaseException as failure:
            failures.append(failure)
            raise

    tasks = (write, read, read, flush, delete, look_up)
    join([started(again_and_again, task) for task in tasks])
    assert failures == []
    assert min(done.values()) > 0
    assert log.log_end_offset == 3 * done["written"]
    log.close()
