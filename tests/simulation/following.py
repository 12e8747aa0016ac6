"""The follower side of a simulated broker: a `FetchDriver` for each leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from klog.drivers.fetching import FetchDriver, FetchListeners
from klog.formats.names import TopicPartition
from klog.protocol.fetch_request import encode_fetch_request
from klog.protocol.fetch_response import decode_fetch_response
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.values import (
    AskEpochEnds,
    AskOffsets,
    EpochAnswered,
    Fetch,
    FetcherRequest,
    FetchSettings,
    OffsetAnswered,
)
from klog.server.fetching.manager import FetcherManager, NewThread
from klog.storage.log.partition_log import PartitionLog
from tests.simulation.driver_loop import DriverLoop, Reply, ask

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

BACKOFF_MS = 400
MAX_WAIT_MS = 500
FETCHERS = 1


class SimulatedFetcherThread:
    """What `FetcherThread` does, in simulated time."""

    def __init__(self, broker: SimulatedBroker, leader_id: int) -> None:
        self._broker = broker
        new_fetcher = partial(
            Fetcher,
            leader_id,
            FetchSettings(broker.broker_id, max_wait_ms=MAX_WAIT_MS, backoff_ms=BACKOFF_MS),
            broker.replicas,
            broker_epoch=lambda: broker.epoch,
            wall_clock_ms=broker.wall_ms,
        )
        self._driver = FetchDriver(
            lambda truncated: new_fetcher(truncated=truncated),
            FetchListeners(self._received, self._high_watermark_moved, self._truncated),
        )
        self.fetcher = self._driver.fetcher
        self.add = self._driver.add
        self.remove = self._driver.remove
        self.remove_all = self._driver.remove_all
        self._loop = DriverLoop(broker, self._driver, self._send)

    @property
    def is_idle(self) -> bool:
        return self._driver.is_idle

    @property
    def is_alive(self) -> bool:
        return not self._loop.is_stopped

    def start(self) -> None:
        """The first partition wakes the loop."""

    def stop(self) -> None:
        self._loop.is_stopped = True

    def _send(self, request: FetcherRequest, reply: Reply) -> None:
        leader = self._broker.world.brokers.get(self.fetcher.leader_id)

        def decoded(answer: Any) -> None:
            is_fetched = isinstance(request, Fetch) and not isinstance(answer, Exception)
            reply(decode_fetch_response(request.version, answer) if is_fetched else answer)

        ask(self._broker, leader, lambda answer: leader.answer_follower(request, answer), decoded)  # type: ignore[union-attr]

    def _received(self, received: Mapping[TopicPartition, int]) -> None:
        self._broker.world.counts["follower appends"] += 1

    def _high_watermark_moved(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._broker.replicas.appended(key, high_watermark_moved=True)

    def _truncated(self, logs: Sequence[PartitionLog]) -> None:
        for log in logs:
            self._broker.checkpoint(log)


def follow(broker: SimulatedBroker) -> None:
    """Copy what the broker is told to follow."""
    new_thread = cast(NewThread, lambda leader_id, _number: SimulatedFetcherThread(broker, leader_id))
    manager = FetcherManager(broker.replicas, new_thread, FETCHERS, lambda _leader_id: None)
    broker.replicas.add_listener(manager.on_changes)


def encoded(request: Fetch) -> bytes:
    """The bytes of a Fetch request as they go over the wire."""
    return encode_fetch_request(request.version, request.request)


def answer_epoch_ends(
    broker: SimulatedBroker, request: AskEpochEnds, answer: Callable[[object], None]
) -> None:
    """What a leader answers to OffsetForLeaderEpoch."""
    answered = {}
    for key, asked in request.partitions.items():
        error, log = broker.led_log(key, asked.current_leader_epoch)
        if log is None:
            answered[key] = EpochAnswered(error)
        else:
            end = log.end_of_epoch(asked.leader_epoch)
            answered[key] = EpochAnswered(0, end.epoch, end.end_offset)
    answer(answered)


def answer_offsets(broker: SimulatedBroker, request: AskOffsets, answer: Callable[[object], None]) -> None:
    """What a leader answers to ListOffsets of a follower."""
    answered = {}
    for key, epoch in request.partitions.items():
        error, log = broker.led_log(key, epoch)
        if log is None:
            answered[key] = OffsetAnswered(error)
        else:
            latest = request.timestamp == -1
            answered[key] = OffsetAnswered(0, log.log_end_offset if latest else log.log_start_offset)
    answer(answered)
