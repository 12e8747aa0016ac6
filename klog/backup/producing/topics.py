"""The topics that a restore fills in a cluster: what must hold of those that exist, and how others are made.

Nothing is created or written before all topics were looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klog.backup.producing.accepting import OF_BROKERS, PROTOCOL, Accepting
from klog.backup.producing.groups import is_of_brokers
from klog.backup.restoring.cluster import KEEPS_ALL, topic_configs, unknown_configs
from klog.client import admin
from klog.client.admin import NewTopic, Resource, ResourceType
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.client.offsets import list_offsets
from klog.cluster_metadata.model import Cluster as ClusterMetadata
from klog.formats.constants import NO_LEADER
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.offset_times import LATEST

# These name brokers and partitions of the old cluster, or have no meaning since Kafka 3.0.
_LEFT_OUT: Final = frozenset(
    {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "message.format.version",
    }
)
Targets = Mapping[TopicPartition, TopicPartition]
"""The partitions that come back, and what each is called in the cluster."""


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic to fill. `configs` are set if it is created. `new_ends` are the ends of its partitions if it
    exists; before a restore they are 0. `accepting` says what its brokers take.
    """

    name: str
    partitions: int
    configs: Mapping[str, str]
    new_ends: Mapping[int, int] | None
    accepting: Accepting
    losses: tuple[str, ...]

    @property
    def exists(self) -> bool:
        """Whether the topic need not be created."""
        return self.new_ends is not None


def target_topics(
    cluster: Cluster,
    targets: Targets,
    known: ClusterMetadata | None,
    replication_factor: int,
    *,
    goes_on: bool,
) -> list[TargetTopic]:
    """The topics that a restore fills; `known` is the backup's metadata. If the restore `goes_on`, topics may
    have records. The cluster is asked whether it would create those that do not exist.

    Raises `UsageError` if a topic cannot be filled, `RefusedError`, `ClientError`, `ChannelError`.
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for each, target in targets.items():
        if not is_of_brokers(each.topic):
            by_topic.setdefault(target.topic, []).append(each)
    existing = _existing(cluster, by_topic)
    of_brokers, protocol = _broker_values(cluster)
    found = []
    for name, partitions in sorted(by_topic.items()):
        original = partitions[0].topic
        count = _partition_count(known, original, partitions)
        ends = existing.get(name)
        if ends is None:
            configs, losses = _new_configs(known, name, original)
            new = NewTopic(name, count, replication_factor, {}, configs)
            configs, refused = _accepted_configs(cluster, new)
            losses = (*losses, *refused)
            effective = {**of_brokers, **configs}
        else:
            _require_fillable(name, count, ends, goes_on=goes_on)
            configs, losses = {}, ()
            effective = _topic_values(cluster, name)
        accepting = Accepting(name, effective, protocol, exists=ends is not None)
        if accepting.sets_time:
            losses = (*losses, f"the times of records of topic {name}: its brokers set that of arrival")
        found.append(TargetTopic(name, count, configs, ends, accepting, losses))
    return found


def create_topics(cluster: Cluster, topics: Sequence[TargetTopic], replication_factor: int) -> None:
    """Create those that do not exist, and wait until all have leaders.

    Raises `RefusedError`, `ClientError`, `ChannelError`.
    """
    for topic in topics:
        if not topic.exists:
            new = NewTopic(topic.name, topic.partitions, replication_factor, {}, topic.configs)
            refusal = _creation_failure(cluster, new, validate_only=False)
            if refusal is not None:
                raise refusal
    names = [topic.name for topic in topics]
    retry = cluster.new_retry()
    while True:
        try:
            cluster.refresh(names)
            leaders = [leader.leader_id for name in names for leader in cluster.partitions(name).values()]
            if NO_LEADER not in leaders and len(leaders) >= sum(topic.partitions for topic in topics):
                return
            failure = ClientError("not all partitions of the created topics have leaders")
        except (UnknownTopicError, RefusedError) as error:
            failure = error
        retry.failed(failure)


def _creation_failure(cluster: Cluster, topic: NewTopic, *, validate_only: bool) -> RefusedError | None:
    """Create a topic, or only ask whether that is possible: why it is not, None if it is."""
    (outcome,) = admin.create_topics(cluster, [topic], validate_only=validate_only)
    if outcome.error is ErrorCode.NONE:
        return None
    what = f"creating topic {topic.name}"
    return RefusedError(what, outcome.error, message=outcome.message, right="Create")


def _accepted_configs(cluster: Cluster, topic: NewTopic) -> tuple[dict[str, str], list[str]]:
    """The configs of a topic that the cluster takes, and in words the others. Raises `RefusedError` if it
    does not create the topic for another reason.
    """
    configs = dict(topic.configs)
    failure = _creation_failure(cluster, topic, validate_only=True)
    refused = []
    if failure is not None and failure.code is ErrorCode.INVALID_CONFIG:
        for name, value in topic.configs.items():
            reason = _creation_failure(cluster, replace(topic, configs={name: value}), validate_only=True)
            if reason is not None and reason.code is ErrorCode.INVALID_CONFIG:
                del configs[name]
                refused.append(f"config {name}={value} of topic {topic.name}: the cluster refuses it")
        failure = _creation_failure(cluster, replace(topic, configs=configs), validate_only=True)
    if failure is not None:
        raise failure
    return configs, refused


def _existing(cluster: Cluster, names: Iterable[str]) -> dict[str, dict[int, int]]:
    """The ends of the partitions of topics that exist."""
    there = []
    for answer in admin.describe_topics(cluster, sorted(names)):
        code = error_code(answer.error_code)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise RefusedError(f"topic {answer.name}", code, right="Create and Write")
        there.append(answer.name)
    cluster.refresh(there)
    wanted = [TopicPartition(name, number) for name in there for number in cluster.partitions(name)]
    found: dict[str, dict[int, int]] = {name: {} for name in there}
    for (name, number), end in list_offsets(cluster, dict.fromkeys(wanted, LATEST)).items():
        found[name][number] = end
    return found


def _broker_values(cluster: Cluster) -> tuple[dict[str, str], str]:
    """What topics get of the brokers' configs, by the names of topics' configs, and the brokers' protocol."""
    broker = Resource(ResourceType.BROKER, str(broker_ids(cluster)[0]))
    values = _values(cluster, broker, [*OF_BROKERS.values(), PROTOCOL])
    found = {name: values[theirs] for name, theirs in OF_BROKERS.items() if theirs in values}
    return found, values.get(PROTOCOL, "")


