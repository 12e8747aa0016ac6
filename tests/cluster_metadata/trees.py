"""A tree in memory, and the znodes of a live Kafka cluster as a tree."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable

import construct as c

from klog.cluster_metadata import tree_nodes
from klog.cluster_metadata.model import Cluster
from klog.formats import zookeeper_files as z
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


def log_file(operations: Iterable[Operation]) -> bytes:
    """A transaction log, from the first one on, that does these operations."""
    versions: dict[str, int] = {}
    data: bytes = z.LogHead.build({"magic": b"ZKLG", "version": 2, "dbid": 0})
    for zxid, each in enumerate(operations, 1):
        if isinstance(each, Create):  # one that is ephemeral belongs to session 1
            kind, record = z.CREATE, {"acl": [], "ephemeral": each.ephemeral, "parentCVersion": -1}
        else:
            versions[each.path] = versions.get(each.path, 0) + 1
            kind, record = z.SET_DATA, {"version": versions[each.path]}
        assert isinstance(each, Create | SetData)
        transaction = c.Container(
            session=1,
            cxid=zxid,
            zxid=zxid,
            timeMs=1_000 + zxid,
            type=kind,
            record={"path": each.path, "data": each.data, **record},
            digest=None,
        )
        data += log_entry(z.Transaction.build(transaction))
    return data + bytes(64)


def log_entry(body: bytes) -> bytes:
    checksum: bytes = c.Int64sb.build(zlib.adler32(body))
    return checksum + c.Prefixed(c.Int32sb, c.GreedyBytes).build(body) + z.END_OF_ENTRY
