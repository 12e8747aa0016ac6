"""Creates one topic: checks the request in Kafka's order, and writes the topic.

Rules: Kafka's ZkAdminManager (createTopics) and AdminZkClient (validateTopicCreate). CreateTopics and the
automatic creation by Metadata both come here. Any broker may write a new topic; the controller sees it in the
tree and elects its leaders.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.broker_topics import check_topic_overrides
from klog.metadata.assignment import assign_replicas
from klog.metadata.cache import ClusterSnapshot, MetadataCache
from klog.metadata.store import MetadataStore
from klog.metadata.topics import create_topic, new_topic_id, validate_new_topic
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.refusals import RefusedError
from klog.server.handlers.topics.partition_room import PartitionRoom

UNSET: Final = -1
# A ZooKeeper node has at most 1 MiB by default, which is less than so many partitions of one topic need.
MOST_NEW_PARTITIONS: Final = 100_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that a request or this broker asks for. The broker chooses counts of -1. `replicas` has those
    of each partition if they were chosen by hand. A config value of None is refused.
    """

    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that may be created: where its replicas go, and its overrides."""

    name: str
    replicas: Mapping[int, Sequence[int]]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicCreator:
    """Checks and writes new topics. `config` is the broker's at the moment of asking; without `room` any
    number of partitions is taken."""

    store: MetadataStore
    cache: MetadataCache
    config: Callable[[], BrokerConfig]
    room: PartitionRoom | None = None
    random_below: Callable[[int], int] = secrets.randbelow
    random_bytes: Callable[[int], bytes] = os.urandom

    def plan(self, wanted: NewTopic) -> PlannedTopic:
        """Decide everything before anything is written. Raises `RefusedError`, `MetadataError`,
        `UsageError`."""
        snapshot = self.cache.snapshot
        if wanted.name in snapshot.topics:
            raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
        nulls = [name for name, value in wanted.configs.items() if value is None]
        if nulls:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}"
            )
        replicas = self._assign(wanted, snapshot)
        configs = {name: value for name, value in wanted.configs.items() if value is not None}
        validate_new_topic(self.store, wanted.name, replicas, _named(replicas))
        check_topic_overrides(self.config(), configs)
        if self.room is not None:
            self.room.require(replicas)
        return PlannedTopic(wanted.name, replicas, configs)

    def create(self, planned: PlannedTopic) -> str:
        """Writes the topic; its id. Raises `MetadataError`."""
        topic_id = new_topic_id(self.random_bytes)
        create_topic(
            self.store, planned.name, topic_id, planned.replicas, planned.configs, _named(planned.replicas)
        )
        if self.room is not None:
            self.room.promise(planned.name, planned.replicas)
        return topic_id

    def _assign(self, wanted: NewTopic, snapshot: ClusterSnapshot) -> Mapping[int, Sequence[int]]:
        if wanted.replicas:
            if wanted.partitions != UNSET or wanted.replication_factor != UNSET:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    "A topic is given either counts of partitions and replicas or an assignment, not both.",
                )
            _require_known_brokers(wanted.replicas, snapshot)
            return wanted.replicas
        config = self.config()
        partitions, factor = wanted.partitions, wanted.replication_factor
        return assign_replicas(
            racks_of(snapshot),
            config.number("num.partitions") if partitions == UNSET else partitions,
            config.number("default.replication.factor") if factor == UNSET else factor,
            self.random_below,
        )


def limit_new_partitions(counts: Iterable[int]) -> None:
    """Refuse a request for more partitions than a cluster could bear before planning them takes all memory.

    Kafka on ZooKeeper has no limit and dies of it; on KRaft it refuses alike, from 10,000 on. Raises
    `RefusedError`.
    """
    wanted = sum(max(count, 0) for count in counts)
    if wanted > MOST_NEW_PARTITIONS:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"{wanted} new partitions in one request, at most {MOST_NEW_PARTITIONS}.",
        )


def _require_known_brokers(replicas: Mapping[int, Sequence[int]], snapshot: ClusterSnapshot) -> None:
    """Refuse an assignment to brokers that do not exist, as Kafka on KRaft does. Raises `RefusedError`.

    A broker exists if it is alive or has replicas. Kafka on ZooKeeper takes any id and makes partitions that
    never get a leader.
    """
    unknown = _named(replicas) - snapshot.brokers.keys()
    if unknown:
        unknown = unknown.difference(
            *(state.replicas for topic in snapshot.topics.values() for state in topic.values())
        )
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, sorted(unknown)))}.",
        )


def _named(replicas: Mapping[int, Sequence[int]]) -> frozenset[int]:
    return frozenset(broker_id for each in replicas.values() for broker_id in each)


def racks_of(snapshot: ClusterSnapshot) -> dict[int, str | None]:
    """The rack of every live broker. Raises `RefusedError` when some have one and some have none, which Kafka
    answers with a server's error."""
    racks = {broker_id: broker.rack for broker_id, broker in snapshot.brokers.items()}
    if None in racks.values() and any(rack is not None for rack in racks.values()):
        raise RefusedError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information for replica rack aware assignment.",
        )
    return racks
