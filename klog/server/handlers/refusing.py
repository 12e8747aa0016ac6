"""Refuses every request that would write: the answers have POLICY_VIOLATION wherever an error can be.

Groups are served as ever: what they commit goes into segments of the scratch directory and is forgotten at
the stop. An idempotent producer gets its id and is refused when it writes, since clients take that error as
final; a transactional one is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from klog.formats.constants import NO_PRODUCER_ID
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, part, send_answer
from klog.server.handlers.dispatch import Route
from klog.server.network.request import Request

REFUSAL: Final = ErrorCode.POLICY_VIOLATION
MESSAGE: Final = "These log directories are served read-only."
_UNKNOWN: Final = -1

Values: TypeAlias = Mapping[str, Value]
_ERROR: Final = {"error_code": REFUSAL, "error_message": MESSAGE}


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


def _refusing(answer: Callable[[Request, Entity], Values]) -> Callable[[Request], None]:
    def handle(request: Request) -> None:
        send_answer(request, **answer(request, entity_of(request)))

    return handle


# -- the answer of each API: the resources of the request, each with the error -------------------------------


def _create_topics(request: Request, wanted: Entity) -> Values:
    unknown = {"topic_id": None, "topic_config_error_code": ErrorCode.NONE, "configs": None}
    counts = {"num_partitions": _UNKNOWN, "replication_factor": _UNKNOWN}
    topics = (
        part(request, "CreatableTopicResult", name=each.name, **_ERROR, **unknown, **counts)
        for each in wanted.topics
    )
    return {"topics": tuple(topics)}


def _delete_topics(request: Request, wanted: Entity) -> Values:
    named: Iterable[tuple[str | None, UUID | None]] = (
        ((each.name, each.topic_id) for each in wanted.topics)
        if hasattr(wanted, "topics")
        else ((name, None) for name in wanted.topic_names)
    )
    topics = (
        part(request, "DeletableTopicResult", name=name, topic_id=topic_id, **_ERROR)
        for name, topic_id in named
    )
    return {"responses": tuple(topics)}


def _create_partitions(request: Request, wanted: Entity) -> Values:
    topics = (
        part(request, "CreatePartitionsTopicResult", name=each.name, **_ERROR) for each in wanted.topics
    )
    return {"results": tuple(topics)}


def _alter_configs(request: Request, wanted: Entity) -> Values:
    resources = (
        part(
            request,
            "AlterConfigsResourceResponse",
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            **_ERROR,
        )
        for each in wanted.resources
    )
    return {"responses": tuple(resources)}


def _delete_records(request: Request, wanted: Entity) -> Values:
    def topic(each: Entity) -> Entity:
        partitions = (
            part(
                request,
                "DeleteRecordsPartitionResult",
                partition_index=one.partition_index,
                low_watermark=_UNKNOWN,
                error_code=REFUSAL,
            )
            for one in each.partitions
        )
        return part(request, "DeleteRecordsTopicResult", name=each.name, partitions=tuple(partitions))

    return {"topics": tuple(map(topic, wanted.topics))}


def _alter_replica_log_dirs(request: Request, wanted: Entity) -> Values:
    def topic(each: Entity) -> Entity:
        partitions = (
            part(request, "AlterReplicaLogDirPartitionResult", partition_index=number, error_code=REFUSAL)
            for number in each.partitions
        )
        return part(
            request, "AlterReplicaLogDirTopicResult", topic_name=each.name, partitions=tuple(partitions)
        )

    return {"results": tuple(topic(each) for directory in wanted.dirs for each in directory.topics)}


def _elect_leaders(request: Request, wanted: Entity) -> Values:
    def topic(each: Entity) -> Entity:
        partitions = (part(request, "PartitionResult", partition_id=one, **_ERROR) for one in each.partitions)
        return part(request, "ReplicaElectionResult", topic=each.topic, partition_result=tuple(partitions))

    topics = tuple(map(topic, wanted.topic_partitions or ()))
    return {"error_code": REFUSAL, "replica_election_results": topics}


def _alter_partition_reassignments(request: Request, wanted: Entity) -> Values:
    def topic(each: Entity) -> Entity:
        partitions = (
            part(request, "ReassignablePartitionResponse", partition_index=one.partition_index, **_ERROR)
            for one in each.partitions
        )
        return part(request, "ReassignableTopicResponse", name=each.name, partitions=tuple(partitions))

    return {**_ERROR, "responses": tuple(map(topic, wanted.topics))}


def _added_partitions(request: Request, topics: Iterable[Entity]) -> tuple[Entity, ...]:
    def topic(each: Entity) -> Entity:
        results = (
            part(
                request,
                "AddPartitionsToTxnPartitionResult",
                partition_index=number,
                partition_error_code=REFUSAL,
            )
            for number in each.partitions
        )
        return part(
            request, "AddPartitionsToTxnTopicResult", name=each.name, results_by_partition=tuple(results)
        )

    return tuple(map(topic, topics))


def _add_partitions_to_txn(request: Request, wanted: Entity) -> Values:
    if hasattr(wanted, "v3_and_below_topics"):
        return {"results_by_topic_v3_and_below": _added_partitions(request, wanted.v3_and_below_topics)}
    results = (
        part(
            request,
            "AddPartitionsToTxnResult",
            transactional_id=each.transactional_id,
            topic_results=_added_partitions(request, each.topics),
        )
        for each in wanted.transactions
    )
    return {"error_code": ErrorCode.NONE, "results_by_transaction": tuple(results)}


def _txn_offset_commit(request: Request, wanted: Entity) -> Values:
    def topic(each: Entity) -> Entity:
        name = "TxnOffsetCommitResponse"
        partitions = (
            part(request, f"{name}Partition", partition_index=one.partition_index, error_code=REFUSAL)
            for one in each.partitions
        )
        return part(request, f"{name}Topic", name=each.name, partitions=tuple(partitions))

    return {"topics": tuple(map(topic, wanted.topics))}


def _write_txn_markers(request: Request, wanted: Entity) -> Values:
    def topic(each: Entity) -> Entity:
        partitions = (
            part(request, "WritableTxnMarkerPartitionResult", partition_index=number, error_code=REFUSAL)
            for number in each.partition_indexes
        )
        return part(request, "WritableTxnMarkerTopicResult", name=each.name, partitions=tuple(partitions))

    markers = (
        part(
            request,
            "WritableTxnMarkerResult",
            producer_id=each.producer_id,
            topics=tuple(map(topic, each.topics)),
        )
        for each in wanted.markers
    )
    return {"markers": tuple(markers)}


def _whole(_: Request, __: Entity) -> Values:
    return {"error_code": REFUSAL}


_ANSWERS: Final[Mapping[int, Callable[[Request, Entity], Values]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _whole,
    ApiKey.END_TXN: _whole,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
}
