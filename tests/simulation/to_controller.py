"""How a simulated broker asks the controller: `ControllerRequests`, with requests as frames."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klog.drivers.controller_requests import Build, ControllerRequests, ForController, ToBroker
from klog.drivers.controller_requests import Reply as ReplyOfController
from klog.protocol.messages import decode_response, encode_request
from tests.simulation.driver_loop import DriverLoop, Reply
from tests.simulation.frames import ask_frame, highest_version

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker


class ToControllerLoop:
    """A `ToController` without its thread."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._requests = ControllerRequests(lambda: broker.cache.snapshot)
        DriverLoop(broker, self._requests, self._send)

    def send(
        self, api_key: int, build: Build, reply: ReplyOfController, *, timeout_ms: int | None = None
    ) -> None:
        deadline_ms = None if timeout_ms is None else self._broker.clock_ms() + timeout_ms
        self._requests.put(ForController(api_key, build, reply, deadline_ms))

    def _send(self, request: ToBroker, reply: Reply) -> None:
        api_key = request.wanted.api_key
        version = highest_version(api_key)
        ask_frame(
            self._broker,
            self._broker.world.brokers.get(request.broker.broker_id),
            api_key,
            version,
            (encode_request(request.wanted.build(version)),),
            partial(decode_response, api_key),
            reply,
        )
