"""Answers a controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata.

Rules: Kafka's KafkaApis; KIP-380: a request for an earlier registration of this broker is refused, and so is
one of a controller that has been replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klog.formats.names import TopicPartition
from klog.metadata.cache import MetadataCache, Partitions
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
from klog.replication.replica_manager import ReplicaManager
from klog.server.handlers.answers import entity_of
from klog.server.network.request import Request

_ANY_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ControlHandler:
    """Answers the three. `broker_epoch` is that of this broker's registration; `partitions_gone` gets
    partitions whose topic has been deleted. `on_update` gets each update, and the topics that were known
    before it.
    """

    replicas: ReplicaManager
    cache: MetadataCache
    topic_purgatory: Purgatory
    election_purgatory: Purgatory
    broker_epoch: Callable[[], int]
    on_update: Callable[[UpdateMetadataRequest, Mapping[str, Partitions]], None]
    partitions_gone: Callable[[Iterable[TopicPartition]], None] = lambda _: None

    def leader_and_isr(self, request: Request) -> None:
        """Lead and follow partitions."""
        wanted: LeaderAndIsrRequest = entity_of(request)
        request.respond([encode_response(leader_and_isr_response(wanted, self.carry_out(wanted)))])

    def stop_replica(self, request: Request) -> None:
        """Stop replicas, and delete some of them."""
        request.respond([encode_response(stop_replica_response(self.carry_out(entity_of(request))))])

    def update_metadata(self, request: Request) -> None:
        """Update the metadata cache, and complete the requests that wait for it."""
        wanted: UpdateMetadataRequest = entity_of(request)
        known = self.cache.snapshot.topics
        error = self.carry_out(wanted).error
        request.respond([encode_response(UpdateMetadataResponse(error_code=error))])
        if not error:
            self.on_update(wanted, known)

    def carry_out(self, wanted: ControlRequest) -> ControlResponse:
        """What the controller wants, unless it was meant for an earlier registration of this broker."""
        if wanted.broker_epoch != _ANY_EPOCH and wanted.broker_epoch < self.broker_epoch():
            return ControlResponse(ErrorCode.STALE_BROKER_EPOCH)
        match wanted:
            case LeaderAndIsrRequest():
                return self.replicas.leader_and_isr(wanted)
            case StopReplicaRequest():
                return self.replicas.stop_replicas(wanted)
            case _:
                return self._update(wanted)

    def _update(self, wanted: UpdateMetadataRequest) -> ControlResponse:
        if not self.replicas.accepts(wanted.controller_epoch):
            return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        gone = self.cache.update(wanted)
        if gone:
            self.partitions_gone(gone)
        if self.topic_purgatory.waiting:
            for topic in {state.topic_name for state in wanted.topic_states}:
                self.topic_purgatory.check_and_complete(topic)
        if self.election_purgatory.waiting:
            for partition, _ in partition_states(wanted.topic_states):
                self.election_purgatory.check_and_complete(partition)
        return ControlResponse()
