"""How a simulated controller sends its requests: one `ControlDriver` for each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.drivers.control_requests import ControlDriver, QueuedRequest
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.frames import ask

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker


class Sender:
    """Sends the controller's requests to one broker, each until it is answered."""

    def __init__(self, broker: SimulatedBroker, to: int) -> None:
        self._broker = broker
        self._to = to
        driver = ControlDriver(to, broker.put)
        self.put = driver.put
        self._loop = DriverLoop(broker, driver, self._send)

    def stop(self) -> None:
        self._loop.stop()

    def _send(self, queued: QueuedRequest, reply: Reply) -> None:
        target = self._broker.world.brokers.get(self._to)
        ask(self._broker, target, lambda answer: target.obey(queued.request, answer), reply)  # type: ignore[union-attr]