def _topic_values(cluster: Cluster, name: str) -> dict[str, str]:
    return _values(cluster, Resource(ResourceType.TOPIC, name), list(OF_BROKERS))


def _values(cluster: Cluster, resource: Resource, names: Sequence[str]) -> dict[str, str]:
    """Configs of a resource. None if this user may not know them: brokers refuse what they do not take."""
    ((_, entries),) = admin.try_describe_configs(cluster, [resource], names=names)
    if isinstance(entries, RefusedError):
        if entries.is_of_rights:
            return {}
        raise entries
    return {each.name: each.value for each in entries if each.value is not None}


def _partition_count(
    known: ClusterMetadata | None, original: str, partitions: Iterable[TopicPartition]
) -> int:
    topic = None if known is None else known.topics.get(original)
    numbers: list[int] = [each.partition for each in partitions]
    return 1 + max([*numbers, *({} if topic is None else topic.partitions)])


def _new_configs(
    known: ClusterMetadata | None, name: str, original: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    configs = topic_configs(known, original)
    if configs is None:
        return dict(KEEPS_ALL), (unknown_configs(name),)
    return {key: value for key, value in configs.items() if key not in _LEFT_OUT}, ()


def _require_fillable(name: str, count: int, ends: Mapping[int, int], *, goes_on: bool) -> None:
    if len(ends) != count:
        raise UsageError(
            f"topic {name} exists and has {len(ends)} partitions, that of the backup has {count}",
            cure="delete it, or restore under another name with --rename",
        )
    filled = [number for number, end in sorted(ends.items()) if end]
    if filled and not goes_on:
        raise UsageError(
            f"topic {name} exists and has had records: {name}-{filled[0]} ends at offset {ends[filled[0]]}",
            cure="a restore never writes into such a topic: delete it, or use --rename OLD=NEW",
        )
