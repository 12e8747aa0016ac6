"""Forgets topics that were deleted while their controller did not reach this broker.

The next controller does not know that they were there, and says nothing of them. With Kafka they stay in the
metadata of the broker until it is started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from klog.formats.names import TopicPartition
from klog.jobs.worker import NewWorker, Worker
from klog.metadata.cache import MetadataCache
from klog.metadata.errors import StoreError

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
        self._controller_epoch = -1
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

    def look(self, controller_epoch: int) -> None:
        """Look for topics that no controller of this epoch or a later one has sent, soon."""
        self._controller_epoch = max(self._controller_epoch, controller_epoch)
        self._worker.wake()

    def _work(self) -> float | None:
        controller_epoch = self._controller_epoch
        try:
            existing = frozenset(self._topic_names())
        except StoreError as error:
            _log.debug("Topics that were deleted meanwhile are looked for again in %g s: %s", _RETRY_S, error)
            return _RETRY_S
        gone = self._cache.forget_others(existing, controller_epoch)
        if gone:
            names = sorted({each.topic for each in gone})
            _log.info("Topics that were deleted meanwhile are forgotten: %s", ", ".join(names))
            self._partitions_gone(gone)
        return None
