"""Caches what a broker knows of the cluster from UpdateMetadata: topics, leaders and live brokers.

Every update makes a new snapshot. Readers take the snapshot and hold no lock. Rules: Kafka's ZkMetadataCache.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from klog.formats.names import TopicPartition
from klog.metadata.control_requests import can_exist, live_broker, partition_states, topic_ids
from klog.metadata.values import BrokerRegistration
from klog.protocol.interbroker.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

_log = logging.getLogger(__name__)

Partitions = Mapping[int, UpdateMetadataPartitionState]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster at one moment. It is never changed."""

    topics: Mapping[str, Partitions] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controller_id: int | None = None

    def partition(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        return self.topics.get(partition.topic, {}).get(partition.partition)


class MetadataCache:
    """Holds the present `snapshot` and replaces it. Safe for threads."""

    def __init__(self) -> None:
        self.snapshot = ClusterSnapshot()
        self._writing = threading.Condition()
        self._updated = False

    def set_initial_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Sets the live brokers until the controller sends them.

        Otherwise a client that connects in the first moments would give up on a cluster without brokers.
        """
        with self._writing:
            if not self._updated:
                self.snapshot = replace(self.snapshot, brokers=dict(brokers))

    def wait_for(self, is_complete: Callable[[ClusterSnapshot], bool], timeout_s: float) -> bool:
        """Waits until the controller has sent metadata that are complete, which `is_complete` says of each
        update.

        Returns False after the timeout.
        """
        with self._writing:
            return self._writing.wait_for(lambda: self._updated and is_complete(self.snapshot), timeout_s)

    def update(self, request: UpdateMetadataRequest) -> tuple[TopicPartition, ...]:
        """Applies an UpdateMetadata request, and returns the partitions that are being deleted.

        The caller has refused requests of older controllers.
        """
        with self._writing:
            old = self.snapshot
            changed, deleted = _group(request)
            topics, ids = dict(old.topics), {**old.topic_ids, **topic_ids(request.topic_states)}
            for topic, partitions in changed.items():
                merged = {**topics.get(topic, {}), **partitions}
                for partition in deleted.get(topic, ()):
                    merged.pop(partition.partition, None)
                if merged:
                    topics[topic] = merged
                else:
                    topics.pop(topic, None)
                    ids.pop(topic, None)
            self.snapshot = ClusterSnapshot(
                topics,
                ids,
                {topic_id: topic for topic, topic_id in ids.items()},
                {broker.id: live_broker(broker) for broker in request.live_brokers},
                request.controller_id if request.controller_id >= 0 else None,
            )
            self._updated = True
            self._writing.notify_all()
        return tuple(partition for group in deleted.values() for partition in group)

    def forget(self, topics: Mapping[str, Partitions]) -> tuple[TopicPartition, ...]:
        """Removes topics that are as they were in an earlier snapshot. Returns the partitions that they had.

        An update that names a topic makes another mapping of its partitions.
        """
        with self._writing:
            old = self.snapshot
            gone = {
                name: partitions for name, partitions in topics.items() if old.topics.get(name) is partitions
            }
            if not gone:
                return ()
            ids = {name: topic_id for name, topic_id in old.topic_ids.items() if name not in gone}
            self.snapshot = replace(
                old,
                topics={name: each for name, each in old.topics.items() if name not in gone},
                topic_ids=ids,
                topic_names={topic_id: name for name, topic_id in ids.items()},
            )
        return tuple(TopicPartition(name, number) for name, each in gone.items() for number in each)


def _group(
    request: UpdateMetadataRequest,
) -> tuple[dict[str, dict[int, UpdateMetadataPartitionState]], dict[str, list[TopicPartition]]]:
    """The partitions to set and those to remove, by topic. Every topic of the request is in the first."""
    changed: dict[str, dict[int, UpdateMetadataPartitionState]] = {}
    deleted: dict[str, list[TopicPartition]] = {}
    for partition, state in partition_states(request.topic_states):
        if not can_exist(partition):
            _log.error(
                "controller %d names a partition that cannot exist: %.300r", request.controller_id, partition
            )
            continue
        group = changed.setdefault(partition.topic, {})
        if state.leader == LEADER_DURING_DELETE:
            deleted.setdefault(partition.topic, []).append(partition)
        else:
            group[partition.partition] = state
    return changed, deleted
