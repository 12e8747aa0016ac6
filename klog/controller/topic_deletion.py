"""Deletes topics that are marked in the tree, replica by replica.

From Kafka's TopicDeletionManager. The deletion of a topic waits (the topic is ineligible) while one of its
replicas is offline or could not be deleted, and continues when a broker starts. Kafka also waits for the end
of reassignments, which never comes once the leaders are gone. Here deletion goes first, and deletes old and
new replicas alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from klog.controller.state_machines import StateMachines
from klog.controller.states import PartitionState, Replica, ReplicaState
from klog.metadata import paths
from klog.metadata.fenced_writes import delete_nodes, delete_topic

_log = logging.getLogger(__name__)


class TopicDeletion:
    """The deletions of one active controller.

    `forget_watch(topic)` is called before the node of a topic is deleted. `enabled` is `delete.topic.enable`;
    if it is false, the marks are removed from the tree.
    """

    def __init__(
        self, state_machines: StateMachines, forget_watch: Callable[[str], None], *, enabled: bool
    ) -> None:
        self._state_machines = state_machines
        self._context = state_machines.context
        self._forget_watch = forget_watch
        self._enabled = enabled

    def startup(self, topics: Collection[str]) -> None:
        """Takes over the deletions that were requested before this election. `resume` starts them."""
        if not self._enabled:
            self._drop(topics)
            return
        self._context.queue_deletion(topics)
        offline = {
            replica.partition.topic
            for replica in self._context.replicas_of(self._context.all_partitions())
            if not self._context.is_replica_online(replica.broker_id, replica.partition)
        }
        self._halt(offline.intersection(topics), "offline replicas")

    def request(self, topics: Collection[str]) -> None:
        """Handles new marks in the tree."""
        unknown = set(topics) - self._context.topics
        self._drop(unknown)
        known = set(topics) - unknown
        if not self._enabled:
            self._drop(known)
        elif known:
            self._context.queue_deletion(known)
            self.resume()

    def resume_for(self, topics: Iterable[str]) -> None:
        """Tries these topics again, because the reason to wait may be gone."""
        waiting = self._context.topics_to_delete.intersection(topics)
        if waiting:
            self._context.topics_ineligible_for_deletion -= waiting
            self.resume()

    def fail(self, replicas: Iterable[Replica]) -> None:
        """These replicas could not be deleted, or their broker has failed."""
        failed = [each for each in replicas if each.partition.topic in self._context.topics_to_delete]
        if failed:
            self._make_ineligible(failed)
            self._halt({each.partition.topic for each in failed}, "replicas that could not be deleted")
            self.resume()

    def complete(self, replicas: Iterable[Replica]) -> None:
        """Brokers have deleted these replicas."""
        done = [each for each in replicas if each.partition.topic in self._context.topics_to_delete]
        self._state_machines.replicas.move(done, ReplicaState.DELETION_SUCCESSFUL)
        self.resume()

    def resume(self) -> None:
        """Finishes topics whose replicas are all deleted, and starts the deletion of eligible topics."""
        retry, eligible = [], []
        for topic in sorted(self._context.topics_to_delete):
            states = {
                self._context.replica_states.get(each) for each in self._context.replicas_of_topic(topic)
            }
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                self._finish(topic)
                continue
            running = ReplicaState.DELETION_STARTED in states
            if ReplicaState.DELETION_INELIGIBLE in states and not running:
                retry.append(topic)
            if not running and topic not in self._context.topics_ineligible_for_deletion:
                eligible.append(topic)
        for topic in retry:
            again = self._context.replicas_in_state(topic, ReplicaState.DELETION_INELIGIBLE)
            self._state_machines.replicas.move(again, ReplicaState.OFFLINE)
        if eligible:
            self._start(eligible)

    def _start(self, topics: Collection[str]) -> None:
        context, state_machines = self._context, self._state_machines
        unseen = [
            partition
            for topic in topics
            if topic not in context.topics_deletion_started
            for partition in context.partitions_of(topic)
        ]
        state_machines.partitions.move(unseen, PartitionState.OFFLINE)
        state_machines.partitions.move(unseen, PartitionState.NON_EXISTENT)
        context.topics_deletion_started.update(topics)
        # Leader -2 makes brokers remove these partitions from their metadata.
        state_machines.send_update_metadata(
            [partition for topic in topics for partition in context.partitions_of(topic)]
        )
        self._stop_replicas(topics)

    def _stop_replicas(self, topics: Collection[str]) -> None:
        dead, alive = [], []
        for topic in topics:
            for replica in self._context.replicas_of_topic(topic):
                if not self._context.is_replica_online(replica.broker_id, replica.partition):
                    dead.append(replica)
                elif self._context.replica_states.get(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                    alive.append(replica)
        machine = self._state_machines.replicas
        self._make_ineligible(dead)
        # Followers stop fetching before the first log is deleted.
        machine.move(alive, ReplicaState.OFFLINE)
        machine.move(alive, ReplicaState.DELETION_STARTED)
        self._halt({each.partition.topic for each in dead}, "offline replicas")

    def _make_ineligible(self, replicas: Iterable[Replica]) -> None:
        """Marks the replicas whose deletion has begun, so that it is retried."""
        begun = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
        states = self._context.replica_states
        affected = [each for each in replicas if states.get(each) in begun]
        self._state_machines.replicas.move(affected, ReplicaState.DELETION_INELIGIBLE)

    def _finish(self, topic: str) -> None:
        self._forget_watch(topic)
        gone = self._context.replicas_in_state(topic, ReplicaState.DELETION_SUCCESSFUL)
        self._state_machines.replicas.move(gone, ReplicaState.NON_EXISTENT)
        delete_topic(self._state_machines.fenced, topic)
        self._context.remove_topic(topic)
        _log.info("topic %s is deleted", topic)

    def _halt(self, topics: Collection[str], reason: str) -> None:
        halted = self._context.topics_to_delete.intersection(topics)
        if halted:
            self._context.topics_ineligible_for_deletion |= halted
            _log.info("the deletion of %s waits for %s", ", ".join(sorted(halted)), reason)

    def _drop(self, topics: Collection[str]) -> None:
        if topics:
            _log.warning("not deleting %s: unknown, or delete.topic.enable is off", ", ".join(sorted(topics)))
            delete_nodes(self._state_machines.fenced, [paths.delete_topic(topic) for topic in sorted(topics)])
