"""Reads requests and builds answers for handlers whose messages are entities.

An answer is built from the fields of all versions: `klog.protocol.messages.build` leaves out the fields that
the version does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar

from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
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


def partition_error(number: int, error: ErrorCode) -> Struct:
    """A partition of which the answer says no more than its error."""
    return {"partition_index": number, "error_code": error}


_TOPIC_NAMES: Final = ("name", "topic", "topic_name")
_PARTITIONS: Final = ("partitions", "partition_result", "results_by_partition", "partition_errors")
_NUMBERS: Final = ("partition_index", "partition_id", "partition")
_ERRORS: Final = ("error_code", "partition_error_code")


def topic_errors(topics: Iterable[Entity], error: ErrorCode, **fields: Value) -> list[Struct]:
    """Topics of a request with an error for each partition, as any answer has them.

    Requests and answers have several names for the same: an answer takes the fields that it has. `fields`
    are further ones of topics and partitions.
    """
    common = {**fields, **dict.fromkeys(_ERRORS, error)}
    found: list[Struct] = []
    for topic in topics:
        partitions = _first_of(topic, "partition_indexes", "partition_states", "partitions")
        numbers = (_first_of(each, "partition_index", "partition", default=each) for each in partitions)
        results = [{**common, **dict.fromkeys(_NUMBERS, number)} for number in numbers]
        named = dict.fromkeys(_TOPIC_NAMES, _first_of(topic, *_TOPIC_NAMES))
        topic_id = getattr(topic, "topic_id", None)
        found.append({**common, "topic_id": topic_id, **named, **dict.fromkeys(_PARTITIONS, results)})
    return found


def _first_of(entity: Entity, *names: str, default: Value = None) -> Value:
    """The value of the first of these fields that an entity has."""
    return next((getattr(entity, name) for name in names if hasattr(entity, name)), default)
