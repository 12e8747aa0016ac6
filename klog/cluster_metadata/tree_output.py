"""Writes a cluster's metadata into an empty metadata tree: ZooKeeper's or klog's own.

`/cluster/id` comes first, and has a mark in place of the id until all other nodes are there. With the mark no
broker starts, of Kafka or klog. If the writer is killed, the same one goes on: writes are sent in order in
one session, so the nodes that exist are the first ones.
"""

from __future__ import annotations

import contextlib
import hashlib
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from klog.cluster_metadata.forms import Held, require_secrets
from klog.cluster_metadata.model import Cluster, Partition
from klog.cluster_metadata.tree_form import ENTITIES, Tree
from klog.cluster_metadata.tree_nodes import nodes
from klog.formats.errors import KlogError, StorageError
from klog.metadata import paths, znodes
from klog.metadata.errors import NodeExistsError, NoNodeError, StoreError
from klog.metadata.retried_writes import write_all
from klog.metadata.store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    Operation,
    SetData,
    missing_parents,
)
from klog.metadata.values import INITIAL_PARTITION_EPOCH
from klog.protocol.acls import Acl, ResourcePattern
from klog.security.authorization import acl_znodes
from klog.security.quotas.administration import InvalidQuotaError, changed_config
from klog.security.quotas.administration import Operation as QuotaChange
from klog.security.quotas.entities import QuotaEntity

# ZooKeeper's own node in every tree.
_OF_ZOOKEEPER: Final = frozenset({"/zookeeper"})
_NODE_BYTES_MAX: Final = 1_000_000
"""ZooKeeper refuses requests above jute.maxbuffer, 1 MiB."""
_ABOVE_MARK: Final = "/cluster"
_GUARD: Final = Check(paths.CLUSTER_ID, 0)
"""Holds while the mark of this writer stands in place of the id."""
_TOGETHER: Final = 10_000
"""How many writes are given to the store at once."""
_IN_FLIGHT_MAX: Final = 2_000
"""At least as many writes as a store sends without waiting."""
_MADE_AT_START: Final = (*paths.PERSISTENT, *acl_znodes.PERSISTENT)
_OF_BROKERS: Final = frozenset(
    {*_MADE_AT_START, *(parent for path in _MADE_AT_START for parent in missing_parents(path))}
)
"""The nodes that a broker makes at its start before it registers. They may be there already."""

_Nodes = Sequence[tuple[str, bytes | None]]


def held(cluster: Cluster) -> Held:
    """What a tree can hold. The rest is known to KRaft only, or belongs to sessions."""
    losses = []
    if cluster.brokers or cluster.controllers or cluster.voters:
        losses.append("registrations of brokers and controllers: they register when they start")
    if cluster.features:
        losses.append("features and metadata versions: ZooKeeper's brokers finalize none")
    if cluster.migration_state:
        losses.append("the state of a migration to KRaft")
    metrics = {name: each for name, each in cluster.configs.items() if name.type not in ENTITIES}
    if metrics:
        losses.append("configs of client metrics")
    losses += _losses_of_partitions([partition for _, partition in cluster.partitions])
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


def _losses_of_partitions(partitions: Sequence[Partition]) -> Iterator[str]:
    if any(each.directories for each in partitions):
        yield "directories of replicas"
    if any(each.eligible_leaders or each.last_known_eligible_leaders for each in partitions):
        yield "eligible leaders"
    if any(each.state and each.state.partition_epoch != INITIAL_PARTITION_EPOCH for each in partitions):
        yield "partition epochs, which start at 0"


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


def write(
    store: MetadataStore, cluster: Cluster, on_progress: Callable[[int, int], None] | None = None
) -> tuple[str, ...]:
    """Writes a cluster and returns what was lost. A write that was killed goes on.

    `on_progress` is told how many writes are done, and how many there are. Raises UsageError (secrets were
    left out), StorageError (the tree is not empty, or another cluster was not written to its end),
    `StoreError`.
    """
    require_secrets(cluster)
    found, losses = held(cluster)
    wanted = list(nodes(found))
    _refuse_too_large(wanted)
    mark = znodes.encode_unfinished_tree(_fingerprint(wanted, found))
    operations = _missing(store, wanted, is_begun=_begin(store, mark))
    done = 0
    while done < len(operations):
        for outcome in write_all(store, operations[done : done + _TOGETHER], _GUARD):
            if isinstance(outcome, StoreError):
                raise outcome
        done = min(done + _TOGETHER, len(operations))
        if on_progress is not None:
            on_progress(done, len(operations))
    _count_broker_ids(store, found.generated_broker_ids)
    _finish(store, found.cluster_id)
    return losses


