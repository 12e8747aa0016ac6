"""Remembers the partitions that requests were for, as long as the metadata and the replicas are the same.

Every new state of the cluster and every change of a role forgets all of them. So nothing keeps the log of a
deleted partition open, which would keep its disk space in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from klog.formats.names import PartitionKey
from klog.metadata.cache import ClusterSnapshot
from klog.protocol import fetch_response, produce_response
from klog.protocol.codec import uuid_of
from klog.protocol.primitives import text_of
from klog.replication.partition import Partition
from klog.replication.roles import RoleChange
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS

# A topic as it came in a request (its name or the bytes of its id), and the partition.
RawKey: TypeAlias = tuple[bytes, int]


class Target:
    """A partition of this broker that requests are for, and the answer templates, which are made once.

    `topic_id` is set if requests name the topic by its id.
    """

    __slots__ = ("_fetched", "_produced", "is_internal", "key", "partition", "topic_id")

    def __init__(self, key: PartitionKey, partition: Partition, topic_id: UUID | None) -> None:
        self.key = key
        self.partition = partition
        self.topic_id = topic_id
        self.is_internal = key[0] in INTERNAL_TOPICS
        self._produced: dict[int, produce_response.AnswerTemplate] = {}
        self._fetched: dict[tuple[int, bool], fetch_response.AnswerTemplate] = {}

    def produced(self, version: int) -> produce_response.AnswerTemplate:
        """The answer to a Produce request of that version."""
        template = self._produced.get(version)
        if template is None:
            template = self._produced[version] = produce_response.answer_template(version, *self.key)
        return template

    def fetched(self, version: int, committed: bool) -> fetch_response.AnswerTemplate:
        """The answer to a Fetch request of that version and isolation level."""
        template = self._fetched.get((version, committed))
        if template is None:
            topic, index = self.key
            template = fetch_response.answer_template(
                version, topic, self.topic_id, index, committed=committed
            )
            self._fetched[version, committed] = template
        return template


class _State:
    """One state of the cluster and of this broker's replicas, and the targets that were found in it."""

    __slots__ = ("by_id", "by_name", "cluster", "replicas")

    def __init__(self, cluster: ClusterSnapshot, replicas: Mapping[PartitionKey, Partition]) -> None:
        self.cluster = cluster
        self.replicas = replicas
        self.by_name: dict[RawKey, Target] = {}
        self.by_id: dict[RawKey, Target] = {}


class RememberedTargets:
    """Finds the targets of requests. Safe for threads."""

    def __init__(self, lookup: PartitionLookup) -> None:
        self._lookup = lookup
        self._replicas = lookup.replicas
        self._metadata = lookup.metadata
        self._state: _State | None = None
        lookup.replicas.add_listener(self._forget)

    def _forget(self, _: Sequence[RoleChange]) -> None:
        self._state = None

    def find(self, topic: bytes, index: int, by_id: bool) -> Target | None:
        """The partition, if this broker has it and the cluster knows it.

        `topic` is the name as it came, or the bytes of the topic's id. A partition that has another id, or
        none, is not found by an id.
        """
        cluster, replicas = self._metadata.snapshot, self._replicas.partitions
        state = self._state
        if state is None or state.replicas is not replicas or state.cluster is not cluster:
            state = self._state = _State(cluster, replicas)
        known = state.by_id if by_id else state.by_name
        target = known.get((topic, index))
        if target is None:
            target = self._new_target(state, topic, index, by_id)
            if target is not None:
                known[topic, index] = target
        return target

    def _new_target(self, state: _State, topic: bytes, index: int, by_id: bool) -> Target | None:
        topic_id = uuid_of(topic) if by_id else None
        name = text_of(topic) if topic_id is None else self._lookup.topic_name(topic_id)
        if name is None or index not in state.cluster.topics.get(name, ()):
            return None
        partition = state.replicas.get((name, index))
        if partition is None or (topic_id is not None and partition.topic_id != topic_id):
            return None
        return Target((name, index), partition, topic_id)
