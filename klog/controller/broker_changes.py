"""Reacts to brokers that start, fail, restart, shut down, change their endpoints or lose a log directory.

From Kafka's KafkaController (onBrokerStartup, onBrokerFailure, controlled shutdown, log-dir events).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from klog.controller.broker_request_queue import BrokerRequestQueue
from klog.controller.leader_selection import Strategy
from klog.controller.reassignments import Reassignments
from klog.controller.state_machines import StateMachines
from klog.controller.states import PartitionState, Replica, ReplicaState
from klog.controller.topic_deletion import TopicDeletion
from klog.formats.names import TopicPartition
from klog.metadata.values import BrokerRegistration, LeaderAndIsr
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)


class BrokerChanges:
    """Carries out what follows from changes of the brokers."""

    def __init__(
        self,
        state_machines: StateMachines,
        deletion: TopicDeletion,
        reassignments: Reassignments,
        request_queue: BrokerRequestQueue,
    ) -> None:
        self._state_machines = state_machines
        self._context = state_machines.context
        self._deletion = deletion
        self._reassignments = reassignments
        self._request_queue = request_queue

    def brokers_changed(self, now: Mapping[int, BrokerRegistration]) -> list[int]:
        """Compares the registered brokers with those in the context. Returns the ids that are new or
        restarted.

        A broker with another epoch has restarted, although no watch showed that it was gone.
        """
        before = self._context.brokers
        bounced = [each for each in before if each in now and now[each].epoch != before[each].epoch]
        gone = [each for each in before if each not in now]
        new = [each for each in now if each not in before]
        for broker_id in (*bounced, *gone):
            self._request_queue.remove_broker(broker_id)
            del self._context.brokers[broker_id]
        if bounced or gone:
            self._failed([*bounced, *gone])
        started = sorted([*bounced, *new])
        if started:
            for broker_id in started:
                self._context.brokers[broker_id] = now[broker_id]
                self._request_queue.add_broker(now[broker_id])
            self._started(started)
        return started

    def _started(self, broker_ids: Collection[int]) -> None:
        context, state_machines = self._context, self._state_machines
        for broker_id in broker_ids:
            context.offline_dirs.pop(broker_id, None)
        state_machines.batch.add_update_metadata(set(context.brokers).difference(broker_ids))
        state_machines.batch.send()
        # New brokers get all metadata before they are told which replicas to host.
        state_machines.batch.add_update_metadata(broker_ids, list(context.leadership))
        state_machines.batch.send()
        replicas = context.replicas_on(broker_ids)
        state_machines.replicas.move(replicas, ReplicaState.ONLINE)
        state_machines.partitions.elect_missing_leaders()
        self._reassignments.resume_for(broker_ids)
        self._deletion.resume_for({each.partition.topic for each in replicas})

    def _failed(self, broker_ids: Collection[int]) -> None:
        for broker_id in broker_ids:
            self._context.offline_dirs.pop(broker_id, None)
            self._context.shutting_down.discard(broker_id)
        self.replicas_offline(self._context.replicas_on(broker_ids))

    def replicas_offline(self, replicas: Iterable[Replica]) -> None:
        """The brokers or directories of these replicas have failed: elects other leaders and shrinks ISRs."""
        context, state_machines = self._context, self._state_machines
        kept: list[Replica] = []
        deleted: list[Replica] = []
        for replica in replicas:
            (deleted if replica.partition.topic in context.topics_to_delete else kept).append(replica)
        state_machines.partitions.move(context.partitions_with_offline_leader(), PartitionState.OFFLINE)
        results = state_machines.partitions.elect_missing_leaders()
        state_machines.replicas.move(kept, ReplicaState.OFFLINE)
        self._deletion.fail(deleted)
        if not kept and not any(isinstance(each, LeaderAndIsr) for each in results.values()):
            # No other request has told the brokers that some of them are gone.
            state_machines.send_update_metadata()

    def broker_updated(self, broker: BrokerRegistration) -> None:
        """A registration was rewritten: sends new endpoints to all brokers."""
        known = self._context.brokers.get(broker.broker_id)
        if known is not None and known.epoch == broker.epoch and known != broker:
            self._context.brokers[broker.broker_id] = broker
            if known.endpoints != broker.endpoints or known.rack != broker.rack:
                self._state_machines.send_update_metadata()

    def log_dirs_failed(self, broker_ids: Collection[int]) -> None:
        """Sends LeaderAndIsr for all replicas of these brokers.

        They answer KAFKA_STORAGE_ERROR for offline ones.
        """
        self._state_machines.replicas.move(self._context.replicas_on(broker_ids), ReplicaState.ONLINE)

    def leader_and_isr_answered(
        self, broker_id: int, errors: Mapping[TopicPartition, ErrorCode], topic_ids: Mapping[str, str]
    ) -> None:
        """Records which of a broker's replicas are in offline
        directories, and acts on those that were online.

        `topic_ids` are those of the request. An answer may come when the replica is given up, or its topic is
        deleted, or another topic has its name; then it says nothing of what there is now.
        """
        before = self._context.offline_dirs.get(broker_id, set())
        online, offline = (
            {
                partition
                for partition, error in errors.items()
                if error is wanted and self._is_replica(broker_id, partition, topic_ids.get(partition.topic))
            }
            for wanted in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        )
        now = (before - online) | offline
        if now:
            self._context.offline_dirs[broker_id] = now
        else:
            self._context.offline_dirs.pop(broker_id, None)
        if now - before:
            self.replicas_offline([Replica(partition, broker_id) for partition in sorted(now - before)])

    def _is_replica(self, broker_id: int, partition: TopicPartition, topic_id: str | None) -> bool:
        """Whether a broker has a replica of a partition of the topic with this id (None: of any id)."""
        if topic_id not in (None, self._context.topic_ids.get(partition.topic)):
            return False
        return broker_id in self._context.assignment(partition).replicas

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition] | ErrorCode:
        """Moves leadership off a broker that wants to stop. Returns the partitions that it still leads.

        Returns none if all brokers stop: nobody is left who might take over, so the broker need not wait.
        """
        known = self._context.brokers.get(broker_id)
        if known is None:
            return ErrorCode.BROKER_NOT_AVAILABLE
        if broker_epoch < known.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self._context.shutting_down.add(broker_id)
        replicated = [
            replica.partition
            for replica in self._context.replicas_on([broker_id])
            if len(self._context.assignment(replica.partition).replicas) > 1
            and replica.partition in self._context.leadership
            and replica.partition.topic not in self._context.topics_to_delete
        ]
        led = [each for each in replicated if self._context.leader(each) == broker_id]
        followed = [each for each in replicated if self._context.leader(each) != broker_id]
        self._state_machines.partitions.bring_online(led, Strategy.CONTROLLED_SHUTDOWN)
        self._state_machines.replicas.move(
            [Replica(each, broker_id) for each in followed], ReplicaState.OFFLINE
        )
        remaining = {each for each in replicated if self._context.leader(each) == broker_id}
        if remaining and not any(map(self._context.is_alive, self._context.brokers)):
            _log.info("all brokers stop: broker %d stops with %d partitions", broker_id, len(remaining))
            return set()
        return remaining