def require_writable(tree: Tree, cluster: Cluster) -> None:
    """Refuses a tree that `write` would refuse. Changes nothing. Raises StorageError, KlogError."""
    found, _ = held(cluster)
    wanted = list(nodes(found))
    _refuse_too_large(wanted)
    with contextlib.suppress(NoNodeError):  # the chroot is not there yet
        _is_begun(tree, znodes.encode_unfinished_tree(_fingerprint(wanted, found)))


def _begin(store: MetadataStore, mark: bytes) -> bool:
    """Sets the mark. True if it stands there already, because this cluster was not written to its end."""
    if _is_begun(store, mark):
        return True
    try:
        store.multi([Create(_ABOVE_MARK), Create(paths.CLUSTER_ID, mark)])
    except NodeExistsError as error:
        raise _not_empty() from error
    return False


def _is_begun(tree: Tree, mark: bytes) -> bool:
    """Whether the mark stands there; else the tree is empty. Raises StorageError."""
    present = tree.get_many([paths.CLUSTER_ID])[0]
    if present is not None and znodes.is_unfinished_tree(present.data):
        if present.data != mark:
            raise StorageError(
                "another cluster's metadata was not written to its end; nothing was changed",
                cure="write that one again, which goes on, or delete all nodes below this path",
            )
        return True
    require_empty(tree)
    return False


def _finish(store: MetadataStore, cluster_id: str | None) -> None:
    """Puts the id in place of the mark."""
    last: list[Operation]
    if cluster_id is None:
        last = [Delete(paths.CLUSTER_ID, _GUARD.version), Delete(_ABOVE_MARK)]
    else:
        last = [SetData(paths.CLUSTER_ID, znodes.encode_cluster_id(cluster_id), _GUARD.version)]
    for outcome in write_all(store, last):
        if isinstance(outcome, StoreError):
            raise outcome


def _missing(store: MetadataStore, wanted: _Nodes, *, is_begun: bool) -> list[Operation]:
    """The writes of those nodes that are not there."""
    at_start = [path for path, _ in wanted if path in _OF_BROKERS]
    present = dict(zip(at_start, store.get_many(at_start), strict=True))
    own = [path for path, _ in wanted if path not in _OF_BROKERS]
    written = _written(store, own) if is_begun else frozenset()
    operations: list[Operation] = []
    for path, data in wanted:
        node = present.get(path)
        if node is not None:
            if data is not None and node.data != data:
                operations.append(SetData(path, data))
        elif path not in written:
            operations.append(Create(path, data))
    return operations


def _written(store: MetadataStore, own: Sequence[str]) -> frozenset[str]:
    """Those nodes that are there: the first ones. Gaps can only be near the last, of writes in flight."""
    count = bisect(own, False, key=lambda path: store.exists(path) is None)
    start = max(0, count - _IN_FLIGHT_MAX)
    last = own[start : count + _IN_FLIGHT_MAX]
    found = zip(last, store.get_many(last), strict=True)
    return frozenset((*own[:start], *(path for path, node in found if node is not None)))


def _count_broker_ids(store: MetadataStore, generated: int) -> None:
    """Brings the counter of generated ids, which is a version, to where it was."""
    counter = store.exists(paths.BROKER_SEQUENCE)
    counted = 0 if counter is None else counter.version
    for outcome in write_all(store, [SetData(paths.BROKER_SEQUENCE, b"")] * (generated - counted), _GUARD):
        if isinstance(outcome, StoreError):
            raise outcome


def _fingerprint(wanted: _Nodes, cluster: Cluster) -> str:
    """The same for the same writes."""
    sums = hashlib.sha256(f"{cluster.cluster_id} {cluster.generated_broker_ids}".encode())
    for path, data in wanted:
        sums.update(f"\0{path}\0{-1 if data is None else len(data)}\0".encode())
        sums.update(data or b"")
    return sums.hexdigest()


def require_empty(store: Tree) -> None:
    """Refuses a tree unless it has no nodes, or only those that a broker makes before it registers, unused.

    Raises StorageError.
    """
    found: list[str] = []
    above = [""]
    while above:
        parent = above.pop()
        children = [f"{parent}/{name}" for name in store.children(parent or "/")]
        children = [path for path in children if path not in _OF_ZOOKEEPER]
        if not _OF_BROKERS.issuperset(children):
            raise _not_empty()
        found += children
        above += children
    if any(_is_used(node) for node in store.get_many(found)):
        raise _not_empty()


def _is_used(node: Node | None) -> bool:
    return node is not None and bool(node.data or node.stat.version)


def _not_empty() -> StorageError:
    return StorageError(
        "the metadata tree is not empty; nothing was changed",
        cure="name an empty one: another chroot, or a log directory without metadata",
    )


def _refuse_too_large(wanted: _Nodes) -> None:
    for path, data in wanted:
        if len(data or b"") > _NODE_BYTES_MAX:
            raise KlogError(
                f"znode {path} would have {len(data or b'')} bytes, more than ZooKeeper takes",
                cure="a topic with so many partitions can be in KRaft only",
            )
