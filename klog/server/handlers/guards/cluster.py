"""Guards of requests between brokers, and of those that administrators make of the whole cluster.

Rules: Kafka's `KafkaApis` and the error answers of its requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from klog.client.admin import ResourceType
from klog.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct, topic_errors
from klog.server.handlers.guards.verdicts import (
    Answer,
    Guard,
    Part,
    Verdict,
    adding,
    not_authorized,
    with_list,
)
from klog.server.network.request import Request

_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_CONFIG_ERRORS: Final[Mapping[int, tuple[AclResourceType, ErrorCode]]] = {
    ResourceType.TOPIC: (AclResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
_MESSAGES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def _needs(operation: AclOperation, refusal: Callable[[Request, Entity], Struct] | None = None) -> Guard:
    """A guard that lets a request pass whole or not at all. `refusal` says more than the error."""

    def guard(access: Access, request: Request, wanted: Entity) -> Verdict:
        if access.allows_on_cluster(request, operation):
            return None
        more = {} if refusal is None else refusal(request, wanted)
        return Answer({"error_code": _REFUSED, **more})

    return guard


# -- the answers ---------------------------------------------------------------------------------------------


def _message(request: Request, _wanted: Entity) -> Struct:
    return {"error_message": not_authorized(request)}


def _default_message(_request: Request, _wanted: Entity) -> Struct:
    return {"error_message": _MESSAGES[_REFUSED]}


def _leader_and_isr(_request: Request, wanted: Entity) -> Struct:
    return {"topics": topic_errors(wanted.topic_states, _REFUSED)}


def _stop_replica(_request: Request, wanted: Entity) -> Struct:
    errors = [
        {**each, "topic_name": topic["topic_name"]}
        for topic in topic_errors(wanted.topic_states, _REFUSED)
        for each in topic["partitions"]
    ]
    return {"partition_errors": errors}


def _log_dir_moves(_request: Request, wanted: Entity) -> Struct:
    topics = [topic for directory in wanted.dirs for topic in directory.topics]
    return {"results": topic_errors(topics, _REFUSED)}


def _elections(_request: Request, wanted: Entity) -> Struct:
    topics = wanted.topic_partitions or ()
    return {"replica_election_results": topic_errors(topics, _REFUSED, error_message=None)}


def _reassignments(request: Request, wanted: Entity) -> Struct:
    message = _message(request, wanted)
    return {**message, "responses": topic_errors(wanted.topics, _REFUSED, **message)}


def _acl_creations(request: Request, wanted: Entity) -> Struct:
    refused = {"error_code": _REFUSED, "error_message": not_authorized(request)}
    return {"results": [refused for _ in wanted.creations]}


def _acl_deletions(request: Request, wanted: Entity) -> Struct:
    refused = {"error_code": _REFUSED, "error_message": not_authorized(request), "matching_acls": ()}
    return {"filter_results": [refused for _ in wanted.filters]}


def _quota_changes(_request: Request, wanted: Entity) -> Struct:
    entries = [
        {
            "error_code": _REFUSED,
            "error_message": None,
            "entity": [
                {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity
            ],
        }
        for entry in wanted.entries
    ]
    return {"entries": entries}


def _scram_users(_request: Request, wanted: Entity) -> Struct:
    # Kafka names none of them here.
    refused = {"user": "", "error_code": _REFUSED, "error_message": None, "credential_infos": ()}
    return {"results": [refused for _ in wanted.users or ()]}


def _scram_changes(_request: Request, wanted: Entity) -> Struct:
    users = dict.fromkeys(each.name for each in (*wanted.deletions, *wanted.upsertions))
    message = _MESSAGES[_REFUSED]
    return {"results": [{"user": user, "error_code": _REFUSED, "error_message": message} for user in users]}


# -- authorised operations -----------------------------------------------------------------------------------


def _describe_cluster(access: Access, request: Request, wanted: Entity) -> Verdict:
    if not wanted.include_cluster_authorized_operations:
        return None
    bits = access.cluster_operations(request)

    def amend(values: Mapping[str, Value]) -> Mapping[str, Value]:
        return values if values["error_code"] else {**values, "cluster_authorized_operations": bits}

    return Part(wanted, amend)


# -- configs -------------------------------------------------------------------------------------------------


def _config_guard(
    operation: AclOperation, refusal: Callable[[Entity, ErrorCode], Struct], results: str
) -> Guard:
    def guard(access: Access, request: Request, wanted: Entity) -> Verdict:
        times = Counter((each.resource_type, each.resource_name) for each in wanted.resources)
        passed: list[Entity] = []
        refused: list[Struct] = []
        for each in wanted.resources:
            # What is wrong whoever asks is left to the handler.
            is_wrong = times[each.resource_type, each.resource_name] > 1 and operation is (
                AclOperation.ALTER_CONFIGS
            )
            error = None if is_wrong else _config_refusal(access, request, operation, each)
            if error is None:
                passed.append(each)
            else:
                refused.append(refusal(each, error))
        if not refused:
            return None
        return Part(with_list(wanted, "resources", passed), adding(results, refused))

    return guard


def _config_refusal(
    access: Access, request: Request, operation: AclOperation, resource: Entity
) -> ErrorCode | None:
    if resource.resource_type not in set(ResourceType):
        return None
    kind, error = _CONFIG_ERRORS.get(resource.resource_type, (AclResourceType.CLUSTER, _REFUSED))
    name = CLUSTER_NAME if kind is AclResourceType.CLUSTER else resource.resource_name
    return None if access.allows(request, operation, kind, name) else error


def _undescribed(resource: Entity, error: ErrorCode) -> Struct:
    return {**_unaltered(resource, error), "error_message": _MESSAGES[error], "configs": ()}


def _unaltered(resource: Entity, error: ErrorCode) -> Struct:
    return {
        "error_code": error,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


_ALTER_CONFIGS: Final = _config_guard(AclOperation.ALTER_CONFIGS, _unaltered, "responses")

GUARDS: Final[Mapping[int, Guard]] = {
    ApiKey.LEADER_AND_ISR: _needs(AclOperation.CLUSTER_ACTION, _leader_and_isr),
    ApiKey.STOP_REPLICA: _needs(AclOperation.CLUSTER_ACTION, _stop_replica),
    ApiKey.UPDATE_METADATA: _needs(AclOperation.CLUSTER_ACTION),
    ApiKey.CONTROLLED_SHUTDOWN: _needs(AclOperation.CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: _needs(AclOperation.CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: _needs(AclOperation.CLUSTER_ACTION),
    ApiKey.UPDATE_FEATURES: _needs(AclOperation.ALTER, _default_message),
    ApiKey.DESCRIBE_ACLS: _needs(AclOperation.DESCRIBE, _message),
    ApiKey.CREATE_ACLS: _needs(AclOperation.ALTER, _acl_creations),
    ApiKey.DELETE_ACLS: _needs(AclOperation.ALTER, _acl_deletions),
    ApiKey.DESCRIBE_CONFIGS: _config_guard(AclOperation.DESCRIBE_CONFIGS, _undescribed, "results"),
    ApiKey.ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES: _needs(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _needs(AclOperation.ALTER, _log_dir_moves),
    ApiKey.DESCRIBE_LOG_DIRS: _needs(AclOperation.DESCRIBE),
    ApiKey.ELECT_LEADERS: _needs(AclOperation.ALTER, _elections),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _needs(AclOperation.ALTER, _reassignments),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _needs(AclOperation.DESCRIBE, _message),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _needs(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _needs(AclOperation.ALTER_CONFIGS, _quota_changes),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _needs(AclOperation.DESCRIBE, _scram_users),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _needs(AclOperation.ALTER, _scram_changes),
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
}
"""By API key."""
