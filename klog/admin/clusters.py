"""Describes a cluster: its brokers, controller, features and quorum, and what is needed to judge its health.

Brokers that cannot be reached do not stop the work: they are part of what is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.admin.health import ClusterState, LogDirFailure
from klog.admin.requests.cluster_description import (
    NO_BROKER,
    BrokerApis,
    BrokerNode,
    Feature,
    Quorum,
    describe_apis,
    describe_nodes,
    describe_quorum,
    tells_fenced,
)
from klog.admin.topics import add_configs, find_topics
from klog.client import admin
from klog.client.admin import Resource, ResourceType
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError
from klog.client.log_dirs import describe_log_dirs
from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import UnsupportedApiError

_MIN_ISR: Final = "min.insync.replicas"
_PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
_METADATA_VERSION: Final = "metadata.version"


class DescribedBroker(NamedTuple):
    """A broker with what it says itself; `error` is why it says nothing."""

    node: BrokerNode
    is_controller: bool
    version: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster. `controller_id` is that of the active controller, NO_BROKER if there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[DescribedBroker, ...]
    features: tuple[Feature, ...]
    quorum: Quorum | None

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        quorum = self.quorum
        return {
            "clusterId": self.cluster_id,
            "controllerId": None if self.controller_id == NO_BROKER else self.controller_id,
            "brokers": [broker_row(each) for each in self.brokers],
            "features": [feature_row(each) for each in self.features],
            "quorum": None
            if quorum is None
            else {
                "leaderId": quorum.leader_id,
                "leaderEpoch": quorum.leader_epoch,
                "highWatermark": quorum.high_watermark,
                "replicas": quorum_rows(quorum),
            },
        }


def broker_row(broker: DescribedBroker) -> dict[str, object]:
    """A broker's fields by Kafka's names."""
    return {
        "id": broker.node.broker_id,
        "host": broker.node.host,
        "port": broker.node.port,
        "rack": broker.node.rack,
        "isController": broker.is_controller,
        "isFenced": broker.node.is_fenced,
        "version": broker.version,
        "error": broker.error,
    }


def feature_row(feature: Feature) -> dict[str, object]:
    """A feature's fields by Kafka's names."""
    return {
        "feature": feature.name,
        "supportedMinVersion": feature.min_supported,
        "supportedMaxVersion": feature.max_supported,
        "finalizedVersionLevel": feature.finalized,
    }


def quorum_rows(quorum: Quorum) -> list[dict[str, object]]:
    """The fields of each replica by the names of `kafka-metadata-quorum`."""
    return [
        {
            "replicaId": each.replica_id,
            "status": "Leader"
            if each.replica_id == quorum.leader_id
            else ("Follower" if each.is_voter else "Observer"),
            "logEndOffset": each.log_end_offset,
            "lag": max(0, quorum.high_watermark - each.log_end_offset),
            "lastCaughtUpTimestamp": each.last_caught_up_ms,
        }
        for each in quorum.replicas
    ]


def endpoint_row(node: BrokerNode) -> dict[str, object]:
    """The fields of a broker by the names of `kafka-cluster list-endpoints`."""
    return {
        "id": node.broker_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "state": "fenced" if node.is_fenced else "unfenced",
        "endpointType": "broker",
    }


def endpoints(cluster: Cluster, *, include_fenced: bool) -> list[BrokerNode]:
    """The brokers by id. Raises ChannelError, and ClientError if the answer cannot have fenced ones."""
    if include_fenced and not tells_fenced(cluster):
        raise ClientError(
            "the cluster does not tell which brokers are fenced",
            cure="Kafka 4.0 and later do; leave out --include-fenced-brokers",
        )
    return [each for each in describe_nodes(cluster).brokers if include_fenced or not each.is_fenced]


def is_running(cluster: Cluster, broker_id: int) -> bool:
    """Whether a broker takes part in the cluster. Raises ClientError, ChannelError."""
    return any(each.broker_id == broker_id and not each.is_fenced for each in describe_nodes(cluster).brokers)


def count_replicas(cluster: Cluster, broker_id: int) -> int:
    """How many replicas a broker has, as far as this user may see them. Raises ClientError, ChannelError."""
    return sum(broker_id in each.replicas for topic in find_topics(cluster) for each in topic.partitions)


def check_can_unregister(cluster: Cluster) -> None:
    """Raise ClientError unless the cluster has registrations that outlive a broker. Raises ChannelError."""
    try:
        cluster.any_connection().version_of(ApiKey.UNREGISTER_BROKER)
    except UnsupportedApiError as error:
        raise ClientError(
            "the cluster cannot unregister brokers: only KRaft's registrations outlive a broker",
            cure="stop the broker, and it is forgotten",
        ) from error


def describe(cluster: Cluster) -> ClusterDescription:
    """The cluster, and what each broker that can be reached says. Raises ClientError, ChannelError."""
    nodes, quorum = describe_nodes(cluster), _quorum(cluster)
    controller_id = nodes.controller_id if quorum is None else quorum.leader_id
    features: tuple[Feature, ...] = ()
    found = []
    for node in nodes.brokers:
        error, version = None, None
        try:
            said = describe_apis(cluster.connection(node.broker_id))
            features = features or said.features
            version = _version(cluster, node.broker_id, said)
        except KlogError as failure:
            error = "fenced" if node.is_fenced else str(failure)
        found.append(DescribedBroker(node, node.broker_id == controller_id, version, error))
    return ClusterDescription(nodes.cluster_id, controller_id, tuple(found), features, quorum)


def _version(cluster: Cluster, broker_id: int, said: BrokerApis) -> str | None:
    """The version of the protocol between brokers, which with KRaft is the level of metadata.version."""
    level = next((each.finalized for each in said.features if each.name == _METADATA_VERSION), None)
    if level is not None:
        return f"{_METADATA_VERSION} {level}"
    resource = Resource(ResourceType.BROKER, str(broker_id))
    ((_, configs),) = admin.describe_configs(cluster, [resource], names=[_PROTOCOL_VERSION])
    return next((each.value for each in configs if each.name == _PROTOCOL_VERSION), None)


def _quorum(cluster: Cluster) -> Quorum | None:
    """The quorum; None also if this user must not see it."""
    try:
        return describe_quorum(cluster)
    except RefusedError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return None


def examine(cluster: Cluster) -> ClusterState:
    """What is needed to judge the cluster's health. Raises ClientError, ChannelError."""
    nodes = describe_nodes(cluster)
    live = [each.broker_id for each in nodes.brokers if not each.is_fenced]
    log_dirs = describe_log_dirs(cluster, live, ())
    topics = add_configs(cluster, find_topics(cluster), [_MIN_ISR])
    return ClusterState(
        nodes,
        topics,
        _quorum(cluster),
        {broker_id: error.what for broker_id, error in log_dirs.failures.items() if not _may_not_ask(error)},
        [
            LogDirFailure(each.broker_id, each.path, each.error.name)
            for each in log_dirs.dirs
            if each.error is not ErrorCode.NONE
        ],
    )


def _may_not_ask(error: KlogError) -> bool:
    """Whether the broker answered, but does not tell this user of its log directories."""
    refused = isinstance(error, RefusedError) and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return refused or isinstance(error, UnsupportedApiError)
