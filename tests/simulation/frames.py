"""Requests and answers as the bytes that clients and brokers exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from klog.protocol.apis import SPOKEN
from klog.protocol.errors import ConnectionLostError
from klog.protocol.messages import decode_response_header, encode_request_header
from klog.protocol.primitives import INT32, Buffer

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.driver_loop import Reply

CLIENT_ID = "simulation"


_header = cache(encode_request_header)


def frame_of(api_key: int, version: int, body: Iterable[Buffer]) -> bytes:
    """A request with its size and header."""
    frame = b"".join((_header(api_key, version, 0, CLIENT_ID), *body))
    return INT32.pack(len(frame)) + frame


def answers_in(api_key: int, version: int, frames: bytes) -> Iterator[memoryview]:
    """The bodies of the answers to requests of one kind."""
    view, position = memoryview(frames), 0
    while position < len(frames):
        end = position + INT32.size + INT32.unpack_from(frames, position)[0]
        frame = view[position + INT32.size : end]
        yield frame[decode_response_header(api_key, version, frame)[1] :]
        position = end


def highest_version(api_key: int, at_most: int | None = None) -> int:
    """The version that brokers use among themselves."""
    return SPOKEN[api_key].max_version if at_most is None else min(at_most, SPOKEN[api_key].max_version)


def ask(
    broker: SimulatedBroker,
    to: SimulatedBroker | None,
    handle: Callable[[Callable[[Any], None]], None],
    reply: Reply,
) -> None:
    """Send something over the network."""

    def lost() -> None:
        reply(ConnectionLostError("lost"))

    process = None if to is None else to.process
    broker.world.network.request(broker.process, process, handle, reply, lost)


def ask_frame(
    broker: SimulatedBroker,
    to: SimulatedBroker | None,
    api_key: int,
    version: int,
    body: Iterable[Buffer],
    decode: Callable[[int, memoryview], Any],
    reply: Reply,
    *,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Send a request over the network. One that is not wanted any more when it arrives is not served."""
    frame = frame_of(api_key, version, body)

    def serve(answer: Callable[[bytes], None]) -> None:
        if is_wanted():
            to.serving.serve(frame, answer)  # type: ignore[union-attr]

    def answered(answer: Any) -> None:
        if isinstance(answer, Exception):
            reply(answer)
        else:
            reply(decode(version, next(answers_in(api_key, version, answer))))

    ask(broker, to, serve, answered)
