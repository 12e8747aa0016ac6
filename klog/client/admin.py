"""Sends Kafka's admin requests for topics and configs, each to the broker that answers it.

Rules: KIP-4 and KIP-195 (topics: the controller), KIP-133 and KIP-339 (configs: a broker answers for itself,
any broker for the rest). Requests that change something are sent again only if a broker said that it is not
the controller, since another failure leaves open whether the change was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.controller import ask_controller
from klog.client.errors import ClientError, RefusedError
from klog.client.requests import accepted, ask, by_partition
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import UnsupportedApiError

CLUSTER_DEFAULT: Final = -1
_DEFAULTS_FROM: Final = 4
_PARTITIONS_PER_ANSWER: Final = 2000
_ANY_KIND_FROM: Final = 1

Assignment: TypeAlias = Mapping[int, Sequence[int]]
"""The brokers of each partition by its number, the preferred leader first."""


class ResourceType(IntEnum):
    """What has configs, with its number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_OF_KRAFT: Final = (ResourceType.CLIENT_METRICS, ResourceType.GROUP)


class Resource(NamedTuple):
    """What has configs, and its name. The empty broker name stands for the default of all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; CLUSTER_DEFAULT leaves a number to the cluster. Both are that with an assignment."""

    name: str
    partitions: int
    replication_factor: int
    assignment: Assignment
    configs: Mapping[str, str]


class EligibleReplicas(NamedTuple):
    """Replicas that may lead a partition though they are not in sync, and the last ones that were known."""

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


class TopicResult(NamedTuple):
    """What became of one topic of a request; `message` is the broker's."""

    topic: str
    error: ErrorCode
    message: str | None


def describe_topics(cluster: Cluster, names: Iterable[str] | None) -> Sequence[Entity]:
    """The Metadata answer's topics: the named ones, or all. A topic may have an error code instead.

    Raises ChannelError.
    """
    return list(cluster.metadata(names).topics)


def describe_eligible_replicas(
    cluster: Cluster, names: Iterable[str]
) -> dict[TopicPartition, EligibleReplicas] | None:
    """The eligible leader replicas of each partition of these topics (KIP-966).

    None if the brokers do not tell them. Raises ChannelError.
    """
    connection = cluster.any_connection()
    found: dict[TopicPartition, EligibleReplicas] = {}
    wanted = sorted(names)
    cursor: dict[str, Value] | None = None
    while wanted:
        try:
            answer = ask(
                connection,
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                topics=[{"name": name} for name in wanted],
                response_partition_limit=_PARTITIONS_PER_ANSWER,
                cursor=cursor,
            )
        except UnsupportedApiError:
            return None
        for partition, part in by_partition(answer.topics):
            found[partition] = EligibleReplicas(
                tuple(part.eligible_leader_replicas or ()), tuple(part.last_known_elr or ())
            )
        if (place := answer.next_cursor) is None:
            break
        wanted = [name for name in wanted if name >= place.topic_name]
        cursor = {"topic_name": place.topic_name, "partition_index": place.partition_index}
    return found


def create_topics(cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool) -> list[TopicResult]:
    """Create topics, or only check whether that is possible. Raises ClientError, ChannelError."""
    topics = list(topics)
    _require_defaults(cluster, topics)
    wanted = [
        {
            "name": each.name,
            "num_partitions": each.partitions,
            "replication_factor": each.replication_factor,
            "assignments": [
                {"partition_index": number, "broker_ids": brokers}
                for number, brokers in each.assignment.items()
            ],
            "configs": [{"name": key, "value": value} for key, value in each.configs.items()],
        }
        for each in topics
    ]
    values = {"topics": wanted, "validate_only": validate_only}
    return _topic_outcomes(cluster, ApiKey.CREATE_TOPICS, values, "topics")


def _require_defaults(cluster: Cluster, topics: Iterable[NewTopic]) -> None:
    """Raises ClientError if a number is left to a cluster that has no default for it (KIP-464)."""
    missing = {
        option
        for each in topics
        if not each.assignment
        for option, number in (
            ("--partitions", each.partitions),
            ("--replication-factor", each.replication_factor),
        )
        if number == CLUSTER_DEFAULT
    }
    if missing and cluster.any_connection().version_of(ApiKey.CREATE_TOPICS) < _DEFAULTS_FROM:
        raise ClientError(
            "brokers before Kafka 2.4 have no default for the partitions and replicas of a topic",
            cure=f"name the number with {' and '.join(sorted(missing))}",
        )


def create_partitions(
    cluster: Cluster,
    names: Iterable[str],
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    *,
    validate_only: bool,
) -> list[TopicResult]:
    """Add partitions until topics have `count`; `assignments` are the brokers of each new one.

    Raises ClientError, ChannelError.
    """
    made = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    topics = [{"name": name, "count": count, "assignments": made} for name in names]
    values = {"topics": topics, "validate_only": validate_only}
    return _topic_outcomes(cluster, ApiKey.CREATE_PARTITIONS, values, "results")


def delete_topics(cluster: Cluster, names: Iterable[str]) -> list[TopicResult]:
    """Delete topics. Raises ClientError, ChannelError."""
    wanted = tuple(names)
    values = {"topic_names": wanted, "topics": [{"name": name, "topic_id": None} for name in wanted]}
    return _topic_outcomes(cluster, ApiKey.DELETE_TOPICS, values, "responses")


