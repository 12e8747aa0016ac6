"""Selects topics by name and pattern, and partitions by their state, as `kafka-topics` does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from klog.admin.topic_patterns import include_list, matching
from klog.admin.topics import Partition, Topic, find_topics
from klog.client.cluster import Cluster
from klog.client.errors import UnknownTopicError
from klog.formats.names import is_legal_topic

_CURE = "`klog topics list` shows what does"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by exact names, by patterns of `--topic`, or by id; all topics if nothing is named."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    topic_id: str | None = None
    exclude_internal: bool = False
    may_miss: bool = False
    """Whether names and patterns without a topic are accepted."""


def select_topics(cluster: Cluster, wanted: TopicSelection) -> list[Topic]:
    """The topics, sorted by name.

    Raises UnknownTopicError if a name or a pattern has no topic, UsageError for a pattern that is no regular
    expression.
    """
    by_name = wanted.names and not (wanted.patterns or wanted.topic_id or wanted.may_miss)
    if by_name and (illegal := next((each for each in wanted.names if not is_legal_topic(each)), None)):
        raise UnknownTopicError(f"no topic is called {illegal}", cure=f"--topic '{illegal}' takes a pattern")
    topics = find_topics(cluster, wanted.names if by_name else None)
    if wanted.exclude_internal:
        topics = [topic for topic in topics if not topic.is_internal]
    if wanted.topic_id is not None:
        return _with_id(topics, wanted.topic_id, may_miss=wanted.may_miss)
    if not wanted.names and not wanted.patterns:
        return topics
    chosen = _chosen(wanted, [topic.name for topic in topics])
    return [topic for topic in topics if topic.name in chosen]


def _with_id(topics: Sequence[Topic], topic_id: str, *, may_miss: bool) -> list[Topic]:
    found = [topic for topic in topics if topic.topic_id == topic_id]
    if not found and not may_miss:
        raise UnknownTopicError(f"there is no topic with the id {topic_id}", cure=_CURE)
    return found


def _chosen(wanted: TopicSelection, known: Sequence[str]) -> set[str]:
    chosen: set[str] = set()
    for name, found in (
        *((name, [name] if name in known else []) for name in wanted.names),
        *((text, matching(include_list(text), known)) for text in wanted.patterns),
    ):
        if not found and not wanted.may_miss:
            raise UnknownTopicError(f"topic {name} does not exist", cure=_CURE)
        chosen.update(found)
    return chosen


@dataclass(frozen=True, slots=True)
class PartitionConditions:
    """Which partitions to show: those that meet one of the conditions, or all if there is none."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    @property
    def any(self) -> bool:
        """Whether there is a condition."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def met_by(self, topic: Topic, partition: Partition, live_brokers: Collection[int]) -> bool:
        """Whether the partition meets one of the conditions."""
        in_sync, min_isr = len(partition.isr), topic.min_isr
        has_leader = partition.leader >= 0
        return (
            (self.under_replicated and in_sync < len(partition.replicas))
            or (self.unavailable and (not has_leader or partition.leader not in live_brokers))
            or (self.under_min_isr and (not has_leader or in_sync < min_isr))
            or (self.at_min_isr and in_sync == min_isr)
        )


def select_partitions(
    topics: Iterable[Topic], conditions: PartitionConditions, live_brokers: Collection[int]
) -> list[Topic]:
    """The topics with only the partitions that meet the conditions, without topics that have none."""
    if not conditions.any:
        return list(topics)
    found = []
    for topic in topics:
        partitions = tuple(part for part in topic.partitions if conditions.met_by(topic, part, live_brokers))
        if partitions:
            found.append(replace(topic, partitions=partitions))
    return found
