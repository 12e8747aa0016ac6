"""Reads a cluster's metadata as a value, as far as its API tells.

The API gives no credentials and no values of sensitive configs; they are None, as in `without_secrets`. It
does not tell delegation tokens of others, broker epochs, or ids that were given to producers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from klog.admin.requests.acls import describe_acls
from klog.admin.requests.client_quotas import CLIENT_ID, IP, USER, describe_quotas
from klog.admin.requests.client_quotas import QuotaEntity as DescribedEntity
from klog.admin.requests.cluster_description import describe_apis, describe_nodes
from klog.admin.requests.scram_users import describe_users
from klog.admin.topics import Topic as DescribedTopic
from klog.admin.topics import find_topics
from klog.client.admin import Resource, ResourceType, try_describe_configs
from klog.client.cluster import Cluster as Client
from klog.client.errors import ClientError, RefusedError
from klog.cluster_metadata.model import Broker, Cluster, Partition, ScramUser, Topic
from klog.formats.constants import NO_LEADER
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.protocol.acls import AclFilter
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError
from klog.security.quotas.entities import DEFAULT, Part, QuotaEntity

_TOPIC: Final = 1  # sources of configs in KIP-226
_BROKER: Final = 2
_ALL_BROKERS: Final = 3
_DEFAULT: Final = 5
_Each = TypeVar("_Each")


@dataclass(frozen=True, slots=True)
class Described:
    """The metadata, and in words what the cluster did not tell."""

    cluster: Cluster
    untold: tuple[str, ...]


def read_metadata(client: Client) -> Described:
    """All that the cluster tells. What this client may not ask for is left out. Raises ChannelError."""
    untold: list[str] = []

    def told(what: str, ask: Callable[[], Iterable[_Each]]) -> list[_Each]:
        try:
            return list(ask())
        except RefusedError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                untold.append(str(error))
        except (ClientError, UnsupportedApiError) as error:
            untold.append(f"{what}: {error}")
        return []

    nodes = describe_nodes(client)
    found = Cluster(
        nodes.cluster_id, brokers={node.broker_id: Broker(rack=node.rack) for node in nodes.brokers}
    )
    topics = told("topics", lambda: find_topics(client))
    resources = [Resource(ResourceType.TOPIC, topic.name) for topic in topics]
    brokers = [Resource(ResourceType.BROKER, str(node)) for node in ("", *sorted(found.brokers))]
    configs = {
        **_configs(client, resources, _TOPIC, untold),
        **_configs(client, brokers[:1], _ALL_BROKERS, untold),
    }
    for broker in brokers[1:]:
        configs |= _configs(client, [broker], _BROKER, untold)
    cluster = replace(
        found,
        topics={topic.name: _topic(topic) for topic in topics},
        configs=configs,
        acls=frozenset(told("ACLs", lambda: describe_acls(client, AclFilter()))),
        quotas=dict(told("quotas", lambda: _quotas(client).items())),
        scram=dict.fromkeys(told("SCRAM users", lambda: _users(client))),
        features=dict(told("features", lambda: _features(client).items())),
    )
    return Described(cluster, tuple(untold))


def _topic(topic: DescribedTopic) -> Topic:
    partitions = {
        each.partition: Partition(
            ReplicaAssignment(each.replicas),
            None if each.leader == NO_LEADER else LeaderAndIsr(each.leader, each.leader_epoch, each.isr),
        )
        for each in topic.partitions
    }
    return Topic(topic.topic_id, partitions)


def _configs(
    client: Client, resources: Sequence[Resource], source: int, untold: list[str]
) -> dict[Resource, Mapping[str, str | None]]:
    """The configs that were set for resources; those that are refused are added to `untold`."""
    if not resources:
        return {}
    try:
        found = dict(try_describe_configs(client, resources))
    except (ClientError, UnsupportedApiError) as error:
        untold.append(f"configs of {resources[0].type.name.lower()}s: {error}")
        return {}
    refused = {name: each for (_, name), each in found.items() if isinstance(each, RefusedError)}
    for code in dict.fromkeys(each.code for each in refused.values()):
        alike = [each for each in refused.values() if each.code is code]
        more = f", and so for {len(alike) - 1} more" if len(alike) > 1 else ""
        untold.append(f"{alike[0]}{more}")
    set_ones = {
        resource: {each.name: each.value for each in entries if _source(each) == source}
        for resource, entries in found.items()
        if not isinstance(entries, RefusedError)
    }
    return {resource: configs for resource, configs in set_ones.items() if configs}


def _source(config: Entity) -> int:
    """Before Kafka 1.1 a broker says only whether a value is the default."""
    found: int | None = getattr(config, "config_source", None)
    if found is not None:
        return int(found)
    return _DEFAULT if config.is_default else _TOPIC


def _quotas(client: Client) -> dict[QuotaEntity, Mapping[str, float]]:
    return {_entity(entity): quotas for entity, quotas in describe_quotas(client, (), strict=False).items()}


def _entity(described: DescribedEntity) -> QuotaEntity:
    def part(kind: str) -> Part:
        name = described.name_of(kind)
        return DEFAULT if name == "" else name

    return QuotaEntity(part(USER), part(CLIENT_ID), part(IP))


def _users(client: Client) -> list[ScramUser]:
    return [
        ScramUser(user.name, mechanism.title)
        for user in describe_users(client)
        for mechanism in user.iterations
    ]


def _features(client: Client) -> dict[str, int]:
    said = describe_apis(client.any_connection())
    return {each.name: each.finalized for each in said.features if each.finalized is not None}
