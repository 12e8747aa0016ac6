"""Moving partitions to other brokers, while they stay available (KIP-455).

From Kafka's KafkaController. A reassignment lives in the topic's node, so that any controller goes on with
it: first the new replicas are added and catch up (phase A), then, all of them in sync, the old ones go
(phase B).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from klog.controller.leader_selection import Strategy
from klog.controller.machines import Machines
from klog.controller.states import Replica, ReplicaState
from klog.formats.names import TopicPartition
from klog.metadata.errors import StoreError
from klog.metadata.fenced_writes import update_partition_states, write_topic
from klog.metadata.topics import read_partition_states
from klog.metadata.values import LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from klog.protocol.error_codes import ErrorCode

_log = logging.getLogger(__name__)


class Reassignments:
    """One reign's reassignments."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._context = machines.context

    def running(self) -> dict[TopicPartition, ReplicaAssignment]:
        return {each: self._context.assignment(each) for each in sorted(self._context.being_reassigned)}

    def request(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, to_live_only: bool = True
    ) -> dict[TopicPartition, ErrorCode]:
        """Starts, replaces or (None) cancels reassignments; how each of them went. Those that are not
        `to_live_only` wait for brokers that are not there."""
        results = {}
        for where, target in targets.items():
            refusal = self._refusal(where, target, to_live_only=to_live_only)
            if refusal is None:
                present = self._context.assignment(where)
                goal = present.origin if target is None else tuple(target)
                refusal = self._advance(where, present.reassign_to(goal))
            results[where] = refusal
        return results

    def _refusal(
        self, where: TopicPartition, target: Sequence[int] | None, *, to_live_only: bool
    ) -> ErrorCode | None:
        present = self._context.assignment(where)
        if not present.replicas or where.topic in self._context.topics_to_delete:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if target is None:
            return None if present.is_being_reassigned else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        goal = tuple(target)
        adding = present.reassign_to(goal).adding
        broken = not goal or len(set(goal)) != len(goal) or min(goal) < 0
        dead = to_live_only and not all(self._context.is_alive(each) for each in adding)
        if broken or dead:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return None

    def resume_for(self, broker_ids: Collection[int]) -> None:
        """Brokers have started that reassignments wait for."""
        for where, assignment in self.running().items():
            if set(assignment.target).intersection(broker_ids):
                self._advance(where, assignment)

    def resume_all(self, besides: Collection[TopicPartition]) -> None:
        """What an earlier reign had begun goes on; `besides` are those that this one has set going."""
        for where, assignment in self.running().items():
            if where not in besides:
                self._advance(where, assignment)

    def isr_changed(self, partitions: Collection[TopicPartition]) -> None:
        """Reassignments whose replicas are now all in sync come to their end."""
        for where in self._context.being_reassigned.intersection(partitions):
            if self._is_complete(where, self._context.assignment(where)):
                self._advance(where, self._context.assignment(where))

    def _advance(self, where: TopicPartition, assignment: ReplicaAssignment) -> ErrorCode:
        """From wherever it stands to `assignment`: phase A or B. Its end is reached later, by ISR changes."""
        try:
            self._update(where, assignment)
            if self._is_complete(where, assignment):
                self._finish(where, assignment)
            else:
                self._add_replicas(where, assignment)
        except StoreError as error:
            _log.error("the reassignment of %s failed: %s", where, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _update(self, where: TopicPartition, assignment: ReplicaAssignment) -> None:
        present = self._context.assignment(where)
        if present != assignment:
            self._write(where, assignment)
            self._context.assign(where, assignment)
            # Replicas that an earlier reassignment was adding, and this one does not want.
            unneeded = [each for each in present.replicas if each not in assignment.replicas]
            self._remove(where, unneeded)
        self._context.being_reassigned.add(where)

    def _write(self, where: TopicPartition, assignment: ReplicaAssignment) -> None:
        topic = where.topic
        partitions = {**self._context.assignments[topic], where.partition: assignment}
        write_topic(
            self._machines.fenced, TopicAssignment(topic, self._context.topic_ids.get(topic), partitions)
        )

    def _is_complete(self, where: TopicPartition, assignment: ReplicaAssignment) -> bool:
        if not assignment.is_being_reassigned:
            return True
        state = read_partition_states(self._machines.fenced.store, [where]).get(where)
        return state is not None and set(assignment.target) <= set(state.leader_and_isr.isr)

    def _add_replicas(self, where: TopicPartition, assignment: ReplicaAssignment) -> None:
        self._bump_epoch(where, assignment)
        new = [Replica(where, each) for each in assignment.adding]
        # Resumed, the reassignment has started them before.
        started = self._context.replica_states
        self._machines.replicas.move([each for each in new if each not in started], ReplicaState.NEW)

    def _finish(self, where: TopicPartition, assignment: ReplicaAssignment) -> None:
        machines = self._machines
        machines.replicas.move([Replica(where, each) for each in assignment.adding], ReplicaState.ONLINE)
        done = ReplicaAssignment(assignment.target)
        self._context.assign(where, done)
        leader = self._context.leader(where)
        if leader in done.replicas and self._context.is_replica_online(leader, where):
            self._bump_epoch(where, done)
        else:
            machines.partitions.bring_online([where], Strategy.REASSIGN)
        self._remove(where, assignment.removing)
        self._context.assign(where, done)
        self._write(where, done)
        self._context.being_reassigned.discard(where)
        machines.tell_all([where])

    def _remove(self, where: TopicPartition, broker_ids: Collection[int]) -> None:
        replicas = [Replica(where, each) for each in broker_ids]
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            self._machines.replicas.move(replicas, state)

    def _bump_epoch(self, where: TopicPartition, assignment: ReplicaAssignment) -> None:
        """The same leader and ISR under a new leader epoch, so that every replica takes the assignment."""
        fenced, batch = self._machines.fenced, self._machines.batch
        while (state := read_partition_states(fenced.store, [where]).get(where)) is not None:
            known = state.leader_and_isr
            updates = update_partition_states(fenced, {where: known.next_epoch(known.leader, known.isr)})
            for error in updates.failed.values():
                raise error
            if where in updates.updated:
                leadership = LeaderIsrAndControllerEpoch(updates.updated[where], fenced.reign.epoch)
                self._context.leadership[where] = leadership
                batch.add_leader_and_isr(assignment.origin, where, leadership, is_new=False)
                # New: such a replica may go to any directory that works, for it has no log yet.
                batch.add_leader_and_isr(assignment.adding, where, leadership, is_new=True)
                batch.send()
                return
