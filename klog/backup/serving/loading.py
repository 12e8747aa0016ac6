"""Loads blocks while those who need them wait, for a bounded time.

A call to an object store that hangs may take minutes, and nothing can end it. So each load has a thread of
its own, which goes on when nobody waits any more. While the store does not answer, nobody waits at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Final

from klog.backup.reading import is_damage
from klog.backup.serving.blocks import Block
from klog.formats.errors import StorageError

_log = logging.getLogger(__name__)

WAIT_S: Final = 10.0
"""So long a reader waits for the repository. Clients give up after 30 s (`request.timeout.ms`)."""
FAILURE_LASTS_S: Final = 5.0
"""What could not be read is asked for again after so long."""
_MOST_THREADS: Final = 16
_CURE: Final = "it is asked again after some seconds"


class Loads:
    """The loads of all partitions. Safe for threads."""

    wait_s: float = WAIT_S

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._begun: dict[Hashable, Future[Block]] = {}
        self._unreachable_until_s = 0.0
        self._is_told = False

    def wait_for(self, key: Hashable, load: Callable[[], Block], place: str) -> Block:
        """What `load` gives of the object at `place`, if that is there in time.

        Raises what it raises, and `StorageError` with an OSError as its cause if the repository does not
        answer; then later calls do so for some seconds. The log says once that it does not, until it does.
        """
        try:
            block = self._future_of(key, load, place).result(self.wait_s)
        except TimeoutError as error:
            raise self._unreachable(_no_answer(place)) from error
        except StorageError as error:
            if not is_damage(error):
                self._unreachable(error)
            raise
        self._is_told = False
        return block

    def _future_of(self, key: Hashable, load: Callable[[], Block], place: str) -> Future[Block]:
        with self._lock:
            future = self._begun.get(key)
            if self.monotonic_s() < self._unreachable_until_s or len(self._begun) >= _MOST_THREADS:
                raise _no_answer(place) from TimeoutError()
            if future is None:
                future = self._begun[key] = Future()
                arguments = (key, load, future)
                threading.Thread(target=self._run, args=arguments, name="klog-load", daemon=True).start()
            return future

    def _run(self, key: Hashable, load: Callable[[], Block], future: Future[Block]) -> None:
        try:
            block = load()
        except BaseException as error:
            self._end(key)
            future.set_exception(error)
        else:
            self._end(key)
            future.set_result(block)

    def _end(self, key: Hashable) -> None:
        """Let the next call begin a load; those that wait still get this one's result."""
        with self._lock:
            del self._begun[key]

    def _unreachable(self, error: StorageError) -> StorageError:
        """The error, after which nobody waits for some seconds."""
        with self._lock:
            self._unreachable_until_s = self.monotonic_s() + FAILURE_LASTS_S
            is_told, self._is_told = self._is_told, True
        if not is_told:
            _log.warning("%s", error)
        return error


def _no_answer(place: str) -> StorageError:
    return StorageError("the repository does not answer", file=place, cure=_CURE)
