"""Finds, describes, creates and deletes topics and adds partitions, through the admin client.

Rules: KIP-4, KIP-195 (adding partitions), KIP-464 (the cluster's defaults). Errors of single topics are
returned as values, since they do not stop the work on the others.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.admin.kafka_python import AdminClient
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.retry import Retry
from klog.formats.errors import UsageError
from klog.protocol.error_codes import ErrorCode, error_code

_Answer: TypeAlias = Any
Assignment = Mapping[int, Sequence[int]]
_CLUSTER_DEFAULT: Final = -1


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


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it. `configs` are those that were set for this topic."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str | None] = field(default_factory=dict)

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


class NewTopic(NamedTuple):
    """A topic to create; None stands for the cluster's default."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignment: Assignment | None
    configs: Mapping[str, str]


class Outcome(NamedTuple):
    """The outcome for one topic; `error` is Kafka's name of the error, None for success."""

    topic: str
    error: str | None
    message: str | None


def find_topics(admin: AdminClient, names: Sequence[str] | None = None) -> list[Topic]:
    """The named topics, or all, sorted by name. Raises UnknownTopicError, RefusedError."""
    found = []
    for answer in admin.describe_topics(names):
        name, code = answer["name"], error_code(answer["error_code"])
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"topic {name} does not exist", cure="`klog topics list` shows what does")
        if code is not ErrorCode.NONE:
            raise RefusedError(f"topic {name}", code)
        found.append(_topic(answer))
    return sorted(found, key=lambda topic: topic.name)


def _topic(answer: _Answer) -> Topic:
    partitions = (
        Partition(
            part["partition_index"],
            part["leader_id"],
            part.get("leader_epoch", -1),
            tuple(part["replica_nodes"]),
            tuple(part["isr_nodes"]),
            tuple(part.get("offline_replicas") or ()),
        )
        for part in answer["partitions"]
    )
    return Topic(
        answer["name"],
        _id_text(answer.get("topic_id")),
        bool(answer.get("is_internal")),
        tuple(sorted(partitions, key=lambda partition: partition.partition)),
    )


def _id_text(topic_id: UUID | str | None) -> str | None:
    """Kafka's text form of a topic id; None for no id, which on the wire is zero."""
    raw = UUID(str(topic_id)).bytes if topic_id is not None else bytes(16)
    return urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else None


def add_configs(admin: AdminClient, topics: Sequence[Topic]) -> list[Topic]:
    """The topics with the configs that were set for each of them."""
    if not topics:
        return []
    from kafka.admin import ConfigResource

    found = admin.describe_configs([ConfigResource("TOPIC", topic.name) for topic in topics])["topic"]
    return [
        replace(topic, configs={key: value["value"] for key, value in sorted(found[topic.name].items())})
        for topic in topics
    ]


def select_partitions(topics: Iterable[Topic], *, under_replicated: bool, unavailable: bool) -> list[Topic]:
    """Topics with only the partitions that match any of the conditions, without topics that have none."""
    if not under_replicated and not unavailable:
        return list(topics)
    found = []
    for topic in topics:
        partitions = tuple(
            part
            for part in topic.partitions
            if (under_replicated and len(part.isr) < len(part.replicas)) or (unavailable and part.leader < 0)
        )
        if partitions:
            found.append(replace(topic, partitions=partitions))
    return found


def parse_assignment(text: str) -> Assignment:
    """Parse Kafka's `0:1,1:2`: the brokers of partition 0, then of partition 1. Raises UsageError."""
    try:
        brokers = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--replica-assignment {text!r} is not valid", cure="0:1,1:2 puts partition 0 on brokers 0 and 1"
        ) from error
    return dict(enumerate(brokers))


def create(admin: AdminClient, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[Outcome]:
    """Create topics and wait until their partitions have leaders."""
    wanted = {
        topic.name: {
            "num_partitions": _CLUSTER_DEFAULT if topic.partitions is None else topic.partitions,
            "replication_factor": _CLUSTER_DEFAULT
            if topic.replication_factor is None
            else topic.replication_factor,
            "assignments": topic.assignment or {},
            "configs": topic.configs,
        }
        for topic in topics
    }
    answer = admin.create_topics(wanted, validate_only=validate_only, raise_errors=False)
    outcomes = [_outcome(one) for one in answer["topics"]]
    if not validate_only:
        admin.wait_for_topics([outcome.topic for outcome in outcomes if outcome.error is None])
    return outcomes


def add_partitions(
    admin: AdminClient,
    names: Sequence[str],
    partitions: int,
    assignment: Assignment | None,
    retry: Retry,
    *,
    validate_only: bool,
) -> list[Outcome]:
    """Add partitions until topics have so many. `assignment` lists the brokers of the new ones only, from 0.

    Waits until brokers know the new partitions. Raises ClientError if that takes longer than `retry` allows.
    """
    wanted: dict[str, object] = dict.fromkeys(names, partitions)
    if assignment is not None:
        brokers = [list(replicas) for replicas in assignment.values()]
        wanted = {name: {"count": partitions, "assignments": brokers} for name in names}
    answer = admin.create_partitions(wanted, validate_only=validate_only, raise_errors=False)
    outcomes = [_outcome(one) for one in answer.to_dict()["results"]]
    if not validate_only:
        _wait_for_partitions(admin, [one.topic for one in outcomes if one.error is None], partitions, retry)
    return outcomes


def _wait_for_partitions(admin: AdminClient, names: Sequence[str], partitions: int, retry: Retry) -> None:
    """The controller answers before the other brokers know the new partitions."""
    while names:
        missing = [topic.name for topic in find_topics(admin, names) if not topic.has_leaders(partitions)]
        if not missing:
            return
        retry.failed(
            ClientError(f"{', '.join(missing)}: not all of the {partitions} partitions have leaders")
        )


def delete(admin: AdminClient, names: Sequence[str]) -> list[Outcome]:
    """Delete topics."""
    return [_outcome(one) for one in admin.delete_topics(names, raise_errors=False)["topics"]]


def _outcome(answer: _Answer) -> Outcome:
    code = error_code(answer["error_code"])
    error = None if code is ErrorCode.NONE else code.name
    return Outcome(answer["name"], error, answer.get("error_message"))
