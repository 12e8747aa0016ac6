"""Starts brokers for your tests: processes on free ports, whose files are removed at the end.

    import klog.testing

    with klog.testing.broker() as broker:
        broker.create_topic("orders", partitions=3)
        produce_to(broker.bootstrap_servers)

    with klog.testing.cluster(3) as cluster:
        cluster.create_topic("orders")
        cluster.kill(cluster.leader("orders"))

With pytest, use the fixtures `klog_broker` and `klog_cluster`. A broker needs only Python: no container, no
Java. A cluster also needs Java and PySpark, for its ZooKeeper.
"""

from klog.testing.cluster import KlogCluster, cluster
from klog.testing.process import BrokerFailedError, BrokerProcess, broker
from klog.testing.zookeeper import ZooKeeperFailedError, ZooKeeperProcess

__all__ = [
    "BrokerFailedError",
    "BrokerProcess",
    "KlogCluster",
    "ZooKeeperFailedError",
    "ZooKeeperProcess",
    "broker",
    "cluster",
]
