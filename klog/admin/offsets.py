"""Selects partitions as `kafka-get-offsets` does, and finds their offsets: by time, and those of a group.

Rules: KIP-851 and the options of the tool. A partition whose offset cannot be had does not stop the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.admin.topic_patterns import include_list
from klog.client.cluster import Cluster
from klog.client.errors import ClientError
from klog.client.groups import CommittedOffset, fetch_offsets
from klog.client.offsets import try_list_offsets
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError, UsageError
from klog.formats.names import TopicPartition
from klog.protocol.offset_times import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP

NAMED_TIMES: Final[Mapping[str, int]] = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
"""The names that `kafka-get-offsets --time` has for times below zero."""

_RANGE: Final = re.compile(r"(?P<first>\d*)-(?P<end>\d*)|(?P<only>\d+)")
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")

Filter = Callable[[TopicPartition], bool]
"""Whether a partition is wanted."""


def parse_partition_rules(text: str) -> Filter:
    """Kafka's `orders:0-3,prices.*:2,:5-`: patterns of topics, each with a range of partitions.

    Without a range all partitions are meant; the end of a range is not. Raises UsageError.
    """
    rules = [_rule(part) for part in text.split(",")]
    return lambda partition: any(rule(partition) for rule in rules)


def _rule(text: str) -> Filter:
    topic, _, partitions = text.partition(":")
    pattern = include_list(topic) if topic else None
    wanted = _numbers(partitions) if partitions else None
    return lambda partition: (
        (pattern is None or pattern.fullmatch(partition.topic) is not None)
        and (wanted is None or wanted(partition.partition))
    )


def _numbers(text: str) -> Callable[[int], bool]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no range of partitions", cure="2, 0-3 (without 3), -3 or 3-")
    if found["only"] is not None:
        only = int(found["only"])
        return lambda number: number == only
    first, end = int(found["first"] or 0), int(found["end"]) if found["end"] else None
    return lambda number: number >= first and (end is None or number < end)


def parse_filter(topic: str | None, partitions: str | None) -> Filter:
    """The partitions of `--topic REGEX` and `--partitions 0,2`; None for all. Raises UsageError."""
    pattern = None if topic is None else include_list(topic)
    try:
        numbers = None if not partitions else {int(number) for number in partitions.split(",") if number}
    except ValueError as error:
        raise UsageError(f"--partitions {partitions!r} are no numbers", cure="--partitions 0,2,5") from error
    return lambda partition: (
        (pattern is None or pattern.fullmatch(partition.topic) is not None)
        and (numbers is None or partition.partition in numbers)
    )


def select_partitions(
    cluster: Cluster, wanted: Filter, *, exclude_internal: bool = False
) -> list[TopicPartition]:
    """The partitions that are wanted, sorted. Raises ClientError if there are none, ChannelError."""
    found = [
        TopicPartition(topic.name, int(part.partition_index))
        for topic in cluster.metadata(None).topics
        if not (exclude_internal and (topic.is_internal or topic.name in _INTERNAL))
        for part in topic.partitions
    ]
    selected = sorted(filter(wanted, found))
    if not selected:
        raise ClientError(
            "Could not match any topic-partitions with the specified filters",
            cure="`klog topics list` shows what there is",
        )
    cluster.refresh({partition.topic for partition in selected})
    return selected


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition begins and ends, and what a group has committed; None for what is not known."""

    partition: TopicPartition
    leader: int | None
    earliest: int | None
    latest: int | None
    committed: int | None = None
    error: KlogError | None = None

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        both = self.earliest is not None and self.latest is not None
        known = self.committed is not None and self.latest is not None
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "leader": self.leader,
            "logStartOffset": self.earliest,
            "logEndOffset": self.latest,
            "offsets": self.latest - self.earliest if both else None,  # type: ignore[operator]
            "currentOffset": self.committed,
            "lag": self.latest - self.committed if known else None,  # type: ignore[operator]
            "error": None if self.error is None else str(self.error),
        }


def ranges(
    cluster: Cluster, partitions: Sequence[TopicPartition], group: str | None = None
) -> list[PartitionOffsets]:
    """The first offset and the end of each partition, and what the group has committed.

    The cluster must know the leaders. Raises ClientError, ChannelError.
    """
    first = try_list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    end = try_list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    committed = {} if group is None else _committed(cluster, group)
    found = []
    for partition in partitions:
        offset, leader = committed.get(partition), cluster.leader(partition)
        errors = [each for each in (first[partition], end[partition]) if isinstance(each, KlogError)]
        found.append(
            PartitionOffsets(
                partition,
                None if leader == NO_LEADER else leader,
                _offset(first[partition]),
                _offset(end[partition]),
                None if offset is None else offset.offset,
                errors[0] if errors else None,
            )
        )
    return found


def _offset(found: int | KlogError) -> int | None:
    return found if isinstance(found, int) else None


def _committed(cluster: Cluster, group: str) -> Mapping[TopicPartition, CommittedOffset]:
    found = fetch_offsets(cluster, [group])[group]
    if isinstance(found, KlogError):
        raise found
    return found
