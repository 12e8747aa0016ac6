"""Plans the writing of a cluster's metadata into an empty ZooKeeper, for klog or Kafka up to 3.9."""

from __future__ import annotations

from dataclasses import replace

from klog.cluster_metadata import tree_output
from klog.cluster_metadata.conversion_plan import Plan
from klog.cluster_metadata.forms import Reading, require_secrets, require_stopped
from klog.cluster_metadata.sources import zookeeper_address, zookeeper_tree
from klog.cluster_metadata.tree_plan import tree_plan
from klog.cluster_metadata.without_kraft import cluster_without_kraft, not_read_by_kafka_3_9
from klog.metadata.zookeeper_access import ZooKeeperAccess


def plan(reading: Reading, place: str, access: ZooKeeperAccess) -> Plan:
    """A tree below a chroot that is empty, or that this conversion has begun to write.

    With `zookeeper.set.acl` the new nodes belong to whom ZooKeeper knows this client as, as Kafka's do.
    Raises UsageError, StorageError (the tree is not empty), `StoreError`.
    """
    hosts = zookeeper_address(place)
    require_stopped(reading)
    cluster, kept_back = cluster_without_kraft(reading.cluster)
    require_secrets(cluster)
    with zookeeper_tree(hosts, access) as tree:
        tree_output.require_writable(tree, cluster)

    def write() -> None:
        from klog.metadata.zookeeper import ZooKeeperStore

        store = ZooKeeperStore(hosts, access)
        try:
            tree_output.write(store, cluster)
        finally:
            store.close()

    found = tree_plan(f"zookeeper://{hosts}", "a tree", cluster, write, kept_back)
    return replace(found, losses=(*found.losses, *not_read_by_kafka_3_9(reading.cluster)))
