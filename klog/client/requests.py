"""Makes requests of plain values, sends them, and reads errors and partitions from answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from klog.client.connection import Connection
from klog.client.errors import RefusedError
from klog.formats.names import TopicPartition, partitions_by_topic
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class


def ask(
    connection: Connection,
    api_key: ApiKey,
    /,
    *,
    at_most: int | None = None,
    wait_ms: int | None = None,
    **values: Value,
) -> Entity:
    """What a broker answers to a request of the highest version that both sides support.

    `values` are those of all versions, as `build` takes them. `wait_ms` limits the answer.
    Raises ChannelError, UnsupportedApiError.
    """
    version = connection.version_of(api_key, at_most)
    return connection.send(build(request_class(api_key, version), **values), wait_ms)


def refusal(answer: Entity, what: str, right: str | None = None) -> RefusedError | None:
    """The error that an answer, or a part of one, says about `what`; None if it says none.

    Old versions of some answers have no error code. `right` is as in `RefusedError`.
    """
    code = int(getattr(answer, "error_code", ErrorCode.NONE))
    if code == ErrorCode.NONE:
        return None
    return RefusedError(what, code, message=getattr(answer, "error_message", None), right=right)


def accepted(answer: Entity, what: str, right: str | None = None) -> Entity:
    """The answer. Raises RefusedError if it says an error about `what`."""
    if error := refusal(answer, what, right):
        raise error
    return answer


def number_of(partition: TopicPartition) -> int:
    """How most requests name a partition within its topic."""
    return partition.partition


def by_topic(
    partitions: Iterable[TopicPartition],
    each: Callable[[TopicPartition], Value] = number_of,
    *,
    topic: str = "name",
    parts: str = "partitions",
) -> list[dict[str, Value]]:
    """Partitions as an array of topics with arrays of partitions; the last two arguments name fields."""
    return [
        {topic: name, parts: [each(TopicPartition(name, number)) for number in numbers]}
        for name, numbers in partitions_by_topic(partitions).items()
    ]


def by_partition(
    topics: Iterable[Entity],
    *,
    topic: str = "name",
    parts: str = "partitions",
    number: str = "partition_index",
) -> Iterator[tuple[TopicPartition, Any]]:
    """Each partition of an array of topics, and its part of the answer. The other arguments name fields."""
    for found in topics:
        for part in getattr(found, parts):
            yield TopicPartition(getattr(found, topic), int(getattr(part, number))), part
