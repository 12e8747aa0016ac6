"""Reads requests and builds answers for handlers whose messages are entities.

An answer is built from the fields of all versions: `klog.protocol.messages.build` leaves out the fields that
the version does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar

from klog.protocol.entity_fields import Entity, Value
from klog.protocol.messages import build, decode_request, encode_response, response_class
from klog.server.network.request import Request

# Runs work on a request in a thread that may wait.
InBackground: TypeAlias = Callable[[Request, Callable[[Request], None]], object]

Struct: TypeAlias = Mapping[str, Value]
"""A struct of an answer: the values of its fields in all versions, by Kafka's names."""

_Value = TypeVar("_Value")
_Partition = TypeVar("_Partition", bound=tuple[Hashable, int])

_MILLISECOND: Final = timedelta(milliseconds=1)


def entity_of(request: Request) -> Entity:
    """The request's entity. Raises `MalformedMessageError`."""
    if request.entity is not None:
        return request.entity
    return decode_request(request.api_key, request.api_version, request.body)


def milliseconds(duration: timedelta) -> int:
    """A timeout in ms; negative ones are kept, because they mean not to wait."""
    return duration // _MILLISECOND


def answer_of(request: Request, /, **values: Value) -> Entity:
    """The whole answer, unthrottled."""
    if request.amend is not None:
        values = dict(request.amend(values))
    return build(response_class(request.api_key, request.api_version), **{"throttle_time": 0, **values})


def send_answer(request: Request, /, **values: Value) -> None:
    """Answers with an entity of the request's version."""
    request.respond([encode_response(answer_of(request, **values))])


def by_topic(
    values: Iterable[tuple[_Partition, _Value]],
    partition: Callable[[int, _Value], Struct],
    *,
    topic: str = "name",
    partitions: str = "partitions",
) -> list[Struct]:
    """The topics of an answer. `partition` makes the struct of a partition from its number and value.

    `topic` and `partitions` are the fields of a topic's struct.
    """
    found: dict[Hashable, list[Struct]] = {}
    for (name, number), value in values:
        found.setdefault(name, []).append(partition(number, value))
    return [{topic: name, partitions: structs} for name, structs in found.items()]
