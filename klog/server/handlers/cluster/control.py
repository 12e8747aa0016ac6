"""Answers a controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata.

Rules: Kafka's KafkaApis; KIP-380: a request for an earlier registration of this broker is refused, and so is
one of a controller that has been replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache
from klog.metadata.control_requests import (
    ControlRequest,
    ControlResponse,
    leader_and_isr_response,
    partition_states,
    stop_replica_response,
)
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import StopReplicaRequest
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from klog.protocol.messages import encode_response
from klog.replication.purgatory import Purgatory
from klog.server.handlers.answers import entity_of
from klog.server.handlers.topics.topic_waits import DelayedElection, DelayedTopics
from klog.server.network.request import Request

_ANY_EPOCH: Final = -1

RequestT = TypeVar("RequestT", LeaderAndIsrRequest, StopReplicaRequest)


class Replicas(Protocol):
    """The part of the replica manager that the controller's requests use."""

    def accepts(self, controller_epoch: int) -> bool: ...

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> ControlResponse: ...

    def stop_replicas(self, request: StopReplicaRequest) -> ControlResponse: ...


@dataclass(frozen=True, slots=True)
class ControlHandler:
    """Answers the three. `broker_epoch` is that of this broker's registration; `partitions_gone` is told of
    partitions whose topic has been deleted."""

    replicas: Replicas
    cache: MetadataCache
    topic_purgatory: Purgatory[DelayedTopics]
    election_purgatory: Purgatory[DelayedElection]
    broker_epoch: Callable[[], int]
    partitions_gone: Callable[[Iterable[TopicPartition]], None] = lambda _: None

    def leader_and_isr(self, request: Request) -> None:
        """Lead and follow partitions."""
        wanted: LeaderAndIsrRequest = entity_of(request)
        answer = self._answer(wanted, self.replicas.leader_and_isr)
        request.respond([encode_response(leader_and_isr_response(wanted, answer))])

    def stop_replica(self, request: Request) -> None:
        """Stop replicas, and delete some of them."""
        wanted: StopReplicaRequest = entity_of(request)
        answer = self._answer(wanted, self.replicas.stop_replicas)
        request.respond([encode_response(stop_replica_response(answer))])

    def update_metadata(self, request: Request) -> None:
        """Update the metadata cache, and complete the requests that wait for it."""
        wanted: UpdateMetadataRequest = entity_of(request)
        error = ErrorCode.NONE
        if self._is_stale(wanted):
            error = ErrorCode.STALE_BROKER_EPOCH
        elif not self.replicas.accepts(wanted.controller_epoch):
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            self._update(wanted)
        request.respond([encode_response(UpdateMetadataResponse(error_code=error))])

    def _update(self, wanted: UpdateMetadataRequest) -> None:
        gone = self.cache.update(wanted)
        if gone:
            self.partitions_gone(gone)
        if self.topic_purgatory.waiting:
            for topic in {state.topic_name for state in wanted.topic_states}:
                self.topic_purgatory.check_and_complete(topic)
        if self.election_purgatory.waiting:
            for partition, _ in partition_states(wanted.topic_states):
                self.election_purgatory.check_and_complete(partition)

    def _answer(self, wanted: RequestT, carry_out: Callable[[RequestT], ControlResponse]) -> ControlResponse:
        if self._is_stale(wanted):
            return ControlResponse(ErrorCode.STALE_BROKER_EPOCH)
        return carry_out(wanted)

    def _is_stale(self, wanted: ControlRequest) -> bool:
        """Whether the request was meant for an earlier registration of this broker."""
        return wanted.broker_epoch != _ANY_EPOCH and wanted.broker_epoch < self.broker_epoch()
