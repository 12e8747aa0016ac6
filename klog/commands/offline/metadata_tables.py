"""A cluster's metadata as tables for people, one for each kind of thing that it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klog.cluster_metadata.comparison import entity_name
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.model import METADATA_VERSION, Cluster, Partition, Topic
from klog.commands.shared.messages import print_line, print_lines
from klog.commands.shared.tables import Row, show_table
from klog.config.keys import text_of
from klog.metadata.values import Endpoint

_HIDDEN: Final = "(hidden)"
_DEFAULT: Final = "<default>"


def show_cluster(reading: Reading) -> None:
    """Print all tables that have rows."""
    cluster = reading.cluster
    print_line(f"cluster {cluster.cluster_id or 'without an id'}, from {reading.form}")
    print_lines((*reading.details, *_numbers(cluster)))
    tables: dict[str, Sequence[Row]] = {
        "Nodes": [*_brokers(cluster), *_controllers(cluster)],
        "Topics": [_topic(name, topic, cluster) for name, topic in sorted(cluster.topics.items())],
        "Partitions": [_partition(str(place), each) for place, each in cluster.partitions],
        "Configs": list(_configs(cluster)),
        "Quotas": list(_quotas(cluster)),
        "Users": [{"user": user, "mechanism": mechanism} for user, mechanism in sorted(cluster.scram)],
        "ACLs": list(_acls(cluster)),
        "Delegation tokens": [
            {"token": token_id, "owner": token.owner, "requester": token.requester}
            for token_id, token in sorted(cluster.tokens.items())
        ],
    }
    for title, rows in tables.items():
        if rows:
            print_line("")
            print_line(title)
            show_table(rows)


def _numbers(cluster: Cluster) -> Iterable[str]:
    yield f"controller epoch {cluster.controller_epoch}, next producer id {cluster.next_producer_id}"
    levels = sorted(cluster.features.items(), key=lambda item: (item[0] != METADATA_VERSION, item))
    if levels:
        yield f"features: {', '.join(f'{name}={level}' for name, level in levels)}"
    if cluster.voters:
        yield f"voters: {', '.join(map(str, sorted(cluster.voters)))}"
    for partition, replicas in sorted(cluster.requested_reassignments.items()):
        yield f"reassignment requested: {partition} to {','.join(map(str, replicas))}"


def _brokers(cluster: Cluster) -> Iterable[Row]:
    for broker_id, broker in sorted(cluster.brokers.items()):
        state = "fenced" if broker.is_fenced else "registered"
        yield _node(broker_id, "broker", state, broker.epoch, broker.rack, broker.endpoints)


def _controllers(cluster: Cluster) -> Iterable[Row]:
    for node_id, controller in sorted(cluster.controllers.items()):
        yield _node(node_id, "controller", "registered", None, None, controller.endpoints)


def _node(
    node_id: int, role: str, state: str, epoch: int | None, rack: str | None, endpoints: Iterable[Endpoint]
) -> Row:
    texts = [f"{each.listener}://{each.host}:{each.port}" for each in endpoints]
    return {"node": node_id, "role": role, "state": state, "epoch": epoch, "rack": rack, "endpoints": texts}


def _topic(name: str, topic: Topic, cluster: Cluster) -> Row:
    factors = {len(each.assignment.replicas) for each in topic.partitions.values()}
    return {
        "topic": name,
        "topicId": topic.topic_id,
        "partitions": len(topic.partitions),
        "replicas": sorted(factors),
        "state": "to be deleted" if name in cluster.deletions else None,
    }


def _partition(name: str, partition: Partition) -> Row:
    state, assignment = partition.state, partition.assignment
    return {
        "partition": name,
        "leader": None if state is None or state.leader < 0 else state.leader,
        "leaderEpoch": None if state is None else state.leader_epoch,
        "replicas": assignment.replicas,
        "isr": () if state is None else state.isr,
        "adding": assignment.adding,
        "removing": assignment.removing,
    }


def _configs(cluster: Cluster) -> Iterable[Row]:
    for resource, configs in sorted(cluster.without_secrets().configs.items()):
        for name, value in sorted(configs.items()):
            yield {
                "type": resource.type.name.lower().replace("_", "-"),
                "name": resource.name or _DEFAULT,
                "config": name,
                "value": _HIDDEN if value is None else value,
            }


def _quotas(cluster: Cluster) -> Iterable[Row]:
    for entity, limits in sorted(cluster.quotas.items(), key=lambda item: item[0].path):
        for name, limit in sorted(limits.items()):
            yield {"entity": entity_name(entity), "quota": name, "value": text_of(limit)}


def _acls(cluster: Cluster) -> Iterable[Row]:
    for acl in sorted(cluster.acls):
        yield {
            "resource": f"{acl.pattern.resource_type.name} {acl.pattern.name}",
            "pattern": acl.pattern.pattern_type.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permission": acl.permission.name,
        }
