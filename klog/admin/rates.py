"""How much is written to topics and read by groups in a second, from samples of a cluster.

Kafka's protocol tells no rates. Log end offsets and committed offsets grow by what was written and read, and
DescribeLogDirs tells sizes. So these are rates of records and bytes as they are on disk, and what a group has
read but not committed does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from klog.admin.clusters import examine
from klog.admin.groups import Group, describe_groups, list_groups
from klog.admin.health import ClusterState
from klog.client.cluster import Cluster
from klog.client.log_dirs import LogDirs, describe_log_dirs
from klog.client.offsets import try_list_offsets
from klog.formats.names import TopicPartition
from klog.protocol.offset_times import LATEST

WINDOW_S: Final = 30.0
"""How long a sample counts: several commits of a group with Kafka's default of 5 s."""
_PAIR: Final = 2


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


def recent(samples: Sequence[Sample], now_s: float) -> list[Sample]:
    """The samples, oldest first, that are not older than WINDOW_S; at least the last one if there is any."""
    return [each for each in samples if now_s - each.at_s <= WINDOW_S] or list(samples[-1:])


def topic_rates(earlier: Sequence[Sample], after: Sample) -> list[TopicRates]:
    """The topics, those with the highest rates first. Without `earlier` samples only sizes are known."""
    read = _read_by_topic(earlier, after)
    before = earlier[-1] if earlier else None
    found = [
        TopicRates(
            topic.name,
            len(topic.partitions),
            sum(after.sizes.get(TopicPartition(topic.name, part.partition), 0) for part in topic.partitions),
            _rate(before, after, _written(before, after, topic.name)),
            _rate(before, after, _grown(before, after, topic.name)),
            None if _rate(before, after, 0) is None else read.get(topic.name, 0.0),
        )
        for topic in after.state.topics
    ]
    return sorted(
        found,
        key=lambda each: (-(each.bytes_in or 0), -(each.records_in or 0), -each.size_bytes, each.topic),
    )


def group_rates(earlier: Sequence[Sample], after: Sample) -> list[GroupRates]:
    """The groups, those with the most lag first."""
    found = []
    for group in after.groups:
        span = _span(earlier, after, group.group_id)
        records_out = lag_growth = None
        if span is not None:
            first, last = span
            lags = _lag(first.group), _lag(last.group)
            growth = None if None in lags else (lags[1] or 0) - (lags[0] or 0)
            records_out = span.rate(sum(_read(first.group, last.group).values()))
            lag_growth = span.rate(growth)
        found.append(
            GroupRates(group.group_id, group.state, len(group.members), _lag(group), records_out, lag_growth)
        )
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group))


class _Look(NamedTuple):
    """A group at a time."""

    at_s: float
    group: Group


class _Span(NamedTuple):
    """Two looks at a group, between which its rates are taken."""

    first: _Look
    last: _Look

    def rate(self, change: int | None) -> float | None:
        """A change by the second."""
        seconds = self.last.at_s - self.first.at_s
        return None if change is None or seconds <= 0 else change / seconds


def _span(earlier: Sequence[Sample], after: Sample, group_id: str) -> _Span | None:
    """The looks between which a group's rates are taken; None if it was seen only once.

    A group commits now and then, every 5 s by default. Between two looks it has committed nothing, or what it
    read in a longer time. So a rate is taken from one commit to a later one, as they were seen. If no commit
    has followed for twice as long as between the others, the group has slowed down or stopped: the time until
    now counts too.
    """
    looks: list[_Look] = []
    for sample in (*earlier, after):
        known = next((group for group in sample.groups if group.group_id == group_id), None)
        looks = [] if known is None else [*looks, _Look(sample.at_s, known)]
    if len(looks) < _PAIR:
        return None
    commits = [now for was, now in pairwise(looks) if _committed(was.group) != _committed(now.group)]
    if len(commits) < _PAIR:
        return _Span(looks[0], looks[-1])
    longest_s = max(now.at_s - was.at_s for was, now in pairwise(commits))
    is_late = looks[-1].at_s - commits[-1].at_s > 2 * longest_s
    return _Span(commits[0], looks[-1] if is_late else commits[-1])


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


def _read_by_topic(earlier: Sequence[Sample], after: Sample) -> dict[str, float]:
    """What all groups together read of each topic in a second."""
    read: dict[str, float] = defaultdict(float)
    for group in after.groups:
        span = _span(earlier, after, group.group_id)
        if span is None:
            continue
        for partition, count in _read(span.first.group, span.last.group).items():
            read[partition.topic] += span.rate(count) or 0.0
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
