"""Closes the logs of a log directory at a clean stop.

Kafka forces each file of each log to disk by itself. With thousands of partitions that takes most of a stop,
so many logs are written first and then forced to disk at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from klog.storage.files.file_system_sync import (
    MANY,
    can_sync_file_system,
    is_on_same_file_system,
    sync_file_system,
)
from klog.storage.log.partition_log import PartitionLog


def close_logs(directory: str, logs: Sequence[PartitionLog], threads: int) -> None:
    """Close logs with everything on disk. Raises `LogClosedError`, `OSError`, `KlogError`."""
    ends: dict[PartitionLog, int] = {}
    if len(logs) >= MANY and can_sync_file_system():
        ends = {
            log: log.finish()
            for log in logs
            if not log.closed and is_on_same_file_system(log.directory, directory)
        }
        sync_file_system(directory)

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda log: log.close(ends.get(log)), logs):
            pass
