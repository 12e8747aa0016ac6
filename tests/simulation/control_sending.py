"""How a simulated controller sends its requests: to each broker one at a time, as `BrokerChannels` does."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from klog.controller.events import ResponseReceived
from klog.metadata.control_requests import ControlRequest, ControlResponse
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

_RETRY_MS = 100


class Sender:
    """Sends the controller's requests to one broker, each until it is answered."""

    def __init__(self, broker: SimulatedBroker, to: int) -> None:
        self._broker = broker
        self._to = to
        self._queue: deque[ControlRequest] = deque()
        self._is_busy = False
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        self._queue.clear()

    def put(self, request: ControlRequest) -> None:
        self._queue.append(request)
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy or self._is_stopped or not self._queue:
            return
        self._is_busy = True
        broker, request = self._broker, self._queue[0]
        target = broker.world.brokers.get(self._to)
        broker.world.network.request(
            broker.process,
            None if target is None else target.process,
            lambda answer: target.obey(request, answer),  # type: ignore[union-attr]
            self._answered,
            self._failed,
        )

    def _answered(self, response: ControlResponse) -> None:
        self._is_busy = False
        if not self._is_stopped:
            request = self._queue.popleft()
            self._broker.put(ResponseReceived(self._to, request, response))
            self._go_on()

    def _failed(self) -> None:
        def again() -> None:
            self._is_busy = False
            self._go_on()

        self._broker.after(_RETRY_MS * US_PER_MS, again)
