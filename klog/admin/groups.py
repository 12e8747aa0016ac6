"""Lists and describes consumer groups with their lag, and deletes groups and offsets.

Rules: those of `kafka-consumer-groups`: a group is one whose protocol type is `consumer`, or none if it only
has offsets. Lag is the log end offset less the committed offset. Errors of single groups are returned as
values, since they do not stop the work on the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from klog.admin.requests import group_descriptions
from klog.admin.requests.group_descriptions import DescribedGroup
from klog.admin.topics import find_topics
from klog.client import groups as client
from klog.client.cluster import Cluster
from klog.client.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from klog.client.errors import ClientError, UnknownTopicError
from klog.client.groups import CommittedOffset, ListedGroup
from klog.client.offsets import list_offsets
from klog.formats.constants import NO_LEADER
from klog.formats.errors import FormatError, KlogError
from klog.formats.names import TopicPartition, partitions_by_topic
from klog.protocol.offset_times import LATEST

DEAD: Final = "Dead"
EMPTY: Final = "Empty"
STABLE: Final = "Stable"
STATES: Final = ("PreparingRebalance", "CompletingRebalance", STABLE, DEAD, EMPTY, "Assigning", "Reconciling")
TYPES: Final = ("classic", "consumer")
_CURE: Final = "`klog groups list` shows what there is"


class Member(NamedTuple):
    """A member of a group with the partitions that it reads."""

    consumer_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        return {
            "consumerId": self.consumer_id,
            "groupInstanceId": self.instance_id,
            "host": self.host,
            "clientId": self.client_id,
            "assignment": partitions_by_topic(self.assignment),
        }


class PartitionLag(NamedTuple):
    """How far a group has read one partition; None for what is not known."""

    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        committed, member = self.committed, self.member
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "currentOffset": None if committed is None else committed.offset,
            "leaderEpoch": None
            if committed is None or committed.leader_epoch < 0
            else committed.leader_epoch,
            "metadata": None if committed is None else committed.metadata,
            "logEndOffset": self.log_end_offset,
            "lag": self.lag,
            "consumerId": None if member is None else member.consumer_id,
            "host": None if member is None else member.host,
            "clientId": None if member is None else member.client_id,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it, with its offsets if they were asked for."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator_id: int
    coordinator: str
    members: tuple[Member, ...]
    partitions: tuple[PartitionLag, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The fields by Kafka's names."""
        return {
            "group": self.group_id,
            "state": self.state,
            "protocolType": self.protocol_type,
            "assignmentStrategy": self.assignor,
            "coordinatorId": self.coordinator_id,
            "coordinator": self.coordinator,
            "members": [member.to_json() for member in self.members],
            "offsets": [partition.to_json() for partition in self.partitions],
        }


class GroupFailure(NamedTuple):
    """A group, or one partition of it, for which something failed."""

    group_id: str
    error: KlogError


def list_groups(
    cluster: Cluster, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListedGroup]:
    """The consumer groups in these states and of these types, or all. Raises ClientError, ChannelError."""
    in_states = {state.lower() for state in states}
    of_types = {kind.lower() for kind in types}
    return [
        group
        for group in client.list_groups(cluster)
        if group.protocol_type in ("", PROTOCOL_TYPE)
        and (not in_states or group.state.lower() in in_states)
        and (not of_types or (group.type or TYPES[0]).lower() in of_types)
    ]


def readers_of(
    cluster: Cluster, groups: Sequence[ListedGroup], topics: Collection[str]
) -> tuple[list[ListedGroup], list[GroupFailure]]:
    """The groups whose members read one of the topics, or that have offsets of one; and those that could not
    be described. Raises UnknownTopicError, ClientError, ChannelError.
    """
    find_topics(cluster, sorted(topics))
    found, failures = describe_groups(cluster, [group.group_id for group in groups])
    reading = {
        group.group_id for group in found if any(each.partition.topic in topics for each in group.partitions)
    }
    return [group for group in groups if group.group_id in reading], failures


