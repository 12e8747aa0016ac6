"""Reads requests and builds answers for handlers whose messages are entities.

An answer is built from the fields of all versions: `klog.protocol.messages.build` leaves out the fields that
the version does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from klog.protocol.entity_fields import Entity, Value
from klog.protocol.messages import build, decode_request, encode_response, response_class, response_struct
from klog.server.network.request import Request

# Runs work on a request in a thread that may wait.
InBackground: TypeAlias = Callable[[Request, Callable[[Request], None]], object]

NO_THROTTLE: Final = timedelta()
_MILLISECOND: Final = timedelta(milliseconds=1)


def entity_of(request: Request) -> Entity:
    """The request's entity. Raises `MalformedMessageError`."""
    return decode_request(request.api_key, request.api_version, request.body)


def milliseconds(duration: timedelta) -> int:
    """A timeout in ms; negative ones are kept, because they mean not to wait."""
    return duration // _MILLISECOND


def part(request: Request, name: str, /, **values: Value) -> Entity:
    """A struct of the answer, by its name in Kafka's schema."""
    return build(response_struct(request.api_key, request.api_version, name), **values)


def answer_of(request: Request, /, **values: Value) -> Entity:
    """The whole answer, unthrottled."""
    return build(
        response_class(request.api_key, request.api_version), **{"throttle_time": NO_THROTTLE, **values}
    )


def send_answer(request: Request, /, **values: Value) -> None:
    """Answers with an entity of the request's version."""
    request.respond([encode_response(answer_of(request, **values))])
