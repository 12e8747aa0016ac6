"""Moves replicas between New, Online, Offline and the states of their deletion.

From Kafka's ReplicaStateMachine. A replica that goes offline leaves the ISR unless it is the last member,
because only the last member has all records for sure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.controller.context import ControllerContext
from klog.controller.request_batch import RequestBatch
from klog.controller.states import VALID_PREVIOUS_REPLICA_STATES, Replica, ReplicaState, valid_transitions
from klog.formats.constants import NO_LEADER
from klog.formats.names import TopicPartition
from klog.metadata.election import FencedStore
from klog.metadata.fenced_writes import update_partition_states
from klog.metadata.topics import read_partition_states
from klog.metadata.values import LeaderAndIsr, LeaderIsrAndControllerEpoch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaStateMachine:
    """Moves replicas between states and sends the requests that follow. Raises ControllerMovedError."""

    context: ControllerContext
    fenced: FencedStore
    batch: RequestBatch

    def startup(self) -> None:
        """Makes live replicas online and the others offline.

        A deletion in progress waits for offline ones.
        """
        replicas = self.context.replicas_of(self.context.all_partitions())
        online, offline = [], []
        for replica in replicas:
            if self.context.is_replica_online(replica.broker_id, replica.partition):
                self.context.replica_states[replica] = ReplicaState.ONLINE
                online.append(replica)
            else:
                self.context.replica_states[replica] = ReplicaState.DELETION_INELIGIBLE
                offline.append(replica)
        self.move(online, ReplicaState.ONLINE)
        self.move(offline, ReplicaState.OFFLINE)

    def move(self, replicas: Iterable[Replica], target: ReplicaState) -> None:
        """Moves replicas to a state.

        Logs those that cannot go there from their state, and leaves them as they are.
        """
        by_broker: dict[int, list[Replica]] = {}
        for replica in self._valid(replicas, target):
            by_broker.setdefault(replica.broker_id, []).append(replica)
        for broker_id, group in sorted(by_broker.items()):
            match target:
                case ReplicaState.NEW:
                    self._make_new(group)
                case ReplicaState.ONLINE:
                    self._make_online(group)
                case ReplicaState.OFFLINE:
                    self._make_offline(broker_id, group)
                case ReplicaState.NON_EXISTENT:
                    self._forget(group)
                case _:
                    if target is ReplicaState.DELETION_STARTED:
                        for replica in group:
                            self.batch.add_stop_replica([broker_id], replica.partition, delete=True)
                    self._set(group, target)
        self.batch.send()

    def _valid(self, replicas: Iterable[Replica], target: ReplicaState) -> list[Replica]:
        return valid_transitions(
            replicas,
            target,
            self.context.replica_states,
            VALID_PREVIOUS_REPLICA_STATES,
            ReplicaState.NON_EXISTENT,
        )

    def _set(self, replicas: Iterable[Replica], state: ReplicaState) -> None:
        for replica in replicas:
            self.context.replica_states[replica] = state

    def _make_new(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            leadership = self.context.leadership.get(replica.partition)
            if leadership is not None:
                if leadership.leader_and_isr.leader == replica.broker_id:
                    _log.error("%s cannot be new: it is the leader", replica)
                    continue
                self.batch.add_leader_and_isr([replica.broker_id], replica.partition, leadership, is_new=True)
            self._set([replica], ReplicaState.NEW)

    def _make_online(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            leadership = self.context.leadership.get(replica.partition)
            was_new = self.context.replica_states[replica] is ReplicaState.NEW
            # LeaderAndIsr was sent to a new replica with the first state of its partition.
            if leadership is not None and not was_new:
                self.batch.add_leader_and_isr(
                    [replica.broker_id], replica.partition, leadership, is_new=False
                )
        self._set(replicas, ReplicaState.ONLINE)

    def _make_offline(self, broker_id: int, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            self.batch.add_stop_replica([broker_id], replica.partition, delete=False)
        led = [each.partition for each in replicas if each.partition in self.context.leadership]
        unchanged = {each.partition for each in replicas} - set(led)
        shrunk, failed = self._leave_isr(broker_id, led)
        for partition, leadership in shrunk.items():
            if partition.topic not in self.context.topics_to_delete:
                others = [each for each in self.context.assignment(partition).replicas if each != broker_id]
                self.batch.add_leader_and_isr(others, partition, leadership, is_new=False)
        self.batch.add_update_metadata(self.context.brokers if unchanged else (), unchanged)
        self._set((each for each in replicas if each.partition not in failed), ReplicaState.OFFLINE)

    def _leave_isr(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, LeaderIsrAndControllerEpoch], set[TopicPartition]]:
        """Removes a broker from ISRs. Returns the new states, and the partitions for which that failed."""
        results: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        failed: set[TopicPartition] = set()
        remaining = list(partitions)
        # The controller knows what it has read or written last. If that is outdated, the write fails.
        present: Mapping[TopicPartition, LeaderIsrAndControllerEpoch] = self.context.leadership
        while remaining:
            changes: dict[TopicPartition, LeaderAndIsr] = {}
            for partition in remaining:
                known = present.get(partition)
                if known is None or known.controller_epoch > self.fenced.epoch:
                    if partition.topic not in self.context.topics_to_delete:
                        _log.error("%s has no state in the tree that this controller may change", partition)
                        failed.add(partition)
                elif broker_id in known.leader_and_isr.isr:
                    changes[partition] = _without(known.leader_and_isr, broker_id)
                else:
                    results[partition] = self.context.set_leadership(
                        partition, known.leader_and_isr, self.fenced.epoch
                    )
            updates = update_partition_states(self.fenced, changes)
            results |= {
                partition: self.context.set_leadership(partition, state, self.fenced.epoch)
                for partition, state in updates.updated.items()
            }
            for partition, error in updates.failed.items():
                _log.error("broker %d could not leave the ISR of %s: %s", broker_id, partition, error)
                failed.add(partition)
            remaining = list(updates.outdated)
            present = read_partition_states(self.fenced.store, remaining)
        return results, failed

    def _forget(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            rest = self.context.assignment(replica.partition).without(replica.broker_id)
            self.context.assign(replica.partition, rest)
            self.context.replica_states.pop(replica, None)


def _without(state: LeaderAndIsr, broker_id: int) -> LeaderAndIsr:
    leader = NO_LEADER if state.leader == broker_id else state.leader
    isr = state.isr if len(state.isr) == 1 else tuple(each for each in state.isr if each != broker_id)
    return state.next_epoch(leader, isr)
