"""Sends a request to the controller of a cluster, wherever it is and while it moves.

Rules: KIP-4 (the controller changes metadata), KIP-590 (in KRaft any broker forwards; Metadata then names
some broker as the controller).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klog.client.cluster import Cluster
from klog.client.connection import Connection
from klog.client.errors import ClientError, RefusedError
from klog.client.retry import Retry
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ChannelError
from klog.protocol.messages import build, error_codes, request_class, response_class

NO_CONTROLLER: Final = -1


def _any_version(_version: int) -> None:
    """Every version of a request will do."""


def ask_controller(
    cluster: Cluster,
    api_key: ApiKey,
    values: Mapping[str, Value],
    check: Callable[[int], None] = _any_version,
) -> Entity:
    """The controller's answer. Finds the controller again while one of its error codes is NOT_CONTROLLER.

    `values` are those of all versions, as `build` takes them; `check` may refuse a version. No other
    failure is retried, for it leaves open whether the change was made. Raises ClientError, ChannelError.
    """
    retry = cluster.new_retry()
    while True:
        connection = controller_connection(cluster, retry)
        version = connection.version_of(api_key)
        check(version)
        answer = connection.send(build(request_class(api_key, version), **values))
        if ErrorCode.NOT_CONTROLLER not in error_codes(response_class(api_key, version), answer):
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
