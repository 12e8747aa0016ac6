"""Refuses every request that would write: the answers have POLICY_VIOLATION wherever an error can be.

Groups are served as ever: what they commit goes into segments of the scratch directory and is forgotten at
the stop. An idempotent producer gets its id and is refused when it writes, since clients take that error as
final; a transactional one is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klog.formats.constants import NO_PRODUCER_ID
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import Struct, entity_of, send_answer, topic_errors
from klog.server.handlers.dispatch import Route
from klog.server.network.request import Request

REFUSAL: Final = ErrorCode.POLICY_VIOLATION
MESSAGE: Final = "These log directories are served read-only."
_UNKNOWN: Final = -1

# What answers say of anything that is refused. An answer takes the fields that it has.
_REFUSED: Final[Struct] = {
    "error_code": REFUSAL,
    "error_message": MESSAGE,
    "low_watermark": _UNKNOWN,
    "topic_id": None,
    "topic_config_error_code": ErrorCode.NONE,
    "configs": None,
    "num_partitions": _UNKNOWN,
    "replication_factor": _UNKNOWN,
}


def read_only(routes: Mapping[int, Route]) -> dict[int, Route]:
    """The routes, with those of requests that write replaced."""
    refused: dict[int, Route] = {
        key: Route(_refusing(answer), may_block=False) for key, answer in _ANSWERS.items()
    }
    refused[ApiKey.PRODUCE] = _refused_produce(routes[ApiKey.PRODUCE])
    refused[ApiKey.INIT_PRODUCER_ID] = _refused_for_transactions(routes[ApiKey.INIT_PRODUCER_ID])
    return {**routes, **refused}


def _refused_produce(route: Route) -> Route:
    def handle(request: Request) -> None:
        request.respond(route.failed(request, REFUSAL))

    return route._replace(handle=handle, run=None)


def _refused_for_transactions(route: Route) -> Route:
    def handle(request: Request) -> None:
        if entity_of(request).transactional_id is None:
            route.handle(request)
        else:
            send_answer(request, error_code=REFUSAL, producer_id=NO_PRODUCER_ID, producer_epoch=_UNKNOWN)

    return route._replace(handle=handle)


def _refusing(answer: Callable[[Entity], Struct]) -> Callable[[Request], None]:
    def handle(request: Request) -> None:
        send_answer(request, **{**_REFUSED, **answer(entity_of(request))})

    return handle


# -- the answer of each API: the resources of the request, each with the error -------------------------------


def _named(resources: Iterable[Entity], *fields: str) -> list[Struct]:
    """Resources under the fields that name them in the request, too."""
    return [{**_REFUSED, **{field: getattr(each, field) for field in fields}} for each in resources]


def _topics(asked: Iterable[Entity]) -> list[Struct]:
    return topic_errors(asked, REFUSAL, **_REFUSED)


def _delete_topics(wanted: Entity) -> Struct:
    if hasattr(wanted, "topics"):
        return {"responses": _named(wanted.topics, "name", "topic_id")}
    return {"responses": [{**_REFUSED, "name": name} for name in wanted.topic_names]}


def _alter_configs(wanted: Entity) -> Struct:
    return {"responses": _named(wanted.resources, "resource_type", "resource_name")}


def _add_partitions_to_txn(wanted: Entity) -> Struct:
    if hasattr(wanted, "v3_and_below_topics"):
        return {"results_by_topic_v3_and_below": _topics(wanted.v3_and_below_topics)}
    results = [
        {"transactional_id": each.transactional_id, "topic_results": _topics(each.topics)}
        for each in wanted.transactions
    ]
    return {"error_code": ErrorCode.NONE, "results_by_transaction": results}


def _write_txn_markers(wanted: Entity) -> Struct:
    return {
        "markers": [
            {"producer_id": each.producer_id, "topics": _topics(each.topics)} for each in wanted.markers
        ]
    }


def _whole(_: Entity) -> Struct:
    return {}


_ANSWERS: Final[Mapping[int, Callable[[Entity], Struct]]] = {
    ApiKey.CREATE_TOPICS: lambda wanted: {"topics": _named(wanted.topics, "name")},
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: lambda wanted: {"results": _named(wanted.topics, "name")},
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.DELETE_RECORDS: lambda wanted: {"topics": _topics(wanted.topics)},
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda wanted: {
        "results": [topic for directory in wanted.dirs for topic in _topics(directory.topics)]
    },
    ApiKey.ELECT_LEADERS: lambda wanted: {"replica_election_results": _topics(wanted.topic_partitions or ())},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda wanted: {"responses": _topics(wanted.topics)},
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _whole,
    ApiKey.END_TXN: _whole,
    ApiKey.TXN_OFFSET_COMMIT: lambda wanted: {"topics": _topics(wanted.topics)},
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
}
