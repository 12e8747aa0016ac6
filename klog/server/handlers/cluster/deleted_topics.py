"""Forgets topics that were deleted while the controller did not reach this broker.

The next controller does not know that they were there, and says nothing of them. Nor does the same one when
this broker has registered again. With Kafka they stay in the broker's metadata until it is started again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klog.formats.names import TopicPartition
from klog.jobs.worker import NewWorker, Worker
from klog.metadata.cache import MetadataCache, Partitions
from klog.metadata.errors import StoreError
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest

_log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class DeletedTopics:
    """Compares what the broker knows with the tree, in a thread of its own: the tree may be away for long.

    `topic_names` reads the topics that exist, and raises `StoreError`. `partitions_gone` gets the partitions
    of those that are forgotten.
    """

    def __init__(
        self,
        cache: MetadataCache,
        topic_names: Callable[[], Iterable[str]],
        partitions_gone: Callable[[Iterable[TopicPartition]], None],
        new_worker: NewWorker = Worker,
    ) -> None:
        self._cache = cache
        self._topic_names = topic_names
        self._partitions_gone = partitions_gone
        # The epochs of the controller and of this broker's registration in the last update.
        self._epochs: tuple[int, int] | None = None
        self._lock = threading.Lock()
        # Guarded by the lock: the topics of which some may be gone.
        self._known: Mapping[str, Partitions] = {}
        self._worker = new_worker("klog-deleted-topics", self._work, retry_s=_RETRY_S)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self) -> None:
        """Let the thread end; it may still wait for the tree, until the store is closed."""
        self._worker.stop()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._worker.join()

    def on_update(self, update: UpdateMetadataRequest, known: Mapping[str, Partitions]) -> None:
        """An update has come; `known` are the topics before it.

        With the first one of a controller, or of a registration, look soon which of these are gone.
        """
        epochs = update.controller_epoch, update.broker_epoch
        if epochs != self._epochs:
            self._epochs = epochs
            if known:
                with self._lock:
                    self._known = known
                self._worker.wake()

    def _work(self) -> float | None:
        known = self._known
        try:
            existing = frozenset(self._topic_names())
        except StoreError as error:
            _log.debug("Topics that were deleted meanwhile are looked for again in %g s: %s", _RETRY_S, error)
            return _RETRY_S
        # What was created again after the tree was read has been updated since.
        gone = self._cache.forget({name: each for name, each in known.items() if name not in existing})
        with self._lock:
            if self._known is known:
                self._known = {}
        if gone:
            names = sorted({each.topic for each in gone})
            _log.info("Topics that were deleted meanwhile are forgotten: %s", ", ".join(names))
            self._partitions_gone(gone)
        return None
