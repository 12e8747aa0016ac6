"""What every part of an active controller works with, in one value."""

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
    """One reign's knowledge, its way to write, and its state machines."""

    context: ControllerContext
    fenced: FencedStore
    batch: RequestBatch
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine

    def send_update_metadata(self, partitions: list[TopicPartition] | None = None) -> None:
        """Sends UpdateMetadata to every live broker: about all brokers, and these partitions."""
        self.batch.add_update_metadata(self.context.brokers, partitions or ())
        self.batch.send()
