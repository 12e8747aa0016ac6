"""Bundles what all parts of an active controller use."""

from __future__ import annotations

from dataclasses import dataclass

from klog.controller.context import ControllerContext
from klog.controller.partition_state_machine import PartitionStateMachine
from klog.controller.replica_state_machine import ReplicaStateMachine
from klog.controller.request_batch import RequestBatch
from klog.formats.names import TopicPartition
from klog.metadata.election import FencedStore


@dataclass(frozen=True, slots=True)
class StateMachines:
    """The context, the fenced store, the request batch and both state machines of an active controller."""

    context: ControllerContext
    fenced: FencedStore
    batch: RequestBatch
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine

    def send_update_metadata(self, partitions: list[TopicPartition] | None = None) -> None:
        """Sends UpdateMetadata with the live brokers and these partitions to every live broker."""
        self.batch.add_update_metadata(self.context.brokers, partitions or ())
        self.batch.send()
