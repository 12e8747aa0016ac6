"""The work that logs leave to the scheduler: flushes, unlinking of old files, failures of their disk."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from klog.formats.errors import KlogError, StorageError
from klog.storage.log.descriptors import are_exhausted
from klog.storage.log.log_map import parent_of
from klog.storage.log.log_values import FlushedLog, GuardedLog
from klog.storage.log.scheduler import Scheduler
from klog.storage.log.second_opinions import SecondOpinions

_log = logging.getLogger(__name__)

# How long to wait for descriptors before a directory is removed again.
_AGAIN_MS: Final = 60_000


class BackgroundTasks:
    """The `Background` of a log manager's logs.

    `directory_failed` takes a log directory offline; it is called from the scheduler's thread.
    """

    def __init__(
        self, scheduler: Scheduler, directory_failed: Callable[[str, OSError | KlogError], None]
    ) -> None:
        self._scheduler = scheduler
        self._directory_failed = directory_failed
        self.opinions = SecondOpinions()

    def flush(self, log: FlushedLog, up_to_offset: int) -> None:
        """Force a log to disk soon."""

        def flush() -> None:
            try:
                log.flush(up_to_offset)
            except (OSError, StorageError) as error:
                _log.debug("%s could not be flushed: %s", log, error)

        self._scheduler.after(0, flush)

    def delete_later(self, log: GuardedLog, paths: Sequence[str], delay_ms: int) -> None:
        """Unlink files after a delay. If this broker stops before, the next start finds and unlinks them."""

        def unlink() -> None:
            for path in paths:
                # The log's directory may have been renamed meanwhile.
                current = os.path.join(log.directory, os.path.basename(path))
                try:
                    os.unlink(current)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._directory_failed(parent_of(log), error)
                    return

        self._scheduler.after(delay_ms, unlink)

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Remove the directory of a deleted log after a delay."""

        def remove() -> None:
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                return
            except OSError as error:
                self._directory_failed(os.path.dirname(path), error)
                if are_exhausted(error):
                    self.remove_later(path, _AGAIN_MS)

        self._scheduler.after(delay_ms, remove)

    def failed(self, log: GuardedLog, error: OSError | StorageError) -> None:
        """The disk has failed under a log: take its log directory offline soon."""
        self.fails_soon(parent_of(log), error)

    def fails_soon(self, path: str, error: OSError | KlogError) -> None:
        """Take a log directory offline from the scheduler's thread.

        For callers that hold locks which `directory_failed` may need, or that others wait for.
        """
        self._scheduler.after(0, lambda: self._directory_failed(path, error))
