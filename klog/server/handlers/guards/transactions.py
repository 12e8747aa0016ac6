"""Guards of requests about transactions and the ids of producers.

Rules: Kafka's `KafkaApis` and the error answers of its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from klog.formats.constants import NO_PRODUCER_ID
from klog.formats.names import PartitionKey
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct, by_topic, topic_errors
from klog.server.handlers.guards.verdicts import (
    Answer,
    Guard,
    Part,
    Verdict,
    changing,
    part_of_topics,
    split,
    with_list,
)
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.server.network.request import Request

_ID: Final = AclResourceType.TRANSACTIONAL_ID
_ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_BY_BROKERS_FROM: Final = 4
_NO_EPOCH: Final = -1


def _may_write(access: Access, request: Request, transactional_id: str) -> bool:
    return access.allows(request, AclOperation.WRITE, _ID, transactional_id)


def _init_producer(access: Access, request: Request, wanted: Entity) -> Verdict:
    if wanted.transactional_id is not None:
        if _may_write(access, request, wanted.transactional_id):
            return None
        error = _ID_REFUSED
    else:
        # Whoever may write to some topic may do so idempotently.
        if access.allows_on_cluster(
            request, AclOperation.IDEMPOTENT_WRITE, logs_denial=False
        ) or access.allows_any(request, AclOperation.WRITE, AclResourceType.TOPIC):
            return None
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Answer({"error_code": error, "producer_id": NO_PRODUCER_ID, "producer_epoch": _NO_EPOCH})


def _add_partitions(known: Callable[[PartitionKey], bool]) -> Guard:
    def guard(access: Access, request: Request, wanted: Entity) -> Verdict:
        if request.api_version >= _BY_BROKERS_FROM:
            if access.allows_on_cluster(request, AclOperation.CLUSTER_ACTION):
                return None
            return Answer({"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
        topics = wanted.v3_and_below_topics
        keys = [(topic.name, number) for topic in topics for number in topic.partitions]
        if not _may_write(access, request, wanted.v3_and_below_transactional_id):
            return Answer(_added(dict.fromkeys(keys, _ID_REFUSED)))
        clients = [topic for topic, _ in keys if topic not in INTERNAL_TOPICS]
        allowed = access.allowed(request, AclOperation.WRITE, AclResourceType.TOPIC, clients)
        if len(allowed) == len(set(clients)):
            return None

        def error(key: PartitionKey) -> ErrorCode:
            if key[0] not in allowed:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            # One refused partition keeps the others out.
            return ErrorCode.OPERATION_NOT_ATTEMPTED if known(key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        return Answer(_added({key: error(key) for key in keys}))

    return guard


def _added(errors: Mapping[PartitionKey, ErrorCode]) -> Struct:
    def result(number: int, error: ErrorCode) -> Struct:
        return {"partition_index": number, "partition_error_code": error}

    topics = by_topic(errors.items(), result, partitions="results_by_partition")
    return {"results_by_topic_v3_and_below": topics}


def _add_offsets(access: Access, request: Request, wanted: Entity) -> Verdict:
    if not _may_write(access, request, wanted.transactional_id):
        return Answer({"error_code": _ID_REFUSED})
    if not access.allows(request, AclOperation.READ, AclResourceType.GROUP, wanted.group_id):
        return Answer({"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED})
    return None


def _end(access: Access, request: Request, wanted: Entity) -> Verdict:
    if _may_write(access, request, wanted.transactional_id):
        return None
    return Answer({"error_code": _ID_REFUSED})


def _commit_offsets(access: Access, request: Request, wanted: Entity) -> Verdict:
    if not _may_write(access, request, wanted.transactional_id):
        return Answer({"topics": topic_errors(wanted.topics, _ID_REFUSED)})
    if not access.allows(request, AclOperation.READ, AclResourceType.GROUP, wanted.group_id):
        return Answer({"topics": topic_errors(wanted.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED)})
    return part_of_topics(access, request, wanted, AclOperation.READ)


def _write_markers(access: Access, request: Request, wanted: Entity) -> Verdict:
    if access.allows_on_cluster(request, AclOperation.ALTER, logs_denial=False) or access.allows_on_cluster(
        request, AclOperation.CLUSTER_ACTION
    ):
        return None
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    markers = [
        {"producer_id": marker.producer_id, "topics": topic_errors(marker.topics, error)}
        for marker in wanted.markers
    ]
    return Answer({"markers": markers})


def _describe(access: Access, request: Request, wanted: Entity) -> Verdict:
    ids = split(access, request, AclOperation.DESCRIBE, wanted.transactional_ids, str, _ID)
    refused = [{**_UNDESCRIBED, "transactional_id": each} for each in ids.refused]

    def amend(values: Struct) -> Struct:
        shown = (_without_hidden_topics(access, request, each) for each in values["transaction_states"])
        return {**values, "transaction_states": [*shown, *refused]}

    return Part(with_list(wanted, "transactional_ids", ids.allowed), amend)


_UNDESCRIBED: Final[Struct] = {
    "error_code": _ID_REFUSED,
    "transaction_state": "",
    "transaction_timeout": 0,
    "transaction_start_time": datetime(1970, 1, 1, tzinfo=UTC),
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": (),
}


def _without_hidden_topics(access: Access, request: Request, transaction: Struct) -> Struct:
    topics = list(transaction["topics"])
    names = (topic["topic"] for topic in topics)
    shown = access.allowed(request, AclOperation.DESCRIBE, AclResourceType.TOPIC, names)
    return {**transaction, "topics": [topic for topic in topics if topic["topic"] in shown]}


def _list(access: Access, request: Request, wanted: Entity) -> Verdict:
    def shown(transaction: Struct) -> Struct | None:
        may_see = access.allows(request, AclOperation.DESCRIBE, _ID, transaction["transactional_id"])
        return transaction if may_see else None

    return Part(wanted, changing("transaction_states", shown))


def transaction_guards(known: Callable[[PartitionKey], bool]) -> Mapping[int, Guard]:
    """By API key. `known` says whether the cluster has a partition."""
    return {
        ApiKey.INIT_PRODUCER_ID: _init_producer,
        ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions(known),
        ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets,
        ApiKey.END_TXN: _end,
        ApiKey.TXN_OFFSET_COMMIT: _commit_offsets,
        ApiKey.WRITE_TXN_MARKERS: _write_markers,
        ApiKey.DESCRIBE_TRANSACTIONS: _describe,
        ApiKey.LIST_TRANSACTIONS: _list,
    }