def describe_groups(
    cluster: Cluster, group_ids: Sequence[str], *, offsets: bool = True
) -> tuple[list[Group], list[GroupFailure]]:
    """The groups sorted by id, and those that could not be described. Raises ClientError, ChannelError."""
    described = group_descriptions.describe_groups(cluster, group_ids)
    failures = [GroupFailure(group, each) for group, each in described.items() if isinstance(each, KlogError)]
    known = {group: each for group, each in described.items() if not isinstance(each, KlogError)}
    for group in [group for group, (each, _) in known.items() if each.state in (DEAD, "")]:
        failures.append(GroupFailure(group, ClientError(f"group {group} does not exist", cure=_CURE)))
        del known[group]
    committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    if offsets:
        for group, found in client.fetch_offsets(cluster, known).items():
            if isinstance(found, KlogError):
                failures.append(GroupFailure(group, found))
                del known[group]
            else:
                committed[group] = found
    groups = [
        _group(each, broker_id, cluster, committed.get(group, {}) if offsets else None)
        for group, (each, broker_id) in sorted(known.items())
    ]
    ends = _log_ends(cluster, {each.partition for group in groups for each in group.partitions})
    return [_with_ends(group, ends) for group in groups], failures


def _group(
    described: DescribedGroup,
    broker_id: int,
    cluster: Cluster,
    committed: Mapping[TopicPartition, CommittedOffset] | None,
) -> Group:
    members = tuple(
        Member(each.member_id, each.instance_id, each.client_id, each.host, _assigned(each.assignment))
        for each in described.members
    )
    return Group(
        described.group_id,
        described.state,
        described.protocol_type,
        described.protocol,
        broker_id,
        str(cluster.address_of(broker_id) or ""),
        members,
        () if committed is None else tuple(_partitions(members, committed)),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none if its bytes are of another protocol."""
    try:
        return tuple(sorted(decode_assignment(data)))
    except FormatError:
        return ()


def _partitions(
    members: Iterable[Member], committed: Mapping[TopicPartition, CommittedOffset]
) -> Iterable[PartitionLag]:
    """The partitions of the members, those with the most first, then the partitions that nobody reads."""
    read: set[TopicPartition] = set()
    for member in sorted(members, key=lambda member: -len(member.assignment)):
        for partition in member.assignment:
            read.add(partition)
            yield PartitionLag(partition, committed.get(partition), None, member)
    for partition in sorted(committed.keys() - read):
        yield PartitionLag(partition, committed[partition], None, None)


def _with_ends(group: Group, ends: Mapping[TopicPartition, int]) -> Group:
    return replace(
        group,
        partitions=tuple(each._replace(log_end_offset=ends.get(each.partition)) for each in group.partitions),
    )


def _log_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The log end offsets of the partitions that exist and have a leader."""
    return list_offsets(cluster, dict.fromkeys(led_partitions(cluster, partitions), LATEST))


def led_partitions(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions that exist and have a leader, sorted."""
    wanted = sorted(set(partitions))
    cluster.refresh_existing({partition.topic for partition in wanted})
    return [partition for partition in wanted if cluster.leader(partition) != NO_LEADER]


def parse_partitions(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """The partitions of `orders` (all) or `orders:0,2`, as kafka-consumer-groups has them.

    Raises ClientError for a topic or partition that does not exist.
    """
    found: list[TopicPartition] = []
    for text in texts:
        topic, colon, numbers = text.rpartition(":")
        if not colon or not numbers.replace(",", "").isdecimal():
            topic, numbers = text, ""
        cluster.refresh([topic])
        known = cluster.partitions(topic)
        wanted = [int(number) for number in numbers.split(",") if number] or sorted(known)
        for number in wanted:
            if number not in known:
                raise UnknownTopicError(f"topic {topic} has no partition {number}")
        found += [TopicPartition(topic, number) for number in wanted]
    return list(dict.fromkeys(found))
