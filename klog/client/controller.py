"""Sends a request to the controller of a cluster, wherever it is and while it moves.

Rules: KIP-4 (the controller changes metadata), KIP-590 (in KRaft any broker forwards; Metadata then names
some broker as the controller).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError
from klog.client.retry import Retry
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError

NO_CONTROLLER: Final = -1

Request = Callable[[int], Entity]
"""Makes a request of a version."""


def ask_controller(
    cluster: Cluster,
    api_key: ApiKey,
    request: Request,
    codes: Callable[[Entity], list[int]],
) -> Entity:
    """The controller's answer. Finds the controller again while one of its `codes` is NOT_CONTROLLER.

    No other failure is retried, for it leaves open whether the change was made. Raises ClientError,
    ChannelError.
    """
    retry = cluster.new_retry()
    while True:
        connection = controller_connection(cluster, retry)
        answer = connection.send(request(connection.version_of(api_key)))
        if ErrorCode.NOT_CONTROLLER not in codes(answer):
            return answer
        retry.failed(RefusedError(api_key.name, ErrorCode.NOT_CONTROLLER))


def controller_connection(cluster: Cluster, retry: Retry) -> Connection:
    """The open connection to the controller; waits until there is one. Raises ClientError, ChannelError."""
    while True:
        controller_id = cluster.metadata(()).controller_id
        try:
            if controller_id != NO_CONTROLLER:
                return cluster.connection(controller_id)
            retry.failed(ClientError("the cluster has no controller", cure="is one of its brokers starting?"))
        except ChannelError as error:
            retry.failed(error)
