"""How a simulated broker asks the controller: one request at a time, each until it is answered."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.formats.errors import KlogError
from klog.protocol.errors import RequestTimeoutError
from klog.protocol.messages import decode_response, encode_request
from klog.server.peers.controller_channel import LOOKUP_MS, RETRY_MS, Build, Reply, has_moved
from tests.simulation.frames import ask_frame, highest_version
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker


class _Queued(NamedTuple):
    api_key: int
    build: Build
    reply: Reply
    deadline_ms: int | None


class ToControllerLoop:
    """A `ToController` without its thread."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._queue: deque[_Queued] = deque()
        self._is_busy = False

    def send(self, api_key: int, build: Build, reply: Reply, *, timeout_ms: int | None = None) -> None:
        deadline_ms = None if timeout_ms is None else self._broker.clock_ms() + timeout_ms
        self._queue.append(_Queued(api_key, build, reply, deadline_ms))
        if not self._is_busy:
            self._is_busy = True
            self._broker.after(0, self._send_first)

    def _send_first(self) -> None:
        broker = self._broker
        now_ms = broker.clock_ms()
        for each in [
            each for each in self._queue if each.deadline_ms is not None and each.deadline_ms <= now_ms
        ]:
            self._queue.remove(each)
            each.reply(RequestTimeoutError("the controller did not answer in time"))
        if not self._queue:
            self._is_busy = False
            return
        controller_id = broker.cache.snapshot.controller_id
        if controller_id is None:
            self._pause(LOOKUP_MS)
            return
        first = self._queue[0]
        version = highest_version(first.api_key)
        ask_frame(
            broker,
            broker.world.brokers.get(controller_id),
            first.api_key,
            version,
            (encode_request(first.build(version)),),
            partial(decode_response, first.api_key),
            partial(self._answered, first),
        )

    def _pause(self, wait_ms: int) -> None:
        self._broker.after(wait_ms * US_PER_MS, self._send_first)

    def _answered(self, first: _Queued, answer: Any) -> None:
        if isinstance(answer, KlogError) or has_moved(answer):
            self._pause(RETRY_MS)
            return
        self._queue.popleft()
        first.reply(answer)
        self._send_first()
