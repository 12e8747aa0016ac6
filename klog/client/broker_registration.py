"""Removes the registration of a broker from a KRaft cluster.

Rules: KIP-500 and the tool kafka-cluster. Brokers of a cluster with ZooKeeper are registered only while they
run, so such a cluster does not know the request. Any broker takes it and forwards it to the controller.
"""

from __future__ import annotations

from klog.client.cluster import Cluster
from klog.client.controller import ask_controller
from klog.client.errors import RefusedError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Make the cluster forget a broker.

    Raises UnsupportedApiError if the cluster has no such request, RefusedError, ChannelError.
    """

    def request(version: int) -> Entity:
        return build(request_class(ApiKey.UNREGISTER_BROKER, version), broker_id=broker_id)

    answer = ask_controller(cluster, ApiKey.UNREGISTER_BROKER, request, lambda each: [each.error_code])
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError(f"broker {broker_id}", answer.error_code, message=answer.error_message)
