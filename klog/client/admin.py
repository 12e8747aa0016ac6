"""Sends Kafka's admin requests for topics and configs, each to the broker that answers it.

Rules: KIP-4 and KIP-195 (topics: the controller), KIP-133 and KIP-339 (configs: a broker answers for itself,
any broker for the rest). Requests that change something are sent again only if a broker said that it is not
the controller, since another failure leaves open whether the change was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.controller import Request, ask_controller
from klog.client.errors import ClientError, RefusedError
from klog.formats.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.errors import UnsupportedApiError
from klog.protocol.messages import build, request_class, request_struct

CLUSTER_DEFAULT: Final = -1
_DELETED_BY_STATE_FROM: Final = 6
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


class Outcome(NamedTuple):
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
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    try:
        version = connection.version_of(key)
    except UnsupportedApiError:
        return None
    kind = request_struct(key, version, "TopicRequest")
    found: dict[TopicPartition, EligibleReplicas] = {}
    wanted = sorted(names)
    cursor: Entity | None = None
    while wanted:
        request = build(
            request_class(key, version),
            topics=tuple(build(kind, name=name) for name in wanted),
            response_partition_limit=_PARTITIONS_PER_ANSWER,
            cursor=cursor,
        )
        answer = connection.send(request)
        for topic in answer.topics:
            for part in topic.partitions:
                found[TopicPartition(topic.name, part.partition_index)] = EligibleReplicas(
                    tuple(part.eligible_leader_replicas or ()), tuple(part.last_known_elr or ())
                )
        if answer.next_cursor is None:
            break
        place = answer.next_cursor
        wanted = [name for name in wanted if name >= place.topic_name]
        cursor = build(
            request_struct(key, version, "Cursor"),
            topic_name=place.topic_name,
            partition_index=place.partition_index,
        )
    return found


def broker_ids(cluster: Cluster) -> list[int]:
    """The ids of the brokers that are alive, ascending. Raises ChannelError."""
    return sorted(int(broker.node_id) for broker in cluster.metadata(()).brokers)


def create_topics(cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool) -> list[Outcome]:
    """Create topics, or only check whether that is possible. Raises ClientError, ChannelError."""
    wanted = tuple(topics)

    def request(version: int) -> Entity:
        topic, config, replicas = (
            request_struct(ApiKey.CREATE_TOPICS, version, name)
            for name in ("CreatableTopic", "CreatableTopicConfig", "CreatableReplicaAssignment")
        )
        made = (
            build(
                topic,
                name=each.name,
                num_partitions=each.partitions,
                replication_factor=each.replication_factor,
                assignments=tuple(
                    build(replicas, partition_index=number, broker_ids=tuple(brokers))
                    for number, brokers in each.assignment.items()
                ),
                configs=tuple(build(config, name=key, value=value) for key, value in each.configs.items()),
            )
            for each in wanted
        )
        return _changing(
            cluster, ApiKey.CREATE_TOPICS, version, topics=tuple(made), validate_only=validate_only
        )

    return _topic_outcomes(cluster, ApiKey.CREATE_TOPICS, request, "topics")


def create_partitions(
    cluster: Cluster,
    names: Iterable[str],
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    *,
    validate_only: bool,
) -> list[Outcome]:
    """Add partitions until topics have `count`; `assignments` are the brokers of each new one.

    Raises ClientError, ChannelError.
    """
    wanted = tuple(names)

    def request(version: int) -> Entity:
        topic, replicas = (
            request_struct(ApiKey.CREATE_PARTITIONS, version, name)
            for name in ("CreatePartitionsTopic", "CreatePartitionsAssignment")
        )
        made = None
        if assignments is not None:
            made = tuple(build(replicas, broker_ids=tuple(brokers)) for brokers in assignments)
        topics = tuple(build(topic, name=name, count=count, assignments=made) for name in wanted)
        return _changing(
            cluster, ApiKey.CREATE_PARTITIONS, version, topics=topics, validate_only=validate_only
        )

    return _topic_outcomes(cluster, ApiKey.CREATE_PARTITIONS, request, "results")


def delete_topics(cluster: Cluster, names: Iterable[str]) -> list[Outcome]:
    """Delete topics. Raises ClientError, ChannelError."""
    wanted = tuple(names)

    def request(version: int) -> Entity:
        by_name: dict[str, Value] = {"topic_names": wanted}
        if version >= _DELETED_BY_STATE_FROM:
            topic = request_struct(ApiKey.DELETE_TOPICS, version, "DeleteTopicState")
            by_name = {"topics": tuple(build(topic, name=name, topic_id=None) for name in wanted)}
        return _changing(cluster, ApiKey.DELETE_TOPICS, version, **by_name)

    return _topic_outcomes(cluster, ApiKey.DELETE_TOPICS, request, "responses")


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
    keys = None if names is None else tuple(names)
    for connection, asked in _by_answering_broker(cluster, resources):
        version = connection.version_of(ApiKey.DESCRIBE_CONFIGS)
        kind = request_struct(ApiKey.DESCRIBE_CONFIGS, version, "DescribeConfigsResource")
        request = build(
            request_class(ApiKey.DESCRIBE_CONFIGS, version),
            resources=tuple(
                build(kind, resource_type=int(each.type), resource_name=each.name, configuration_keys=keys)
                for each in asked
            ),
            include_synonyms=True,
            include_documentation=documentation,
        )
        for result in connection.send(request).results:
            resource = _resource_of(result)
            found.append((resource, list(result.configs)))
    return found


def list_config_resources(cluster: Cluster, kind: ResourceType) -> list[str]:
    """The names of all resources of a kind that have configs, sorted (KIP-1000, KIP-1142).

    Before version 1 of the request (Kafka 4.1) only client metrics are told, and nothing of the others.
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
    kinds: dict[str, Value] = {"resource_types": (int(kind),)} if version >= _ANY_KIND_FROM else {}
    answer = connection.send(build(request_class(key, version), **kinds))
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError("the list of configs", answer.error_code)
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
    version = connection.version_of(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    kind, config = (
        request_struct(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, name)
        for name in ("AlterConfigsResource", "AlterableConfig")
    )
    altered = tuple(
        build(config, name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    )
    request = build(
        request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS, version),
        resources=(
            build(kind, resource_type=int(resource.type), resource_name=resource.name, configs=altered),
        ),
        validate_only=validate_only,
    )
    for result in connection.send(request).responses:
        _resource_of(result)


def _resource_of(result: Entity) -> Resource:
    """The resource of a result. Raises RefusedError if the broker refused it."""
    resource = Resource(ResourceType(result.resource_type), result.resource_name)
    if result.error_code != ErrorCode.NONE:
        kind = resource.type.name.lower().replace("_", " ")
        name = f"{kind} {resource.name}" if resource.name else "all brokers"
        cure = None
        if resource.type in _OF_KRAFT and result.error_code == ErrorCode.INVALID_REQUEST:
            cure = "are they configs that this cluster has? Kafka has them with KRaft only"
        raise RefusedError(f"configs of {name}", result.error_code, message=result.error_message, cure=cure)
    return resource


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


def _topic_outcomes(cluster: Cluster, api_key: ApiKey, request: Request, results: str) -> list[Outcome]:
    """The outcome of each topic, from the field `results` of the controller's answer."""

    def codes(answer: Entity) -> list[int]:
        return [each.error_code for each in getattr(answer, results)]

    return [
        Outcome(each.name, error_code(each.error_code), getattr(each, "error_message", None))
        for each in getattr(ask_controller(cluster, api_key, request, codes), results)
    ]


def _changing(cluster: Cluster, api_key: ApiKey, version: int, **values: Value) -> Entity:
    """A request that changes topics. The broker may take as long as the client waits for any answer."""
    timeout = timedelta(milliseconds=cluster.timeout_ms)
    return build(request_class(api_key, version), timeout=timeout, **values)
