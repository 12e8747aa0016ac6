"""Passes on what the log manager reports: logs that are loaded, and log directories that have failed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from klog.formats.names import TopicPartition
from klog.metadata.store import MetadataStore
from klog.replication.replica_manager import ReplicaManager
from klog.server.peers.registration import announce_failed_directory
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.manager_values import Progress


class LogEvents:
    """The listener of a broker's log manager.

    `replicas` is notified of a failed directory as soon as it is set, the cleaner and the controller between
    `begin` and `end`.
    """

    def __init__(self, on_loaded: Callable[[Progress], None], on_fatal: Callable[[str], None]) -> None:
        self._on_loaded = on_loaded
        self._on_fatal = on_fatal
        self._served: tuple[LogCleaner, MetadataStore, int] | None = None
        self.replicas: ReplicaManager | None = None

    def begin(self, cleaner: LogCleaner, store: MetadataStore, broker_id: int) -> None:
        """Inform these of failures from now on."""
        self._served = cleaner, store, broker_id

    def end(self) -> None:
        """Inform them no more, because the broker stops."""
        self._served = None

    def loaded(self, progress: Progress) -> None:
        """One more log has been loaded."""
        self._on_loaded(progress)

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:  # noqa: ARG002
        """A log directory has gone offline; the log manager has logged it."""
        served = self._served
        if served is not None:
            served[0].directory_failed(directory)
        if self.replicas is not None:
            self.replicas.directory_failed(partitions)
        if served is not None:
            # In a thread of its own, because it waits while ZooKeeper is away.
            _, store, broker_id = served
            name = "klog-log-dir-failure"
            Thread(target=announce_failed_directory, args=(store, broker_id), name=name, daemon=True).start()

    def all_directories_failed(self) -> None:
        """No log directory is left."""
        self._on_fatal("all log directories have failed")
