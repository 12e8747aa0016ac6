"""Holds what an active controller knows: brokers, topics, assignments, leaders, states, deletions.

It is read from the tree at failover and kept up to date by events. Only the event thread changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from klog.controller.states import PartitionState, Replica, ReplicaState
from klog.formats.names import TopicPartition
from klog.metadata.values import (
    BrokerRegistration,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
)
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, NO_EPOCH

_NO_ASSIGNMENT = ReplicaAssignment(())


class ControllerContext:
    """Plain state, and the questions that the state machines ask of it."""

    def __init__(self) -> None:
        # Live brokers, including those that are shutting down.
        self.brokers: dict[int, BrokerRegistration] = {}
        self.shutting_down: set[int] = set()
        self.offline_dirs: dict[int, set[TopicPartition]] = {}
        self.topics: set[str] = set()
        self.topic_ids: dict[str, str] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self.partition_states: dict[TopicPartition, PartitionState] = {}
        self.replica_states: dict[Replica, ReplicaState] = {}
        self.being_reassigned: set[TopicPartition] = set()
        self.topics_to_delete: set[str] = set()
        self.topics_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()

    # --- brokers ---

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not shutting down."""
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def is_replica_online(
        self, broker_id: int, partition: TopicPartition, *, include_shutting_down: bool = False
    ) -> bool:
        """Whether the broker is alive and the replica's directory is, as
        far as the controller knows, online.
        """
        alive = broker_id in self.brokers if include_shutting_down else self.is_alive(broker_id)
        return alive and partition not in self.offline_dirs.get(broker_id, ())

    # --- partitions and replicas ---

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic in sorted(self.assignments):
            yield from self.partitions_of(topic)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in sorted(self.assignments.get(topic, ()))]

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """The partition's replicas; empty if there is no such partition."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, _NO_ASSIGNMENT)

    def assign(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(partition.topic, {})[partition.partition] = assignment

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        return [
            Replica(partition, each)
            for partition in partitions
            for each in self.assignment(partition).replicas
        ]

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        return self.replicas_of(self.partitions_of(topic))

    def replicas_on(self, broker_ids: Collection[int]) -> list[Replica]:
        return [each for each in self.replicas_of(self.all_partitions()) if each.broker_id in broker_ids]

    def replicas_in_state(self, topic: str, state: ReplicaState) -> list[Replica]:
        return [each for each in self.replicas_of_topic(topic) if self.replica_states.get(each) is state]

    # --- leaders ---

    def leader(self, partition: TopicPartition) -> int | None:
        known = self.leadership.get(partition)
        return None if known is None else known.leader_and_isr.leader

    def set_leadership(
        self, partition: TopicPartition, state: LeaderAndIsr, controller_epoch: int
    ) -> LeaderIsrAndControllerEpoch:
        """Records a partition's state as the controller of this epoch has written it."""
        leadership = LeaderIsrAndControllerEpoch(state, controller_epoch)
        self.leadership[partition] = leadership
        return leadership

    def epoch_for_stop_replica(self, partition: TopicPartition) -> int:
        if partition.topic in self.topics_to_delete:
            return EPOCH_DURING_DELETE
        known = self.leadership.get(partition)
        return NO_EPOCH if known is None else known.leader_and_isr.leader_epoch

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        return [
            partition
            for partition, known in self.leadership.items()
            if partition.topic not in self.topics_to_delete
            and not self.is_replica_online(known.leader_and_isr.leader, partition)
        ]

    # --- topics ---

    def queue_deletion(self, topics: Iterable[str]) -> None:
        """Marks topics for deletion and drops their reassignments."""
        self.topics_to_delete.update(topics)
        self.being_reassigned = {
            each for each in self.being_reassigned if each.topic not in self.topics_to_delete
        }

    def remove_topic(self, topic: str) -> None:
        """Removes everything about a topic."""
        for replica in self.replicas_of_topic(topic):
            self.replica_states.pop(replica, None)
        for partition in self.partitions_of(topic):
            self.leadership.pop(partition, None)
            self.partition_states.pop(partition, None)
            self.being_reassigned.discard(partition)
            for partitions in self.offline_dirs.values():
                partitions.discard(partition)
        self.topics_to_delete.discard(topic)
        self.topics_deletion_started.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)
        self.topics.discard(topic)
        self.topic_ids.pop(topic, None)
        self.assignments.pop(topic, None)
