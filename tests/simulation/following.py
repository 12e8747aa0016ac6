"""The follower side of a simulated broker: a `Fetcher` for each leader, driven as its thread does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from klog.formats.names import TopicPartition
from klog.protocol.fetch_request import encode_fetch_request
from klog.protocol.fetch_response import FetchResponse, decode_fetch_response
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
from klog.replication.following import start_of
from klog.replication.roles import Role
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

BACKOFF_MS = 400
MAX_WAIT_MS = 500
_IDLE_CHECK_MS = 200


class FetcherLoop:
    """Sends the requests of one fetcher, one at a time, and gives it what comes back."""

    def __init__(self, broker: SimulatedBroker, leader_id: int) -> None:
        self._broker = broker
        self.fetcher = Fetcher(
            leader_id,
            FetchSettings(broker.broker_id, max_wait_ms=MAX_WAIT_MS, backoff_ms=BACKOFF_MS),
            broker.replicas,
            broker_epoch=lambda: broker.epoch,
            wall_clock_ms=broker.wall_ms,
            truncated=broker.checkpoint,
        )
        self._is_busy = False

    def go_on(self) -> None:
        """Send the next request, unless one is under way."""
        if self._is_busy:
            return
        broker, now_ms = self._broker, self._broker.clock_ms()
        request = self.fetcher.next_request(now_ms)
        self._is_busy = True
        if request is None:
            if self.fetcher.states:
                wait_ms = self.fetcher.idle_ms(now_ms)
                wait_ms = _IDLE_CHECK_MS if wait_ms is None else max(1, min(wait_ms, _IDLE_CHECK_MS))
                broker.after(wait_ms * US_PER_MS, self._free)
            else:
                self._is_busy = False
            return
        leader = broker.world.brokers.get(self.fetcher.leader_id)
        broker.world.network.request(
            broker.process,
            None if leader is None else leader.process,
            lambda answer: leader.answer_follower(request, answer),  # type: ignore[union-attr]
            lambda response: self._answered(request, response),
            lambda: self._failed(request),
        )

    def _free(self) -> None:
        self._is_busy = False
        self.go_on()

    def _answered(self, request: FetcherRequest, response: object) -> None:
        broker = self._broker
        if isinstance(request, Fetch):
            response = decode_fetch_response(request.version, response)  # type: ignore[arg-type]
        progress = self.fetcher.answered(request, response, broker.clock_ms())  # type: ignore[arg-type]
        for key in progress.high_watermark_moved:
            broker.fetch_purgatory.check_and_complete(key)
        if isinstance(response, FetchResponse) and progress.record_bytes:
            broker.world.counts["follower appends"] += 1
        self._free()

    def _failed(self, request: FetcherRequest) -> None:
        self.fetcher.failed(request, self._broker.clock_ms())
        self._free()


class Following:
    """All fetchers of one broker, by leader."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self.loops: dict[int, FetcherLoop] = {}

    def roles_changed(self, roles: Mapping[TopicPartition, Role]) -> None:
        """Fetch these partitions from their present leaders, or no longer."""
        for key, role in roles.items():
            partition = self._broker.replicas.partitions.get(key)
            start = None if partition is None or role is not Role.FOLLOWER else start_of(partition)
            leader_id = -1 if partition is None else partition.state.leader
            for each, loop in self.loops.items():
                if start is None or each != leader_id:
                    loop.fetcher.remove((key,))
            if start is not None:
                loop = self.loops.get(leader_id) or self._new(leader_id)
                loop.fetcher.add({key: start})
                loop.go_on()

    def _new(self, leader_id: int) -> FetcherLoop:
        self.loops[leader_id] = FetcherLoop(self._broker, leader_id)
        return self.loops[leader_id]


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