def describe_configs(
    cluster: Cluster,
    resources: Iterable[Resource],
    *,
    documentation: bool = False,
    names: Sequence[str] | None = None,
) -> list[tuple[Resource, Sequence[Entity]]]:
    """The configs of each resource with their synonyms, as the broker's DescribeConfigs answer has them.

    All configs, or only those in `names`. Raises ClientError if a resource is refused, ChannelError.
    """
    found: list[tuple[Resource, Sequence[Entity]]] = []
    for resource, entries in try_describe_configs(
        cluster, resources, documentation=documentation, names=names
    ):
        if isinstance(entries, RefusedError):
            raise entries
        found.append((resource, entries))
    return found


def try_describe_configs(
    cluster: Cluster,
    resources: Iterable[Resource],
    *,
    documentation: bool = False,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[Resource, Sequence[Entity] | RefusedError]]:
    """As `describe_configs`, but a resource that is refused has its error.

    Raises ClientError if a broker is unknown, ChannelError.
    """
    for connection, asked in _by_answering_broker(cluster, resources):
        wanted = [
            {"resource_type": each.type, "resource_name": each.name, "configuration_keys": names}
            for each in asked
        ]
        answer = ask(
            connection,
            ApiKey.DESCRIBE_CONFIGS,
            resources=wanted,
            include_synonyms=True,
            include_documentation=documentation,
        )
        for result in answer.results:
            resource = _resource(result)
            yield resource, _refusal(resource, result, "DescribeConfigs") or list(result.configs)


def list_config_resources(cluster: Cluster, kind: ResourceType) -> list[str]:
    """The names of all resources of a kind that have configs, sorted (KIP-1000, KIP-1142).

    Before version 1 of the request (Kafka 4.1) the answer has only client metrics.
    Raises ClientError if the cluster lists none, ChannelError.
    """
    connection = cluster.any_connection()
    key = ApiKey.LIST_CONFIG_RESOURCES
    try:
        version = connection.version_of(key)
    except UnsupportedApiError as error:
        name = kind.name.lower().replace("_", " ")
        raise ClientError(
            f"the cluster does not list configs of kind {name}", cure="Kafka has them with KRaft only"
        ) from error
    if version < _ANY_KIND_FROM and kind is not ResourceType.CLIENT_METRICS:
        return []
    answer = accepted(ask(connection, key, resource_types=[kind]), "the list of configs")
    return sorted(each.resource_name for each in answer.config_resources)


def alter_configs(
    cluster: Cluster,
    resource: Resource,
    changes: Iterable[tuple[str, int, str | None]],
    *,
    validate_only: bool,
) -> None:
    """Make changes (config, operation, value) of one resource: all or none.

    The operations are Kafka's: 0 sets, 1 deletes, 2 appends, 3 subtracts. Raises ClientError with the
    broker's message, ChannelError.
    """
    ((connection, _),) = _by_answering_broker(cluster, [resource])
    altered = [
        {"name": name, "config_operation": operation, "value": value} for name, operation, value in changes
    ]
    wanted = {"resource_type": resource.type, "resource_name": resource.name, "configs": altered}
    answer = ask(
        connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[wanted], validate_only=validate_only
    )
    for result in answer.responses:
        if error := _refusal(_resource(result), result, "AlterConfigs"):
            raise error


def _resource(result: Entity) -> Resource:
    return Resource(ResourceType(result.resource_type), result.resource_name)


def _refusal(resource: Resource, result: Entity, right: str) -> RefusedError | None:
    """What the broker says against a request for the configs of a resource, None if nothing."""
    if result.error_code == ErrorCode.NONE:
        return None
    kind = resource.type.name.lower().replace("_", " ")
    name = f"{kind} {resource.name}" if resource.name else "all brokers"
    cure = None
    if resource.type in _OF_KRAFT and result.error_code == ErrorCode.INVALID_REQUEST:
        cure = "are they configs that this cluster has? Kafka has them with KRaft only"
    return RefusedError(
        f"configs of {name}", result.error_code, message=result.error_message, cure=cure, right=right
    )


def _by_answering_broker(
    cluster: Cluster, resources: Iterable[Resource]
) -> list[tuple[Connection, list[Resource]]]:
    """A connection to each broker to ask, with the resources to ask it for."""
    asked: dict[int | None, list[Resource]] = {}
    for resource in resources:
        is_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        asked.setdefault(int(resource.name) if is_broker else None, []).append(resource)
    if any(broker_id is not None for broker_id in asked):
        cluster.refresh(())
    return [
        (cluster.any_connection() if broker_id is None else cluster.connection(broker_id), group)
        for broker_id, group in asked.items()
    ]


def _topic_outcomes(
    cluster: Cluster, api_key: ApiKey, values: Mapping[str, Value], results: str
) -> list[TopicResult]:
    """The outcome of each topic, from the field `results` of the controller's answer.

    The controller may take as long as the client waits for any answer.
    """
    answer = ask_controller(cluster, api_key, {**values, "timeout": cluster.timeout_ms})
    return [
        TopicResult(each.name, error_code(each.error_code), getattr(each, "error_message", None))
        for each in getattr(answer, results)
    ]
