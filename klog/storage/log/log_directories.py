"""The log directories of a broker as a whole: locked, identified, online or offline.

Rules: Kafka's `LogManager.createAndValidateLogDirs` and `MetaPropertiesEnsemble`. A directory that fails goes
offline and the others serve on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from klog.formats.errors import KlogError, StorageError
from klog.formats.meta_properties import MetaProperties
from klog.storage.log.data_directory import DataDirectory, DirectoryLockedError

_log = logging.getLogger(__name__)


class LogDirectories:
    """The log directories, in the order of `log.dirs`. Safe for threads.

    `on_failure` is called with the path of a directory that turns out to have failed, and with the error; it
    takes the directory offline.
    """

    def __init__(self, on_failure: Callable[[str, OSError | KlogError], None]) -> None:
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._online: dict[str, DataDirectory] = {}
        self._offline: dict[str, str] = {}

    def open(self, paths: Iterable[str]) -> None:
        """Create and lock the log directories; those that fail go offline.

        Raises `DirectoryLockedError` if another broker has locked one, `StorageError` if none is left.
        """
        for path in paths:
            directory = DataDirectory(path)
            try:
                directory.prepare()
                directory.take_lock()
            except DirectoryLockedError:
                self.release()
                raise
            except StorageError as error:
                self.set_offline(directory.path, error)
                continue
            with self._lock:
                self._online[directory.path] = directory
        self.require_one()

    def require_one(self) -> None:
        """Raises `StorageError` if no log directory is online."""
        if not self._online:
            raise StorageError("no log directory can be used", cure="see above why each of them failed")

    @property
    def online(self) -> tuple[str, ...]:
        """The paths of the directories in use."""
        with self._lock:
            return tuple(self._online)

    @property
    def offline(self) -> Mapping[str, str]:
        """The paths of the directories that have failed, and why."""
        with self._lock:
            return dict(self._offline)

    def get(self, path: str) -> DataDirectory | None:
        """A directory that is online."""
        return self._online.get(path)

    def identities(self) -> dict[str, MetaProperties | None]:
        """The `meta.properties` of each directory that is online (None: a new directory).

        Directories in which the file cannot be read go offline. Raises `StorageError` if none is left.
        """
        found = {}
        for path, directory in self._directories():
            try:
                found[path] = directory.read_identity()
            except (OSError, KlogError) as error:
                self._on_failure(path, error)
        self.require_one()
        return found

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Write `meta.properties` into the directories that have none. Directories that fail go offline.

        Raises `StorageError` if none is left.
        """
        for path, directory in self._directories():
            try:
                directory.write_identity(broker_id, cluster_id)
            except (OSError, KlogError) as error:
                self._on_failure(path, error)
        self.require_one()

    def _directories(self) -> list[tuple[str, DataDirectory]]:
        with self._lock:
            return list(self._online.items())

    def remove(self, path: str) -> DataDirectory | None:
        """Take a directory out of use; None if it is not in use."""
        with self._lock:
            return self._online.pop(path, None)

    def set_offline(self, path: str, error: OSError | KlogError, partitions: int = 0) -> None:
        """Remember and log why a directory, with so many partitions, is offline."""
        with self._lock:
            self._offline[path] = str(error)
        _log.error("log directory %s goes offline with %d partitions: %s", path, partitions, error)

    def release(self) -> None:
        """Unlock all directories."""
        for path, directory in self._directories():
            directory.release_lock()
            self.remove(path)
