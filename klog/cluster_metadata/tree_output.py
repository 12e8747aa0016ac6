"""Writes a cluster's metadata into an empty metadata tree, as Kafka's controller and tools would have done.

The cluster's id comes last, so that a tree without one is known to be incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from klog.client.admin import ResourceType
from klog.cluster_metadata import token_znodes
from klog.cluster_metadata.forms import Held, require_secrets
from klog.cluster_metadata.model import Cluster, Partition, ScramUser
from klog.cluster_metadata.tree_form import ENTITIES, partition_paths
from klog.formats.errors import KlogError, StorageError
from klog.metadata import paths, znodes
from klog.metadata.errors import NodeExistsError, StoreError
from klog.metadata.producer_ids import BLOCK_SIZE
from klog.metadata.retried_writes import write_all
from klog.metadata.store import Check, Create, MetadataStore, Operation, SetData, missing_parents
from klog.metadata.values import (
    INITIAL_PARTITION_EPOCH,
    LeaderIsrAndControllerEpoch,
    ProducerIdBlock,
    TopicAssignment,
)
from klog.protocol.acls import Acl, ResourcePattern
from klog.security.authorization import acl_znodes
from klog.security.authorization.acl_set import by_pattern
from klog.security.quotas.administration import InvalidQuotaError, changed_config
from klog.security.quotas.administration import Operation as QuotaChange
from klog.security.quotas.entities import QuotaEntity

_ROOT: Final = "/brokers"
_NO_BROKER: Final = -1
# ZooKeeper's own node in every tree.
_OF_ZOOKEEPER: Final = frozenset({"/zookeeper"})
_NODE_BYTES_MAX: Final = 1_000_000
"""ZooKeeper refuses requests above jute.maxbuffer, 1 MiB."""


def held(cluster: Cluster) -> Held:
    """What a tree can hold. The rest is known to KRaft only, or belongs to sessions."""
    losses = []
    if cluster.brokers or cluster.controllers or cluster.voters:
        losses.append("registrations of brokers and controllers: they register when they start")
    if cluster.features or cluster.migration_state:
        losses.append("features and metadata versions: ZooKeeper's brokers finalize none")
    metrics = {name: each for name, each in cluster.configs.items() if name.type not in ENTITIES}
    if metrics:
        losses.append("configs of client metrics")
    if any(partition != _held_partition(partition) for _, partition in cluster.partitions):
        losses.append("directories of replicas, eligible leaders, partition epochs (which start at 0)")
    acls = frozenset(acl for acl in cluster.acls if acl_znodes.is_node_name(acl.pattern.name))
    losses += [
        f"the ACLs of {pattern}: ZooKeeper refuses its name" for pattern in _patterns(cluster.acls - acls)
    ]
    quotas = {entity: _held_quotas(entity, limits, losses) for entity, limits in cluster.quotas.items()}
    return Held(
        replace(
            cluster,
            topics={
                name: replace(
                    topic,
                    partitions={number: _held_partition(each) for number, each in topic.partitions.items()},
                )
                for name, topic in cluster.topics.items()
            },
            configs={name: each for name, each in cluster.configs.items() if name not in metrics},
            acls=acls,
            quotas={entity: limits for entity, limits in quotas.items() if limits},
            features={},
            brokers={},
            controllers={},
            voters={},
            migration_state=0,
        ),
        tuple(losses),
    )


def _held_partition(partition: Partition) -> Partition:
    state = partition.state and replace(partition.state, partition_epoch=INITIAL_PARTITION_EPOCH)
    return Partition(partition.assignment, state)


def _patterns(acls: frozenset[Acl]) -> list[ResourcePattern]:
    return sorted({acl.pattern for acl in acls})


def _held_quotas(entity: QuotaEntity, limits: Mapping[str, float], losses: list[str]) -> dict[str, float]:
    kept = {}
    for name, limit in limits.items():
        try:
            text = changed_config(entity, {}, [QuotaChange(name, limit)])[name]
        except InvalidQuotaError as error:
            losses.append(f"{name} of {entity}: {error.what}")
        else:
            kept[name] = float(text)
    return kept


def write(store: MetadataStore, cluster: Cluster) -> tuple[str, ...]:
    """Writes a cluster and returns what was lost.

    Raises UsageError (secrets were left out), StorageError (the tree is not empty), `StoreError`.
    """
    require_secrets(cluster)
    found, losses = held(cluster)
    present = _empty_nodes(store)
    nodes = list(operations(found, present))
    _refuse_too_large(nodes)
    if _ROOT not in present:
        try:
            store.create(_ROOT)
        except NodeExistsError as error:
            raise _not_empty() from error
    for outcome in write_all(store, nodes, Check(_ROOT, 0)):
        if isinstance(outcome, StoreError):
            raise outcome
    return losses


def _empty_nodes(store: MetadataStore) -> frozenset[str]:
    """The nodes of an empty tree: none, or those that a broker makes before it registers.

    Raises StorageError if there are others, or if one holds something.
    """
    made_at_start = (*paths.PERSISTENT, *acl_znodes.PERSISTENT)
    known = {*made_at_start, *(parent for path in made_at_start for parent in missing_parents(path))}
    found: list[str] = []
    above = [""]
    while above:
        parent = above.pop()
        children = [f"{parent}/{name}" for name in store.children(parent or "/")]
        children = [path for path in children if path not in _OF_ZOOKEEPER]
        if not known.issuperset(children):
            raise _not_empty()
        found += children
        above += children
    if any(node is not None and (node.data or node.stat.version) for node in store.get_many(found)):
        raise _not_empty()
    return frozenset(found)


def _not_empty() -> StorageError:
    return StorageError(
        "the metadata tree is not empty; nothing was changed",
        cure="name an empty one: another chroot, or a log directory without metadata",
    )


def _refuse_too_large(nodes: list[Operation]) -> None:
    for each in nodes:
        if isinstance(each, Create) and len(each.data or b"") > _NODE_BYTES_MAX:
            raise KlogError(
                f"znode {each.path} would have {len(each.data or b'')} bytes, more than ZooKeeper takes",
                cure="a topic with so many partitions can be in KRaft only",
            )


def operations(cluster: Cluster, present: frozenset[str] = frozenset()) -> Iterator[Operation]:
    """The writes of all nodes that are not `present`, each after those above it; the cluster's id last."""
    made = {_ROOT, *present}
    for path, data in _nodes(cluster):
        for parent in missing_parents(path):
            if parent not in made:
                made.add(parent)
                yield Create(parent)
        if path not in made:
            made.add(path)
            yield Create(path, data)
        elif data is not None:
            yield SetData(path, data)
    yield from [SetData(paths.BROKER_SEQUENCE, b"")] * cluster.generated_broker_ids
    if cluster.cluster_id is not None:
        yield Create("/cluster")
        yield Create(paths.CLUSTER_ID, znodes.encode_cluster_id(cluster.cluster_id))


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
    return ProducerIdBlock(_NO_BROKER, max(0, next_id - BLOCK_SIZE), next_id - 1)


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
    for user, credential in sorted(cluster.scram.items(), key=_user):
        if credential is not None:
            found.setdefault(QuotaEntity(user=user.user).path, {})[user.mechanism] = credential.text()
    # A user's node comes before those of its clients, which would make it without data.
    for entity_path, configs in sorted(found.items()):
        yield paths.config(entity_path), znodes.encode_config(configs)


def _user(item: tuple[ScramUser, object]) -> ScramUser:
    return item[0]


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
