"""A tree in memory, and the znodes of a live Kafka cluster as a tree."""

from __future__ import annotations

import itertools

from klog.cluster_metadata import tree_nodes
from klog.cluster_metadata.model import Cluster
from klog.metadata import paths, znodes
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.store import Create, Operation, SetData
from tests.metadata.memory_tree import NoJournal
from tests.metadata.samples import live_nodes


def empty_tree() -> TreeSession:
    return TreeSession(SharedTree(NoJournal(), itertools.count(1_000).__next__), lambda deliveries: None)


def live_tree() -> TreeSession:
    """What `znodes.txt` lists, with the versions of its nodes."""
    tree = empty_tree()
    for path, node in live_nodes().items():
        versions = [SetData(path, node.data)] * node.stat.version
        tree.multi([Create(path, node.data), *versions])
    return tree


def tree_operations(cluster: Cluster) -> list[Operation]:
    """What writes all nodes of a cluster."""
    counted: list[Operation] = [SetData(paths.BROKER_SEQUENCE, b"")] * cluster.generated_broker_ids
    last: list[Operation] = []
    if cluster.cluster_id is not None:
        last = [Create("/cluster"), Create(paths.CLUSTER_ID, znodes.encode_cluster_id(cluster.cluster_id))]
    return [*(Create(*each) for each in tree_nodes.nodes(cluster)), *counted, *last]
