"""DescribeCluster: the cluster's id, its controller and its live brokers (KIP-700, KIP-919)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.metadata.cache import MetadataCache
from klog.protocol.entity_fields import Value
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.topics.topic_metadata import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED_FOR,
    live_broker_structs,
)
from klog.server.network.request import Request

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_NO_CONTROLLER: Final = -1
_UNKNOWN: Final[Struct] = {
    "endpoint_type": _BROKERS,
    "cluster_id": "",
    "controller_id": _NO_CONTROLLER,
    "brokers": (),
    "cluster_authorized_operations": OPERATIONS_NOT_ASKED_FOR,
}


@dataclass(frozen=True, slots=True)
class DescribeClusterHandler:
    """Answers DescribeCluster requests."""

    cluster_id: str
    cache: MetadataCache

    def handle(self, request: Request) -> None:
        """Answer from the present snapshot."""
        wanted = entity_of(request)
        kind = getattr(wanted, "endpoint_type", _BROKERS)
        if kind == _BROKERS:
            self._describe(request, operations=wanted.include_cluster_authorized_operations)
        elif kind == _CONTROLLERS:
            what = "This endpoint is a broker's, no controller's."
            _answer(request, error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=what)
        else:
            what = f"Unsupported endpoint type {kind}"
            _answer(request, error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=what)

    def _describe(self, request: Request, *, operations: bool) -> None:
        snapshot = self.cache.snapshot
        brokers = live_broker_structs(snapshot, request.listener)
        controller = snapshot.controller_id
        _answer(
            request,
            error_code=ErrorCode.NONE,
            error_message=None,
            cluster_id=self.cluster_id,
            controller_id=_NO_CONTROLLER if controller is None else controller,
            brokers=brokers,
            cluster_authorized_operations=CLUSTER_OPERATIONS if operations else OPERATIONS_NOT_ASKED_FOR,
        )


def _answer(request: Request, **values: Value) -> None:
    send_answer(request, **{**_UNKNOWN, **values})
