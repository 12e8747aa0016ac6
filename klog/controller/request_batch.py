"""Gathers requests to brokers while states change, and sends them together: per broker LeaderAndIsr, then
UpdateMetadata, then StopReplica.

From Kafka's ControllerBrokerRequestBatch. A broker must know live brokers and leaders before it stops
replicas, and every change of a leader goes to the metadata of all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from klog.controller.broker_request_queue import BrokerRequestQueue
from klog.controller.context import ControllerContext
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import group_by_topic, metadata_broker, topic_uuid
from klog.metadata.values import LeaderIsrAndControllerEpoch
from klog.protocol.interbroker.leader_and_isr import (
    UNKNOWN_TYPE,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from klog.protocol.interbroker.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from klog.protocol.interbroker.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TopicState = TypeVar("TopicState", LeaderAndIsrTopicState, UpdateMetadataTopicState)


@dataclass(slots=True, eq=False)
class RequestBatch:
    """The requests that one active controller has not sent yet. It is used again after each `send`.

    `listener` names the listener between brokers: LeaderAndIsr gives the addresses of leaders on it.
    """

    context: ControllerContext
    request_queue: BrokerRequestQueue
    controller_id: int
    controller_epoch: int
    listener: str
    _leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartitionState]] = field(
        init=False, default_factory=dict
    )
    _update_brokers: set[int] = field(init=False, default_factory=set)
    _update_partitions: dict[TopicPartition, UpdateMetadataPartitionState] = field(
        init=False, default_factory=dict
    )
    _stop_replica: dict[int, dict[TopicPartition, bool]] = field(init=False, default_factory=dict)

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        partition: TopicPartition,
        leadership: LeaderIsrAndControllerEpoch,
        *,
        is_new: bool,
    ) -> None:
        """Adds LeaderAndIsr of a partition for some brokers, and UpdateMetadata of it for all."""
        state, assignment = leadership.leader_and_isr, self.context.assignment(partition)
        sent = LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=leadership.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            is_new=is_new,
            leader_recovery_state=int(state.recovery_state),
        )
        for broker_id in broker_ids:
            self._leader_and_isr.setdefault(broker_id, {})[partition] = sent
        self.add_update_metadata(self.context.brokers, [partition])

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Adds UpdateMetadata with the live brokers, and with those
        partitions that have had a leader, for some brokers.
        """
        self._update_brokers.update(broker_ids)
        for partition in partitions:
            leadership = self.context.leadership.get(partition)
            if leadership is not None:
                self._update_partitions[partition] = self._metadata(partition, leadership)

    def _metadata(
        self, partition: TopicPartition, leadership: LeaderIsrAndControllerEpoch
    ) -> UpdateMetadataPartitionState:
        state, replicas = leadership.leader_and_isr, self.context.assignment(partition).replicas
        deleting = partition.topic in self.context.topics_to_delete
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_epoch,
            replicas=replicas,
            offline_replicas=tuple(
                each for each in replicas if not self.context.is_replica_online(each, partition)
            ),
        )

    def add_stop_replica(self, broker_ids: Iterable[int], partition: TopicPartition, *, delete: bool) -> None:
        """Adds StopReplica of a partition for some brokers. A deletion that was added before stays one."""
        for broker_id in broker_ids:
            partitions = self._stop_replica.setdefault(broker_id, {})
            partitions[partition] = delete or partitions.get(partition, False)

    def send(self) -> None:
        """Queues all requests for the brokers that are alive, and empties the batch."""
        self._send_leader_and_isr()
        self._send_update_metadata()
        self._send_stop_replica()

    def _live(self, broker_ids: Iterable[int]) -> list[int]:
        return sorted(each for each in broker_ids if each in self.context.brokers)

    def _send_leader_and_isr(self) -> None:
        gathered, self._leader_and_isr = self._leader_and_isr, {}
        for broker_id in self._live(gathered):
            states = gathered[broker_id]
            request = LeaderAndIsrRequest(
                controller_id=self.controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=self.context.brokers[broker_id].epoch,
                request_type=UNKNOWN_TYPE,
                topic_states=self._topic_states(LeaderAndIsrTopicState, states),
                live_leaders=self._live_leaders({each.leader for each in states.values()}),
            )
            self.request_queue.send(broker_id, request)

    def _topic_states(
        self, topic_state: Callable[..., TopicState], states: Mapping[TopicPartition, object]
    ) -> tuple[TopicState, ...]:
        """The states by topic, with the ids of the topics."""
        return tuple(
            topic_state(
                topic_name=topic,
                topic_id=topic_uuid(self.context.topic_ids.get(topic)),
                partition_states=tuple(each),
            )
            for topic, each in group_by_topic(states).items()
        )

    def _live_leaders(self, leaders: set[int]) -> tuple[LeaderAndIsrLiveLeader, ...]:
        found = ((each, self.context.brokers[each].endpoint(self.listener)) for each in self._live(leaders))
        return tuple(
            LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
            for leader, endpoint in found
            if endpoint is not None
        )

    def _send_update_metadata(self) -> None:
        brokers, self._update_brokers = self._live(self._update_brokers), set()
        states, self._update_partitions = self._update_partitions, {}
        topic_states = self._topic_states(UpdateMetadataTopicState, states)
        live_brokers = tuple(map(metadata_broker, self.context.brokers.values()))
        for broker_id in brokers:
            request = UpdateMetadataRequest(
                controller_id=self.controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=self.context.brokers[broker_id].epoch,
                topic_states=topic_states,
                live_brokers=live_brokers,
            )
            self.request_queue.send(broker_id, request)

    def _send_stop_replica(self) -> None:
        gathered, self._stop_replica = self._stop_replica, {}
        for broker_id in self._live(gathered):
            states = {
                partition: StopReplicaPartitionState(
                    partition_index=partition.partition,
                    leader_epoch=self.context.epoch_for_stop_replica(partition),
                    delete_partition=delete,
                )
                for partition, delete in gathered[broker_id].items()
            }
            request = StopReplicaRequest(
                controller_id=self.controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=self.context.brokers[broker_id].epoch,
                topic_states=tuple(
                    StopReplicaTopicState(topic_name=topic, partition_states=tuple(each))
                    for topic, each in group_by_topic(states).items()
                ),
            )
            self.request_queue.send(broker_id, request)
