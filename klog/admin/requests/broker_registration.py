"""Removes the registration of a broker from a KRaft cluster.

Rules: KIP-500 and the tool kafka-cluster. Brokers of a cluster with ZooKeeper are registered only while they
run, so such a cluster does not know the request. Any broker takes it and forwards it to the controller.
"""

from __future__ import annotations

from klog.client.cluster import Cluster
from klog.client.controller import ask_controller
from klog.client.requests import accepted
from klog.protocol.apis import ApiKey


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Make the cluster forget a broker.

    Raises UnsupportedApiError if the cluster has no such request, RefusedError, ChannelError.
    """
    values = {"broker_id": broker_id}
    accepted(ask_controller(cluster, ApiKey.UNREGISTER_BROKER, values), f"broker {broker_id}")
