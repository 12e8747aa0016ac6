"""Finds the partition that a request names: on this broker, on another one, on a failed disk, or nowhere.

Rules: Kafka's `ReplicaManager.getPartitionOrError` and `KafkaApis.getCurrentLeader`. The error is
NOT_LEADER_OR_FOLLOWER for a partition that has no replica here, so that the client looks it up again,
UNKNOWN_TOPIC_OR_PARTITION for one that the cluster does not know, and KAFKA_STORAGE_ERROR for one whose
directory has failed.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from klog.formats.names import PartitionKey, encode_uuid
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.protocol.error_codes import ErrorCode
from klog.protocol.leader_hints import NO_HINT, LeaderHint, NodeEndpoint
from klog.replication.partition import Partition, PartitionError
from klog.replication.replica_manager import ReplicaManager

_HINTED: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))


class Leader(NamedTuple):
    """The leader of a partition and its address, as far as this broker knows them (KIP-951)."""

    hint: LeaderHint = NO_HINT
    endpoint: NodeEndpoint | None = None


class PartitionLookup:
    """Combines the replica manager and the metadata cache. Holds no lock, and remembers only topic ids."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self.replicas = replicas
        self.metadata = metadata
        self._names: tuple[ClusterSnapshot, dict[UUID, str]] = (metadata.snapshot, {})

    def known(self, key: PartitionKey) -> bool:
        """Whether the metadata cache has the partition."""
        partitions = self.metadata.snapshot.topics.get(key[0])
        return partitions is not None and key[1] in partitions

    def has_topic(self, topic: str) -> bool:
        """Whether the cluster has the topic."""
        return topic in self.metadata.snapshot.topics

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic by its id; None if this broker does not know the id."""
        snapshot = self.metadata.snapshot
        remembered, names = self._names
        if remembered is not snapshot:
            names = {}
            self._names = snapshot, names
        name = names.get(topic_id)
        if name is None:
            # Only ids that exist are remembered, so their number is bounded by the cluster.
            name = snapshot.topic_names.get(encode_uuid(topic_id.bytes))
            if name is not None:
                names[topic_id] = name
        return name

    def missing(self, key: PartitionKey) -> ErrorCode:
        """The error for a partition that has no replica here."""
        return self.replicas.missing(key, self.known)

    def partition(self, key: PartitionKey) -> Partition:
        """The replica on this broker. Raises `PartitionError`."""
        partition = self.replicas.partitions.get(key)
        if partition is None:
            raise PartitionError(self.missing(key))
        return partition

    def leader(self, key: PartitionKey, error: ErrorCode, listener: str) -> Leader:
        """The leader of a partition that this broker refuses with `error`."""
        if error not in _HINTED:
            return Leader()
        snapshot = self.metadata.snapshot
        partition = self.replicas.partitions.get(key)
        if partition is not None:
            hint = LeaderHint(partition.state.leader, partition.state.leader_epoch)
        else:
            state = snapshot.topics.get(key[0], {}).get(key[1])
            hint = NO_HINT if state is None else LeaderHint(state.leader, state.leader_epoch)
        broker = snapshot.brokers.get(hint.leader_id)
        endpoint = None if broker is None else broker.endpoint(listener)
        if broker is None or endpoint is None:
            return Leader(hint)
        return Leader(hint, NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack))
