"""Requests of clients to coordinators, as frames, and what the answers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, decode_response, encode_request, request_class
from tests.simulation.frames import answers_in, frame_of, highest_version
from tests.simulation.scripts import FAILED

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.network import Answer


class Asked:
    """One request, which may be sent again as it is."""

    def __init__(self, api_key: int, version: int | None = None, /, **fields: Value) -> None:
        self.api_key = api_key
        self.version = highest_version(api_key, version)
        body = encode_request(build(request_class(api_key, self.version), **fields))
        self.frame = frame_of(api_key, self.version, (body,))

    def handle(self, broker: SimulatedBroker, answer: Answer) -> None:
        """The request arrives."""
        self.serve(broker, answer)

    def serve(
        self,
        broker: SimulatedBroker,
        answer: Callable[[Entity], object],
        on_handled: Callable[[int], object] = lambda _frames: None,
    ) -> None:
        """As `Serving.serve`; the answer is decoded."""

        def answered(frames: bytes) -> None:
            (found,) = self.answers(frames)
            answer(found)

        broker.serving.serve(self.frame, answered, on_handled=on_handled)

    def answers(self, frames: bytes) -> list[Entity]:
        """The answers to this request, or to several of its kind."""
        bodies = answers_in(self.api_key, self.version, frames)
        return [decode_response(self.api_key, self.version, each) for each in bodies]


def error_of(answer: Any) -> ErrorCode | None:
    """The error of a whole answer; None if there is no answer."""
    return None if answer is FAILED else ErrorCode(int(answer.error_code))
