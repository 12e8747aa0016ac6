"""Copies partitions from one leader broker: drives a `Fetcher`, one request at a time.

Rules: Kafka's `AbstractFetcherThread.doWork`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from klog.drivers.driver import FOR_A_CALL, Driver, Effect, Send, Wait
from klog.formats.names import TopicPartition
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.values import FetcherAnswer, FetcherRequest, FetchStart
from klog.storage.log.partition_log import PartitionLog


class FetchListeners(NamedTuple):
    """The listeners for what fetching changes.

    `received` gets the bytes of records taken for partitions, `high_watermark_moved` the partitions that have
    more records for consumers, `truncated` the logs that were truncated.
    """

    received: Callable[[Mapping[TopicPartition, int]], object]
    high_watermark_moved: Callable[[Iterable[TopicPartition]], object]
    truncated: Callable[[Sequence[PartitionLog]], object]


class FetchDriver(Driver[FetcherRequest, FetcherAnswer]):
    """The partitions copied from one leader. `record_bytes` counts the bytes of records that were taken."""

    def __init__(
        self, new_fetcher: Callable[[Callable[[PartitionLog], None]], Fetcher], listeners: FetchListeners
    ) -> None:
        """`new_fetcher` makes the fetcher, which calls its argument for each log that it truncates."""
        super().__init__()
        self._truncated: list[PartitionLog] = []
        self._listeners = listeners
        self._under_way: FetcherRequest | None = None
        self.fetcher = new_fetcher(self._truncated.append)
        self.record_bytes = 0

    # -- partitions ------------------------------------------------------------------------------------------

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Copy these partitions, too."""
        self.fetcher.add(starts)
        self.wake()

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchStart]:
        """Stop copying partitions; returns how far they are. Nothing is appended to them any more."""
        return self.fetcher.remove(keys)

    def remove_all(self) -> dict[TopicPartition, FetchStart]:
        """Stop copying all partitions; returns how far they are."""
        return self.fetcher.remove([*self.fetcher.states, *self.fetcher.failed_partitions])

    @property
    def is_idle(self) -> bool:
        """Whether it has no partition."""
        return not self.fetcher.states and not self.fetcher.failed_partitions

    # -- the driver ------------------------------------------------------------------------------------------

    def next_step(self, now_ms: int) -> Send[FetcherRequest] | Wait:
        if self._under_way is not None:
            return FOR_A_CALL
        self._under_way = self.fetcher.next_request(now_ms)
        if self._under_way is not None:
            return Send(self._under_way)
        return Wait(now_ms + self.fetcher.idle_ms(now_ms)) if self.fetcher.states else FOR_A_CALL

    def answered(self, request: FetcherRequest, answer: FetcherAnswer, now_ms: int) -> None:
        if not self._ends(request):
            return
        progress = self.fetcher.answered(request, answer, now_ms)
        if progress.received:
            self.record_bytes += progress.record_bytes
            self._effects.append(partial(self._listeners.received, progress.received))
        if progress.high_watermark_moved:
            moved = progress.high_watermark_moved
            self._effects.append(partial(self._listeners.high_watermark_moved, moved))

    def failed(self, request: FetcherRequest, error: Exception, now_ms: int) -> None:  # noqa: ARG002
        if self._ends(request):
            self.fetcher.failed(request, now_ms)

    def _ends(self, request: FetcherRequest) -> bool:
        """Whether it is the request under way, which has ended now."""
        if request is not self._under_way:
            return False
        self._under_way = None
        return True

    def take_effects(self) -> list[Effect]:
        """Also after an error: `truncated` gets the logs that were truncated before it."""
        if self._truncated:
            logs, self._truncated[:] = list(self._truncated), []
            self._effects.insert(0, partial(self._listeners.truncated, logs))
        return super().take_effects()
