"""The answers of a broker that does all that the controller wants."""

from __future__ import annotations

from klog.metadata.control_requests import (
    ControlRequest,
    ControlResponse,
    leader_and_isr_response,
    stop_replica_response,
)
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import UpdateMetadataResponse


def obeyed(request: ControlRequest) -> object:
    """The message that says that there was no error."""
    match request:
        case LeaderAndIsrRequest():
            return leader_and_isr_response(request, ControlResponse())
        case StopReplicaRequest():
            return stop_replica_response(ControlResponse())
    return UpdateMetadataResponse(error_code=0)
