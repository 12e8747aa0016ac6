"""How a simulated controller sends its requests: one `ControlDriver` for each broker, with frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.drivers.control_requests import ControlDriver, QueuedRequest
from klog.metadata.control_requests import ControlResponse, control_response
from klog.protocol.messages import decode_response, encode_request
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.frames import ask_frame

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
        request = queued.request
        api_key, version = int(request.__api_key__), int(request.__version__)

        def decode(version: int, body: memoryview) -> ControlResponse:
            return control_response(request, decode_response(api_key, version, body))

        target = self._broker.world.brokers.get(self._to)
        ask_frame(self._broker, target, api_key, version, (encode_request(request),), decode, reply)
