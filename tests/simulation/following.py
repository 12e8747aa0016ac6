"""The follower side of a simulated broker: a `FetchDriver` for each leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from klog.drivers.fetching import FetchDriver, FetchListeners
from klog.formats.names import TopicPartition
from klog.replication.fetching.fetcher import Fetcher
from klog.replication.fetching.values import FetcherRequest, FetchSettings
from klog.server.fetching.manager import FetcherManager, NewThread
from klog.server.fetching.requests import exchange_of
from klog.storage.log.partition_log import PartitionLog
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.frames import ask_frame, highest_version

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

BACKOFF_MS = 200
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
        self.driver = FetchDriver(
            lambda truncated: new_fetcher(truncated=truncated),
            FetchListeners(self._received, self._high_watermark_moved, self._truncated),
        )
        self.fetcher = self.driver.fetcher
        self.add = self.driver.add
        self.remove = self.driver.remove
        self.remove_all = self.driver.remove_all
        self._loop = DriverLoop(broker, self.driver, self._send)

    @property
    def is_alive(self) -> bool:
        return self._loop.is_alive

    def start(self) -> None:
        """The first partition wakes the loop."""

    def stop(self) -> None:
        self._loop.stop()

    def _send(self, request: FetcherRequest, reply: Reply) -> None:
        leader = self._broker.world.brokers.get(self.fetcher.leader_id)
        api_key, version, body, decode = exchange_of(request, highest_version)
        ask_frame(self._broker, leader, api_key, version, (body,), decode, reply)

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
