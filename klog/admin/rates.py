"""How much is written to topics and read by groups in a second, from two samples of a cluster.

Kafka's protocol tells no rates. Log end offsets and committed offsets grow by what was written and read, and
DescribeLogDirs tells sizes. So these are rates of records and bytes as they are on disk, and what a group has
read but not committed does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from klog.admin.clusters import examine
from klog.admin.groups import Group, describe_groups, list_groups
from klog.admin.health import ClusterState
from klog.admin.requests.log_dirs import LogDirs, describe_log_dirs
from klog.client.cluster import Cluster
from klog.client.offsets import try_list_offsets
from klog.formats.names import TopicPartition
from klog.protocol.offset_times import LATEST


@dataclass(frozen=True, slots=True)
class Sample:
    """What a cluster was at a time.

    `ends` are the log end offsets that are known, `sizes` the bytes of the largest replica of each partition.
    """

    at_s: float
    state: ClusterState
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRates:
    """The rates of one topic in a second; None for what is not known from these samples."""

    topic: str
    partitions: int
    size_bytes: int
    records_in: float | None
    bytes_in: float | None
    records_out: float | None

    def to_json(self) -> dict[str, object]:
        """The fields as `klog top` prints them."""
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "recordsInPerSec": _rounded(self.records_in),
            "bytesInPerSec": _rounded(self.bytes_in),
            "recordsOutPerSec": _rounded(self.records_out),
            "size": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class GroupRates:
    """The lag of one group, how fast it reads, and how fast the lag grows; None for what is not known."""

    group: str
    state: str
    members: int
    lag: int | None
    records_out: float | None
    lag_growth: float | None

    def to_json(self) -> dict[str, object]:
        """The fields as `klog top` prints them."""
        return {
            "group": self.group,
            "state": self.state,
            "members": self.members,
            "recordsOutPerSec": _rounded(self.records_out),
            "lag": self.lag,
            "lagGrowthPerSec": _rounded(self.lag_growth),
        }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def take_sample(cluster: Cluster, now_s: float) -> Sample:
    """Ask a cluster. Raises ClientError, ChannelError."""
    state = examine(cluster)
    partitions = [
        TopicPartition(topic.name, part.partition)
        for topic in state.topics
        for part in topic.partitions
        if part.leader >= 0
    ]
    cluster.refresh_existing({partition.topic for partition in partitions})
    ends = try_list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    names = [each.group_id for each in list_groups(cluster)]
    groups, _ = describe_groups(cluster, names) if names else ([], [])
    return Sample(
        now_s,
        state,
        {partition: end for partition, end in ends.items() if isinstance(end, int)},
        _sizes(describe_log_dirs(cluster)),
        tuple(groups),
    )


def _sizes(found: LogDirs) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for directory in found.dirs:
        for replica in directory.replicas:
            if not replica.is_future:
                known = sizes.get(replica.partition, 0)
                sizes[replica.partition] = max(known, replica.size_bytes)
    return sizes


def topic_rates(before: Sample | None, after: Sample) -> list[TopicRates]:
    """The topics, those with the highest rates first. Without `before` only sizes are known."""
    read = _read_by_topic(before, after)
    found = [
        TopicRates(
            topic.name,
            len(topic.partitions),
            sum(after.sizes.get(TopicPartition(topic.name, part.partition), 0) for part in topic.partitions),
            _rate(before, after, _written(before, after, topic.name)),
            _rate(before, after, _grown(before, after, topic.name)),
            _rate(before, after, read.get(topic.name, 0) if before is not None else None),
        )
        for topic in after.state.topics
    ]
    return sorted(
        found,
        key=lambda each: (-(each.bytes_in or 0), -(each.records_in or 0), -each.size_bytes, each.topic),
    )


def group_rates(before: Sample | None, after: Sample) -> list[GroupRates]:
    """The groups, those with the most lag first."""
    earlier = {} if before is None else {group.group_id: group for group in before.groups}
    found = []
    for group in after.groups:
        last, lag = earlier.get(group.group_id), _lag(group)
        known = last is not None and lag is not None and _lag(last) is not None
        growth = (lag or 0) - (_lag(last) or 0) if last is not None and known else None
        found.append(
            GroupRates(
                group.group_id,
                group.state,
                len(group.members),
                lag,
                _rate(before, after, None if last is None else sum(_read(last, group).values())),
                _rate(before, after, growth),
            )
        )
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group))


def _rate(before: Sample | None, after: Sample, change: int | None) -> float | None:
    if before is None or change is None or after.at_s <= before.at_s:
        return None
    return change / (after.at_s - before.at_s)


def _written(before: Sample | None, after: Sample, topic: str) -> int | None:
    """Records that were appended to the partitions that are known in both samples; a truncation is none."""
    if before is None:
        return None
    grown = (
        end - before.ends[partition]
        for partition, end in after.ends.items()
        if partition.topic == topic and partition in before.ends
    )
    return sum(max(0, each) for each in grown)


def _grown(before: Sample | None, after: Sample, topic: str) -> int | None:
    """Bytes by which partitions have grown; None if one has shrunk, for then segments were deleted."""
    if before is None:
        return None
    grown = [
        size - before.sizes[partition]
        for partition, size in after.sizes.items()
        if partition.topic == topic and partition in before.sizes
    ]
    return None if any(each < 0 for each in grown) else sum(grown)


def _read_by_topic(before: Sample | None, after: Sample) -> dict[str, int]:
    read: dict[str, int] = defaultdict(int)
    earlier = {} if before is None else {group.group_id: group for group in before.groups}
    for group in after.groups:
        if group.group_id in earlier:
            for partition, count in _read(earlier[group.group_id], group).items():
                read[partition.topic] += count
    return read


def _read(before: Group, after: Group) -> dict[TopicPartition, int]:
    """How far a group has gone on in each partition; a reset to an earlier offset is none."""
    committed = _committed(before)
    return {
        partition: max(0, offset - committed[partition])
        for partition, offset in _committed(after).items()
        if partition in committed
    }


def _committed(group: Group) -> dict[TopicPartition, int]:
    return {each.partition: each.committed.offset for each in group.partitions if each.committed is not None}


def _lag(group: Group) -> int | None:
    return _sum(each.lag for each in group.partitions)


def _sum(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None
