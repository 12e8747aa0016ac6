"""Finds, describes, creates and deletes topics and adds partitions.

Rules: KIP-4, KIP-195 (adding partitions), KIP-464 (the cluster's defaults). Errors of single topics are
returned as values, since they do not stop the work on the others.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from klog.client import admin
from klog.client.admin import Assignment, NewTopic, Resource, ResourceType, TopicResult
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.retry import Retry
from klog.formats.errors import UsageError
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode, error_code

_SET_FOR_TOPIC: Final = 1  # DYNAMIC_TOPIC_CONFIG of KIP-226
_DEFAULT: Final = 5  # DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic; `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        return {
            "partition": self.partition,
            "leader": None if self.leader < 0 else self.leader,
            "leaderEpoch": self.leader_epoch,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "offlineReplicas": list(self.offline),
        }


class TopicSetting(NamedTuple):
    """A config of a topic as it is in force; `source` is the number of its source in KIP-226."""

    name: str
    value: str | None
    source: int

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it, for the topic or in a broker."""
        return self.source == _DEFAULT


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it.

    `configs` are those that were set for this topic, `settings` all configs in the broker's order.
    """

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str | None] = field(default_factory=dict)
    settings: tuple[TopicSetting, ...] = ()

    @property
    def min_isr(self) -> int:
        """The topic's min.insync.replicas; 1, Kafka's default, if its configs are not known."""
        found = (each.value for each in self.settings if each.name == "min.insync.replicas" and each.value)
        return int(next(found, "1"))

    @property
    def replication_factor(self) -> int:
        """How many replicas the first partition has."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    def has_leaders(self, partitions: int) -> bool:
        """Whether so many partitions have a leader."""
        return sum(partition.leader >= 0 for partition in self.partitions) >= partitions

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        return {
            "topic": self.name,
            "topicId": self.topic_id,
            "isInternal": self.is_internal,
            "partitionCount": len(self.partitions),
            "replicationFactor": self.replication_factor,
            "configs": dict(self.configs),
            "partitions": [partition.to_json() for partition in self.partitions],
        }


def find_topics(cluster: Cluster, names: Sequence[str] | None = None) -> list[Topic]:
    """The named topics, or all, sorted by name. Raises UnknownTopicError, RefusedError, ChannelError."""
    found = []
    for answer in admin.describe_topics(cluster, names):
        name, code = answer.name, error_code(answer.error_code)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"topic {name} does not exist", cure="`klog topics list` shows what does")
        if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise RefusedError(f"topic {name}", code)
        found.append(_topic(answer))
    return sorted(found, key=lambda topic: topic.name)


def _topic(answer: Entity) -> Topic:
    partitions = (
        Partition(
            part.partition_index,
            part.leader_id,
            getattr(part, "leader_epoch", -1),
            tuple(part.replica_nodes),
            tuple(part.isr_nodes),
            tuple(getattr(part, "offline_replicas", ())),
        )
        for part in answer.partitions
    )
    return Topic(
        answer.name,
        _id_text(getattr(answer, "topic_id", None)),
        bool(answer.is_internal),
        tuple(sorted(partitions, key=lambda partition: partition.partition)),
    )


def _id_text(topic_id: UUID | None) -> str | None:
    """Kafka's text form of a topic id; None for no id."""
    return None if topic_id is None else urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def add_configs(cluster: Cluster, topics: Sequence[Topic], names: Sequence[str] | None = None) -> list[Topic]:
    """The topics with their configs: all, or only those in `names`."""
    if not topics:
        return []
    resources = [Resource(ResourceType.TOPIC, topic.name) for topic in topics]
    found = {
        resource.name: tuple(TopicSetting(each.name, each.value, each.config_source) for each in entries)
        for resource, entries in admin.describe_configs(cluster, resources, names=names)
    }
    return [_configured(topic, found[topic.name]) for topic in topics]


def _configured(topic: Topic, settings: tuple[TopicSetting, ...]) -> Topic:
    own = {each.name: each.value for each in settings if each.source == _SET_FOR_TOPIC}
    return replace(topic, configs=dict(sorted(own.items())), settings=settings)


def parse_assignment(text: str) -> Assignment:
    """Parse Kafka's `0:1,1:2`: the brokers of partition 0, then of partition 1. Raises UsageError."""
    try:
        brokers = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--replica-assignment {text!r} is not valid", cure="0:1,1:2 puts partition 0 on brokers 0 and 1"
        ) from error
    return dict(enumerate(brokers))


def create(
    cluster: Cluster, topics: Sequence[NewTopic], retry: Retry, *, validate_only: bool
) -> list[TopicResult]:
    """Create topics and wait until all of their partitions have leaders.

    Raises ClientError if that takes longer than `retry` allows.
    """
    outcomes = admin.create_topics(cluster, topics, validate_only=validate_only)
    if not validate_only:
        _wait_for_leaders(cluster, _done(outcomes), 1, retry)
    return outcomes


def add_partitions(
    cluster: Cluster,
    names: Sequence[str],
    partitions: int,
    assignment: Assignment | None,
    retry: Retry,
    *,
    validate_only: bool,
) -> list[TopicResult]:
    """Add partitions until topics have so many. `assignment` lists the brokers of the new ones only, from 0.

    Waits until brokers know the new partitions. Raises ClientError if that takes longer than `retry` allows.
    """
    brokers = None if assignment is None else list(assignment.values())
    outcomes = admin.create_partitions(cluster, names, partitions, brokers, validate_only=validate_only)
    if not validate_only:
        _wait_for_leaders(cluster, _done(outcomes), partitions, retry)
    return outcomes


def _wait_for_leaders(cluster: Cluster, names: Sequence[str], partitions: int, retry: Retry) -> None:
    """Wait until every partition, and at least so many, has a leader.

    The controller answers before the other brokers know the new partitions.
    """
    while names:
        try:
            topics = find_topics(cluster, names)
        except (UnknownTopicError, RefusedError) as error:
            retry.failed(error)
            continue
        missing = [
            topic.name for topic in topics if not topic.has_leaders(max(partitions, len(topic.partitions)))
        ]
        if not missing:
            return
        retry.failed(ClientError(f"{', '.join(missing)}: not all of the partitions have leaders"))


def _done(outcomes: Iterable[TopicResult]) -> list[str]:
    return [outcome.topic for outcome in outcomes if outcome.error is ErrorCode.NONE]
