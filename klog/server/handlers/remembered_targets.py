"""Remembers what a handler found out about partitions, as long as the metadata and the replicas are the same.

Every new state of the cluster and every change of a role forgets all of it. So nothing keeps the log of a
deleted partition open, which would keep its disk space in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from klog.metadata.cache import ClusterSnapshot
from klog.replication.partition import Partition
from klog.replication.roles import RoleChange
from klog.server.handlers.partition_lookup import Key, PartitionLookup

K = TypeVar("K")
V = TypeVar("V")


class Targets(Generic[K, V]):
    """What is remembered for one state: `cluster` is the metadata, `replicas` are those of this broker."""

    __slots__ = ("by_key", "cluster", "replicas")

    def __init__(self, cluster: ClusterSnapshot, replicas: Mapping[Key, Partition]) -> None:
        self.cluster = cluster
        self.replicas = replicas
        self.by_key: dict[K, V] = {}


class RememberedTargets(Generic[K, V]):
    """Gives the targets of the present state. Safe for threads."""

    def __init__(self, lookup: PartitionLookup) -> None:
        self._lookup = lookup
        self._replicas = lookup.replicas
        self._targets: Targets[K, V] | None = None
        lookup.replicas.add_listener(self._forget)

    def _forget(self, _: Sequence[RoleChange]) -> None:
        self._targets = None

    def present(self) -> Targets[K, V]:
        """What is remembered now: nothing if the state is new."""
        cluster, replicas = self._lookup.cluster, self._replicas.partitions
        targets = self._targets
        if targets is None or targets.replicas is not replicas or targets.cluster is not cluster:
            targets = self._targets = Targets(cluster, replicas)
        return targets
