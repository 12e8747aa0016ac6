"""Makes the moves of a broker's replicas between its log directories, from its configs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog.config.broker import BrokerConfig
from klog.config.dynamic import throttle
from klog.replication.quota import ReplicationQuota
from klog.replication.replica_manager import ReplicaManager
from klog.server.logs.log_dir_moves import LogDirMoves
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.log_manager import LogManager
from klog.storage.log.scheduler import monotonic_ms


def open_log_dir_moves(
    config: Callable[[], BrokerConfig],
    logs: LogManager,
    cleaner: LogCleaner,
    replicas: ReplicaManager,
    directories: Sequence[str],
    clock_ms: Callable[[], int],
) -> LogDirMoves:
    """The moves of a broker, which begin when replicas get their roles. To be closed."""
    at_start = config()
    limit = ReplicationQuota(
        lambda: throttle(config(), "replica.alter.log.dirs.io.max.bytes.per.second"),
        windows=at_start.number("alter.log.dirs.replication.quota.window.num"),
        window_ms=1000 * at_start.number("alter.log.dirs.replication.quota.window.size.seconds"),
    )
    threads = at_start["num.replica.alter.log.dirs.threads"]
    return LogDirMoves(
        logs,
        cleaner,
        replicas,
        directories,
        limit,
        threads=threads if isinstance(threads, int) else len(directories),
        backoff_ms=at_start.number("replica.fetch.backoff.ms"),
        timer_ms=monotonic_ms,
        clock_ms=clock_ms,
    )
