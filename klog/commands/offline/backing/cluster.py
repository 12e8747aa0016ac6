"""A running cluster as the source of `klog backup run`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from klog.commands.shared.connection import ConnectionOptions

if TYPE_CHECKING:
    from klog.backup.sources import BackupSource


def cluster_source(connection: ConnectionOptions) -> Callable[[], AbstractContextManager[BackupSource]]:
    """Opens the cluster that the options name, anew for each run. Raises UsageError for bad options."""
    from klog.admin import connect
    from klog.backup.wire.source import WireSource

    settings = connection.settings()
    name = ",".join(map(str, settings.bootstrap))
    return lambda: WireSource(lambda: connect.cluster(settings), name)
