"""Requests to brokers gathered while states change, and sent together: per broker LeaderAndIsr, then
UpdateMetadata, then StopReplica.

From Kafka's ControllerBrokerRequestBatch. A broker must hear of live brokers and leaders before it lets go
of replicas, and every change of a leader goes to the metadata of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from klog.controller.context import ControllerContext
from klog.controller.outbox import Outbox
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from klog.metadata.values import LEADER_DURING_DELETE, ZERO_TOPIC_ID, LeaderIsrAndControllerEpoch


class RequestBatch:
    """One reign's batch, used again and again."""

    def __init__(
        self, context: ControllerContext, outbox: Outbox, controller_id: int, controller_epoch: int
    ) -> None:
        self._context = context
        self._outbox = outbox
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = {}
        self._update_brokers: set[int] = set()
        self._update_partitions: dict[TopicPartition, UpdateMetadataPartition] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        where: TopicPartition,
        leadership: LeaderIsrAndControllerEpoch,
        *,
        is_new: bool,
    ) -> None:
        """Tells some brokers to hold a partition, and all of its leader."""
        state, assignment = leadership.leader_and_isr, self._context.assignment(where)
        for broker_id in broker_ids:
            self._leader_and_isr.setdefault(broker_id, {})[where] = LeaderAndIsrPartition(
                partition=where,
                controller_epoch=leadership.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                partition_epoch=state.partition_epoch,
                replicas=assignment.replicas,
                adding=assignment.adding,
                removing=assignment.removing,
                is_new=is_new,
                recovery_state=state.recovery_state,
            )
        self.add_update_metadata(self._context.brokers, [where])

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Tells brokers of these partitions (those without a leader yet are left out) and of all brokers."""
        self._update_brokers.update(broker_ids)
        for where in partitions:
            leadership = self._context.leadership.get(where)
            if leadership is not None:
                self._update_partitions[where] = self._metadata(where, leadership)

    def _metadata(
        self, where: TopicPartition, leadership: LeaderIsrAndControllerEpoch
    ) -> UpdateMetadataPartition:
        state, replicas = leadership.leader_and_isr, self._context.assignment(where).replicas
        deleting = where.topic in self._context.topics_to_delete
        return UpdateMetadataPartition(
            partition=where,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=replicas,
            offline_replicas=tuple(
                each for each in replicas if not self._context.is_replica_online(each, where)
            ),
        )

    def add_stop_replica(self, broker_ids: Iterable[int], where: TopicPartition, *, delete: bool) -> None:
        for broker_id in broker_ids:
            partitions = self._stop_replica.setdefault(broker_id, {})
            partitions[where] = delete or partitions.get(where, False)

    def send(self) -> None:
        """Queues everything gathered for the brokers that are alive, and empties the batch."""
        self._send_leader_and_isr()
        self._send_update_metadata()
        self._send_stop_replica()

    def _live(self, broker_ids: Iterable[int]) -> list[int]:
        return sorted(each for each in broker_ids if each in self._context.brokers)

    def _ids(self, partitions: Collection[TopicPartition]) -> dict[str, str]:
        topics = {where.topic for where in partitions}
        return {topic: self._context.topic_ids.get(topic, ZERO_TOPIC_ID) for topic in sorted(topics)}

    def _send_leader_and_isr(self) -> None:
        gathered, self._leader_and_isr = self._leader_and_isr, {}
        for broker_id in self._live(gathered):
            partitions = gathered[broker_id]
            leaders = self._live({each.leader for each in partitions.values()})
            request = LeaderAndIsrRequest(
                self._controller_id,
                self._controller_epoch,
                self._context.brokers[broker_id].epoch,
                tuple(partitions.values()),
                self._ids(partitions),
                tuple(self._context.brokers[each] for each in leaders),
            )
            self._outbox.send(broker_id, request)

    def _send_update_metadata(self) -> None:
        brokers, self._update_brokers = self._live(self._update_brokers), set()
        partitions, self._update_partitions = self._update_partitions, {}
        live = tuple(self._context.brokers.values())
        ids = {topic: each for topic, each in self._ids(partitions).items() if each != ZERO_TOPIC_ID}
        states = tuple(partitions.values())
        for broker_id in brokers:
            request = UpdateMetadataRequest(
                self._controller_id,
                self._controller_epoch,
                self._context.brokers[broker_id].epoch,
                states,
                ids,
                live,
            )
            self._outbox.send(broker_id, request)

    def _send_stop_replica(self) -> None:
        gathered, self._stop_replica = self._stop_replica, {}
        for broker_id in self._live(gathered):
            request = StopReplicaRequest(
                self._controller_id,
                self._controller_epoch,
                self._context.brokers[broker_id].epoch,
                tuple(
                    StopReplicaPartition(where, self._context.epoch_for_stop_replica(where), delete)
                    for where, delete in gathered[broker_id].items()
                ),
            )
            self._outbox.send(broker_id, request)
