"""Reads new topics and partitions from the tree and brings them online."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import replace

from klog.controller.leader_selection import Strategy
from klog.controller.state_machines import StateMachines
from klog.controller.states import PartitionState, ReplicaState
from klog.formats.names import TopicPartition
from klog.metadata.errors import InvalidZnodeError, NoNodeError
from klog.metadata.fenced_writes import write_topic
from klog.metadata.store import Watch
from klog.metadata.topics import new_topic_id, watch_topic
from klog.metadata.values import ReplicaAssignment, TopicAssignment

_log = logging.getLogger(__name__)

# Gives the watch for changes of one topic's node.
WatchFor = Callable[[str], Watch]


class TopicChanges:
    """Adds topics to the context and brings their partitions online."""

    def __init__(self, state_machines: StateMachines, watch_for: WatchFor) -> None:
        self._state_machines = state_machines
        self._context = state_machines.context
        self._watch_for = watch_for

    def read(self, names: Collection[str]) -> list[TopicPartition]:
        """Adds topics to the context and watches them; creates missing topic ids. Returns the partitions.

        A topic that is deleted meanwhile or has an invalid node is left out.
        """
        found = []
        for name in sorted(names):
            topic = self._read(name)
            if topic is None:
                continue
            self._context.topics.add(name)
            for partition, assignment in topic:
                self._context.assign(partition, assignment)
                if assignment.is_being_reassigned:
                    self._context.being_reassigned.add(partition)
                found.append(partition)
        return found

    def _read(self, name: str) -> TopicAssignment | None:
        try:
            topic = watch_topic(self._state_machines.fenced.store, name, self._watch_for(name))
            if topic is not None and topic.topic_id is None:
                topic = replace(topic, topic_id=new_topic_id(os.urandom))
                write_topic(self._state_machines.fenced, topic)
        except InvalidZnodeError as error:
            _log.error("topic %s is ignored: %s", name, error)
            return None
        except NoNodeError:
            return None
        if topic is not None and topic.topic_id is not None:
            self._context.topic_ids[name] = topic.topic_id
        return topic

    def topics_changed(self, names: Collection[str]) -> None:
        """The list of topics in the tree has changed: adds new topics and removes deleted ones."""
        for gone in self._context.topics.difference(names):
            self._context.remove_topic(gone)
        self._create(self.read(set(names) - self._context.topics))

    def topic_changed(self, name: str) -> None:
        """The node of a topic has changed: brings new partitions
        online, unless the topic is being deleted.
        """
        if name not in self._context.topics:
            return
        try:
            topic = watch_topic(self._state_machines.fenced.store, name, self._watch_for(name))
        except InvalidZnodeError as error:
            _log.error("the change of topic %s is ignored: %s", name, error)
            return
        known = self._context.assignments.get(name, {})
        added = {} if topic is None else {n: a for n, a in topic.partitions.items() if n not in known}
        if name in self._context.topics_to_delete:
            if added:
                self._restore(name, known)
            return
        partitions = [TopicPartition(name, number) for number in sorted(added)]
        for partition in partitions:
            self._context.assign(partition, added[partition.partition])
        self._create(partitions)

    def _restore(self, name: str, known: dict[int, ReplicaAssignment]) -> None:
        """Writes the old assignment back, because a topic that is being deleted gets no new partitions."""
        _log.warning("no partitions are added to %s: it is being deleted", name)
        write_topic(
            self._state_machines.fenced, TopicAssignment(name, self._context.topic_ids.get(name), known)
        )

    def _create(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            replicas = self._context.replicas_of(partitions)
            self._state_machines.partitions.move(partitions, PartitionState.NEW)
            self._state_machines.replicas.move(replicas, ReplicaState.NEW)
            self._state_machines.partitions.bring_online(partitions, Strategy.OFFLINE)
            self._state_machines.replicas.move(replicas, ReplicaState.ONLINE)
