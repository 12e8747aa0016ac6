"""A cluster's metadata as the nodes of the metadata tree, as Kafka's controller and tools make them."""

from __future__ import annotations

from collections.abc import Iterator

from klog.client.admin import ResourceType
from klog.cluster_metadata import token_znodes
from klog.cluster_metadata.model import Cluster
from klog.cluster_metadata.tree_form import ENTITIES, partition_paths
from klog.formats.constants import NO_LEADER
from klog.metadata import paths, znodes
from klog.metadata.producer_ids import BLOCK_SIZE
from klog.metadata.store import missing_parents
from klog.metadata.values import LeaderIsrAndControllerEpoch, ProducerIdBlock, TopicAssignment
from klog.security.authorization import acl_znodes
from klog.security.authorization.acl_set import by_pattern
from klog.security.quotas.administration import Operation as QuotaChange
from klog.security.quotas.administration import changed_config
from klog.security.quotas.entities import QuotaEntity


def nodes(cluster: Cluster) -> Iterator[tuple[str, bytes | None]]:
    """All nodes but the cluster's id, each once and after those above it: path and data."""
    made: set[str] = set()
    for path, data in _nodes(cluster):
        for parent in missing_parents(path):
            if parent not in made:
                made.add(parent)
                yield parent, None
        if path not in made:
            made.add(path)
            yield path, data


def _nodes(cluster: Cluster) -> Iterator[tuple[str, bytes | None]]:
    block = _producer_id_block(cluster.next_producer_id)
    if block is not None:
        yield paths.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block)
    for path in paths.PERSISTENT:
        yield path, None
    if cluster.controller_epoch:
        yield paths.CONTROLLER_EPOCH, znodes.encode_epoch(cluster.controller_epoch)
    yield from _configs(cluster)
    yield from _users(cluster)
    yield from _topics(cluster)
    for name in sorted(cluster.deletions):
        yield paths.delete_topic(name), None
    if cluster.requested_reassignments:
        data = znodes.encode_reassignments(cluster.requested_reassignments)
        yield paths.REASSIGN_PARTITIONS, data
    for pattern, acls in by_pattern(cluster.acls).items():
        yield acl_znodes.pattern_path(pattern), acl_znodes.encode_acls(acls)
    for token_id, token in sorted(cluster.tokens.items()):
        yield token_znodes.path(token_id), token_znodes.encode(token_id, token)


def _producer_id_block(next_id: int) -> ProducerIdBlock | None:
    if not next_id:
        return None
    return ProducerIdBlock(NO_LEADER, max(0, next_id - BLOCK_SIZE), next_id - 1)


def _configs(cluster: Cluster) -> Iterator[tuple[str, bytes]]:
    """The configs of resources. Each topic has a node for them."""
    found = {f"topics/{name}": znodes.encode_config({}) for name in sorted(cluster.topics)}
    for resource, configs in sorted(cluster.configs.items()):
        name = znodes.sanitize(resource.name or paths.DEFAULT_ENTITY)
        values = {key: value for key, value in sorted(configs.items()) if value is not None}
        found[f"{ENTITIES[ResourceType(resource.type)]}/{name}"] = znodes.encode_config(values)
    for entity_path, data in found.items():
        yield paths.config(entity_path), data


def _users(cluster: Cluster) -> Iterator[tuple[str, bytes]]:
    """Quotas and credentials: those of one user share a node."""
    found: dict[str, dict[str, str]] = {}
    for entity, limits in cluster.quotas.items():
        found[entity.path] = changed_config(
            entity, {}, [QuotaChange(*each) for each in sorted(limits.items())]
        )
    for user, credential in sorted(cluster.scram.items(), key=lambda item: item[0]):
        if credential is not None:
            found.setdefault(QuotaEntity(user=user.user).path, {})[user.mechanism] = credential.text()
    # A user's node comes before those of its clients, which would make it without data.
    for entity_path, configs in sorted(found.items()):
        yield paths.config(entity_path), znodes.encode_config(configs)


def _topics(cluster: Cluster) -> Iterator[tuple[str, bytes | None]]:
    for name, topic in sorted(cluster.topics.items()):
        replicas = {number: each.assignment for number, each in sorted(topic.partitions.items())}
        yield paths.topic(name), znodes.encode_topic(TopicAssignment(name, topic.topic_id, replicas))
        for number, partition in sorted(topic.partitions.items()):
            if partition.state is not None:
                node, state_node = partition_paths(name, number)
                state = LeaderIsrAndControllerEpoch(partition.state, cluster.controller_epoch)
                yield node, None
                yield state_node, znodes.encode_partition_state(state)
