"""Opens the metadata store that the configs name: ZooKeeper, or a file in the first log directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from klog.config.broker import BrokerConfig
from klog.metadata.store import MetadataStore


def open_store(
    config: BrokerConfig, first_log_directory: str, is_stopping: Callable[[], bool] = lambda: False
) -> MetadataStore:
    """Open the store. Raises `StoreError` if it cannot be reached, or if another process uses it,
    `WaitCancelledError` if `is_stopping` becomes true meanwhile, `ConfigError`.
    """
    hosts = config.text("zookeeper.connect")
    if not hosts:
        from klog.metadata.embedded import FILE_NAME, EmbeddedStore

        return EmbeddedStore(Path(os.path.join(first_log_directory, FILE_NAME)))
    from klog.metadata.zookeeper import ZooKeeperStore
    from klog.server.startup.zookeeper_access import read_access

    session_ms = config.number("zookeeper.session.timeout.ms")
    connect = config["zookeeper.connection.timeout.ms"]
    return ZooKeeperStore(
        hosts,
        read_access(config),
        session_timeout_ms=session_ms,
        connect_timeout_ms=connect if isinstance(connect, int) else session_ms,
        is_stopping=is_stopping,
    )
