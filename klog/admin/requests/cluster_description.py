"""Asks what a cluster consists of: brokers, features (KIP-584), versions of APIs, the quorum (KIP-595).

Every broker answers for the cluster. ApiVersions is the exception: a broker answers for itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.requests import accepted, ask
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.errors import UnsupportedApiError

NO_BROKER: Final = -1
_BROKERS: Final = 1
_FENCED_FROM: Final = 2
_METADATA_TOPIC: Final = "__cluster_metadata"
_LAST_API_VERSIONS: Final = 4


class BrokerNode(NamedTuple):
    """A broker as the cluster knows it. A fenced one is registered, but takes no part yet."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class ClusterNodes(NamedTuple):
    """The brokers by id, and the controller: NO_BROKER if there is none, some broker in KRaft mode."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerNode, ...]


class Feature(NamedTuple):
    """A feature: the levels that a broker supports, and the one in force, None if it is not in use."""

    name: str
    min_supported: int
    max_supported: int
    finalized: int | None


class ApiRange(NamedTuple):
    """The versions of an API that a broker serves, both ends included."""

    api_key: int
    min_version: int
    max_version: int


class BrokerApis(NamedTuple):
    """What a broker says of itself."""

    apis: tuple[ApiRange, ...]
    features: tuple[Feature, ...]


class QuorumReplica(NamedTuple):
    """A node that replicates the metadata log. Times are in ms, -1 if they are not known."""

    replica_id: int
    is_voter: bool
    log_end_offset: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    """The replicas of the metadata log of a KRaft cluster; the leader is the active controller."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]


def describe_nodes(cluster: Cluster) -> ClusterNodes:
    """The brokers, fenced ones included if the cluster tells them. Raises ChannelError, RefusedError."""
    metadata = cluster.metadata(())
    connection = cluster.any_connection()
    nodes = _nodes(metadata.brokers)
    try:
        version = connection.version_of(ApiKey.DESCRIBE_CLUSTER)
    except UnsupportedApiError:
        return ClusterNodes(metadata.cluster_id, int(metadata.controller_id), nodes)
    if version >= _FENCED_FROM:
        answer = ask(
            connection,
            ApiKey.DESCRIBE_CLUSTER,
            include_cluster_authorized_operations=False,
            endpoint_type=_BROKERS,
            include_fenced_brokers=True,
        )
        accepted(answer, "the cluster")
        nodes = _nodes(answer.brokers)
    return ClusterNodes(metadata.cluster_id, int(metadata.controller_id), nodes)


def tells_fenced(cluster: Cluster) -> bool:
    """Whether `describe_nodes` has the fenced brokers (KIP-1073, Kafka 4.0). Raises ChannelError."""
    try:
        return cluster.any_connection().version_of(ApiKey.DESCRIBE_CLUSTER) >= _FENCED_FROM
    except UnsupportedApiError:
        return False


def _nodes(brokers: Entity) -> tuple[BrokerNode, ...]:
    return tuple(
        sorted(
            BrokerNode(
                int(getattr(each, "node_id", getattr(each, "broker_id", NO_BROKER))),
                each.host,
                int(each.port),
                each.rack or None,
                bool(getattr(each, "is_fenced", False)),
            )
            for each in brokers
        )
    )


def describe_apis(connection: Connection) -> BrokerApis:
    """The APIs and features of one broker. Raises ChannelError, RefusedError."""
    answer = ask(
        connection,
        ApiKey.API_VERSIONS,
        at_most=_LAST_API_VERSIONS,
        client_software_name="klog",
        client_software_version="0",
    )
    accepted(answer, f"API versions of {connection}")
    finalized = {each.name: int(each.max_version_level) for each in getattr(answer, "finalized_features", ())}
    return BrokerApis(
        tuple(
            sorted(
                ApiRange(int(each.api_key), int(each.min_version), int(each.max_version))
                for each in answer.api_keys
            )
        ),
        tuple(
            sorted(
                Feature(each.name, int(each.min_version), int(each.max_version), finalized.get(each.name))
                for each in getattr(answer, "supported_features", ())
            )
        ),
    )


def describe_quorum(cluster: Cluster) -> Quorum | None:
    """The quorum of a KRaft cluster, None for a cluster without one.

    Raises ChannelError, RefusedError.
    """
    connection = cluster.any_connection()
    topic = {"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
    try:
        answer = ask(connection, ApiKey.DESCRIBE_QUORUM, topics=[topic])
    except UnsupportedApiError:
        return None
    accepted(answer, "the quorum")
    found = accepted(answer.topics[0].partitions[0], "the quorum")
    replicas = (
        QuorumReplica(
            int(each.replica_id),
            is_voter,
            int(each.log_end_offset),
            int(getattr(each, "last_caught_up_timestamp", NO_BROKER)),
        )
        for is_voter, group in ((True, found.current_voters), (False, found.observers))
        for each in group
    )
    return Quorum(
        int(found.leader_id), int(found.leader_epoch), int(found.high_watermark), tuple(sorted(replicas))
    )
