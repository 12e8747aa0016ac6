"""Moves partitions to other brokers while they stay available (KIP-455).

From Kafka's KafkaController. A reassignment is stored in the topic's node, so that any controller can
continue it. First the new replicas are added and catch up (phase A). When all of them are in sync, the old
replicas are removed (phase B).

A reassignment that replaces or cancels another one gives up the replicas that only that one was adding. One
of them may lead, or be the only one in sync. Kafka removes it nevertheless, so that nobody leads. Here one
that is in sync and stays is elected first. Without one the request is refused, as a cancellation is in KRaft.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from klog.controller.leader_selection import Strategy
from klog.controller.state_machines import StateMachines
from klog.controller.states import PartitionState, Replica, ReplicaState
from klog.formats.constants import NO_LEADER
from klog.formats.names import TopicPartition
from klog.metadata.errors import SessionExpiredError, StoreError
from klog.metadata.fenced_writes import update_partition_states, write_assignments
from klog.metadata.topics import read_partition_states
from klog.metadata.values import ReplicaAssignment, TopicAssignment
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)


class ReassignmentStart(NamedTuple):
    """The result for one partition of a request: an error code, and Kafka's message for some of them."""

    error: ErrorCode
    message: str | None = None


_STARTED: Final = ReassignmentStart(ErrorCode.NONE)
_NOT_RUNNING: Final = ReassignmentStart(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
)
_UNKNOWN: Final = ReassignmentStart(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_FAILED: Final = ReassignmentStart(
    ErrorCode.UNKNOWN_SERVER_ERROR,
    "The server experienced an unexpected error when processing the request.",
)
_LOSING: Final = ReassignmentStart(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "Only replicas that this would remove are in sync, so that records would be lost.",
)


class Reassignments:
    """Starts, continues, cancels and finishes reassignments."""

    def __init__(self, state_machines: StateMachines) -> None:
        self._state_machines = state_machines
        self._context = state_machines.context

    def running(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments of these partitions, or (None) of all, that are in progress."""
        asked = self._context.being_reassigned if partitions is None else set(partitions)
        found = {each: self._context.assignment(each) for each in sorted(asked)}
        return {each: assignment for each, assignment in found.items() if assignment.is_being_reassigned}

    def request(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, require_live_targets: bool = True
    ) -> dict[TopicPartition, ReassignmentStart]:
        """Starts, replaces or (None) cancels reassignments. Returns the result for each partition.

        If `require_live_targets` is false, a reassignment may wait for target brokers that are not alive.
        """
        results = {}
        for partition, target in targets.items():
            present = self._context.assignment(partition)
            goal = present.origin if target is None else tuple(target)
            refusal = self._refusal(partition, None if target is None else goal, live=require_live_targets)
            results[partition] = refusal or self._advance(partition, present.reassign_to(goal))
        return results

    def _refusal(
        self, partition: TopicPartition, target: tuple[int, ...] | None, *, live: bool
    ) -> ReassignmentStart | None:
        """Why a request is refused, in the order in which Kafka checks."""
        present = self._context.assignment(partition)
        if target is None:
            if not present.is_being_reassigned:
                return _NOT_RUNNING
        elif (invalid := self._invalid(present, target, live=live)) is not None:
            return ReassignmentStart(ErrorCode.INVALID_REPLICA_ASSIGNMENT, invalid)
        if not present.replicas or partition.topic in self._context.topics_to_delete:
            return _UNKNOWN
        return None

    def _invalid(self, present: ReplicaAssignment, target: tuple[int, ...], *, live: bool) -> str | None:
        if not target:
            return "Empty replica list specified in partition reassignment."
        if len(set(target)) != len(target):
            return f"Duplicate replica ids in partition reassignment replica list: {_listed(target)}"
        if min(target) < 0:
            return f"Invalid broker id in replica list: {_listed(target)}"
        adding = present.reassign_to(target).adding
        if live and not all(self._context.is_alive(each) for each in adding):
            alive = ", ".join(
                str(each) for each in sorted(self._context.brokers) if self._context.is_alive(each)
            )
            return (
                "Replica assignment has brokers that are not alive. "
                f"Replica list: {_listed(adding)}, live broker list: Set({alive})"
            )
        return None

    def resume_for(self, broker_ids: Collection[int]) -> None:
        """Continues the reassignments that have waited for these brokers."""
        for partition, assignment in self.running().items():
            if set(assignment.target).intersection(broker_ids):
                self._advance(partition, assignment)

    def resume_all(self, except_for: Collection[TopicPartition]) -> None:
        """Continues the reassignments that an earlier controller has started.

        `except_for` are those that this one started.
        """
        for partition in self._context.all_partitions():
            self._give_up_unassigned(partition)
        for partition, assignment in self.running().items():
            if partition not in except_for:
                self._advance(partition, assignment)

    def isr_changed(self, partitions: Collection[TopicPartition]) -> None:
        """Finishes the reassignments of these partitions whose target replicas are all in sync."""
        for partition in self._context.being_reassigned.intersection(partitions):
            if self._is_complete(partition, self._context.assignment(partition)):
                self._advance(partition, self._context.assignment(partition))

    def _advance(self, partition: TopicPartition, assignment: ReplicaAssignment) -> ReassignmentStart:
        """Starts phase A, or phase B if all target replicas are in sync.

        `isr_changed` starts phase B later. Raises SessionExpiredError: then this broker is no controller.
        """
        try:
            if self._would_lose(partition, assignment):
                return _LOSING
            self._update(partition, assignment)
            if self._is_complete(partition, assignment):
                self._finish(partition, assignment)
            else:
                self._add_replicas(partition, assignment)
        except SessionExpiredError:
            raise
        except StoreError as error:
            _log.error("the reassignment of %s failed: %s", partition, error)
            return _FAILED
        return _STARTED

    def _update(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        if self._context.assignment(partition) != assignment:
            unneeded = self._unneeded(partition, assignment)
            self._write(partition, assignment)
            self._context.assign(partition, assignment)
            self._give_up(partition, unneeded)
        self._context.being_reassigned.add(partition)

    def _unneeded(self, partition: TopicPartition, assignment: ReplicaAssignment) -> set[int]:
        """The replicas that an earlier reassignment was adding, and that this assignment does not need."""
        return set(self._context.assignment(partition).replicas).difference(assignment.replicas)

    def _would_lose(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        """Whether replicas in sync would be given up while no other one is in sync and alive."""
        unneeded = self._unneeded(partition, assignment)
        if not unneeded:
            return False
        state = read_partition_states(self._state_machines.fenced.store, [partition]).get(partition)
        isr = () if state is None else state.leader_and_isr.isr
        return not unneeded.isdisjoint(isr) and not self._can_lead(partition, isr, assignment)

    def _can_lead(self, partition: TopicPartition, isr: Sequence[int], assignment: ReplicaAssignment) -> bool:
        """Whether one of the assigned replicas is in sync and alive."""
        return any(
            each in assignment.replicas and self._context.is_replica_online(each, partition) for each in isr
        )

    def _give_up_unassigned(self, partition: TopicPartition) -> None:
        """Gives up leaders and replicas in sync that an earlier controller has left.

        It wrote an assignment without them and then ended. Without them there must be one that can lead.
        """
        known = self._context.leadership.get(partition)
        if known is None or partition.topic in self._context.topics_to_delete:
            return
        assignment, isr = self._context.assignment(partition), known.leader_and_isr.isr
        left = {known.leader_and_isr.leader, *isr}.difference(assignment.replicas, [NO_LEADER])
        if left and self._can_lead(partition, isr, assignment):
            for broker_id in left:
                self._context.replica_states[Replica(partition, broker_id)] = ReplicaState.ONLINE
            self._give_up(partition, left)

    def _give_up(self, partition: TopicPartition, broker_ids: Collection[int]) -> None:
        """Removes replicas, after another one in sync has been elected if one of them leads."""
        if self._context.leader(partition) in broker_ids:
            self._state_machines.partitions.move([partition], PartitionState.OFFLINE)
            self._state_machines.partitions.bring_online([partition], Strategy.OFFLINE)
        self._remove(partition, broker_ids)

    def _write(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        topic = partition.topic
        partitions = {**self._context.assignments[topic], partition.partition: assignment}
        write_assignments(
            self._state_machines.fenced,
            TopicAssignment(topic, self._context.topic_ids.get(topic), partitions),
        )

    def _is_complete(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        if not assignment.is_being_reassigned:
            return True
        state = read_partition_states(self._state_machines.fenced.store, [partition]).get(partition)
        return state is not None and set(assignment.target) <= set(state.leader_and_isr.isr)

    def _add_replicas(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self._bump_epoch(partition, assignment)
        new = [Replica(partition, each) for each in assignment.adding]
        # A reassignment that is continued has started these replicas before.
        started = self._context.replica_states
        self._state_machines.replicas.move([each for each in new if each not in started], ReplicaState.NEW)

    def _finish(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        state_machines = self._state_machines
        state_machines.replicas.move(
            [Replica(partition, each) for each in assignment.adding], ReplicaState.ONLINE
        )
        done = ReplicaAssignment(assignment.target)
        self._context.assign(partition, done)
        leader = self._context.leader(partition)
        if leader in done.replicas and self._context.is_replica_online(leader, partition):
            self._bump_epoch(partition, done)
        else:
            state_machines.partitions.bring_online([partition], Strategy.REASSIGN)
        self._remove(partition, assignment.removing)
        self._context.assign(partition, done)
        self._write(partition, done)
        self._context.being_reassigned.discard(partition)
        state_machines.send_update_metadata([partition])

    def _remove(self, partition: TopicPartition, broker_ids: Collection[int]) -> None:
        replicas = [Replica(partition, each) for each in sorted(broker_ids)]
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            self._state_machines.replicas.move(replicas, state)

    def _bump_epoch(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Keeps leader and ISR under a new leader epoch, so that every replica accepts the new assignment."""
        fenced, batch = self._state_machines.fenced, self._state_machines.batch
        while (state := read_partition_states(fenced.store, [partition]).get(partition)) is not None:
            known = state.leader_and_isr
            updates = update_partition_states(fenced, {partition: known.next_epoch(known.leader, known.isr)})
            for error in updates.failed.values():
                raise error
            if partition in updates.updated:
                leadership = self._context.set_leadership(partition, updates.updated[partition], fenced.epoch)
                batch.add_leader_and_isr(assignment.origin, partition, leadership, is_new=False)
                # `is_new`: the replica has no log yet, so that it may be created in any online directory.
                batch.add_leader_and_isr(assignment.adding, partition, leadership, is_new=True)
                batch.send()
                return


def _listed(broker_ids: Sequence[int]) -> str:
    """The brokers as they stand in Kafka's messages."""
    return f"ArrayBuffer({', '.join(map(str, broker_ids))})"
