"""Shares the partitions of topics among the members of a group, as Kafka's assignors of the same names do.

Rules: Kafka's RangeAssignor, RoundRobinAssignor and CooperativeStickyAssignor (KIP-429). The leader's
assignor decides for all members, so members of different clients need one assignor in common. Members are
taken in the order of their instance ids, then of their member ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.client.consumer_protocol import Subscription
from klog.formats.names import TopicPartition

PartitionCounts = Mapping[str, int]
Assigned = dict[str, list[TopicPartition]]


class Subscriber(NamedTuple):
    """A member with what it wants to read."""

    member_id: str
    instance_id: str | None
    subscription: Subscription


class Assignor(NamedTuple):
    """An assignor by the name that all members must know.

    With a `cooperative` one, members keep their partitions during a rebalance. The owner of a partition that
    moves gives it up first, and the rebalance after that assigns it.
    """

    name: str
    assign: Callable[[PartitionCounts, Sequence[Subscriber]], Assigned]
    cooperative: bool = False


def _ordered(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    return sorted(
        subscribers, key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id)
    )


def _partitions(counts: PartitionCounts, topics: Iterable[str]) -> Iterator[TopicPartition]:
    for topic in sorted(topics):
        yield from (TopicPartition(topic, number) for number in range(counts.get(topic, 0)))


def _topics(subscribers: Iterable[Subscriber]) -> set[str]:
    return {topic for each in subscribers for topic in each.subscription.topics}


def assign_range(counts: PartitionCounts, subscribers: Sequence[Subscriber]) -> Assigned:
    """Neighbouring partitions of each topic for each of its members."""
    found: Assigned = {each.member_id: [] for each in subscribers}
    ordered = _ordered(subscribers)
    for topic in sorted(_topics(subscribers)):
        members = [each.member_id for each in ordered if topic in each.subscription.topics]
        share, more = divmod(counts.get(topic, 0), len(members))
        first = 0
        for place, member in enumerate(members):
            end = first + share + (place < more)
            found[member] += [TopicPartition(topic, number) for number in range(first, end)]
            first = end
    return found


def assign_round_robin(counts: PartitionCounts, subscribers: Sequence[Subscriber]) -> Assigned:
    """All partitions of all topics to the members in turn."""
    found: Assigned = {each.member_id: [] for each in subscribers}
    ordered = _ordered(subscribers)
    turn = 0
    for partition in _partitions(counts, _topics(subscribers)):
        while partition.topic not in ordered[turn % len(ordered)].subscription.topics:
            turn += 1
        found[ordered[turn % len(ordered)].member_id].append(partition)
        turn += 1
    return found


def assign_cooperatively(counts: PartitionCounts, subscribers: Sequence[Subscriber]) -> Assigned:
    """Balanced, with few moves; a partition that moves is left out until its owner has given it up."""
    owners = _owners(counts, subscribers)
    found = _balanced(counts, subscribers, owners)
    return {
        member: [each for each in partitions if owners.get(each, member) == member]
        for member, partitions in found.items()
    }


def _owners(counts: PartitionCounts, subscribers: Sequence[Subscriber]) -> dict[TopicPartition, str]:
    """Who holds each partition now: of two who say so, the one of the later generation."""
    owners: dict[TopicPartition, str] = {}
    generations: dict[TopicPartition, int] = {}
    for member_id, _, subscription in _ordered(subscribers):
        for partition in subscription.owned:
            exists = partition.partition < counts.get(partition.topic, 0)
            if exists and subscription.generation > generations.get(partition, -2):
                owners[partition] = member_id
                generations[partition] = subscription.generation
    return owners


def _balanced(
    counts: PartitionCounts, subscribers: Sequence[Subscriber], owners: Mapping[TopicPartition, str]
) -> Assigned:
    ordered = _ordered(subscribers)
    found: Assigned = {each.member_id: [] for each in ordered}
    readers = {
        topic: [each.member_id for each in ordered if topic in each.subscription.topics]
        for topic in _topics(subscribers)
    }
    free = []
    for partition in _partitions(counts, readers):
        owner = owners.get(partition)
        if owner in readers[partition.topic]:
            found[str(owner)].append(partition)
        else:
            free.append(partition)

    def least(topic: str) -> str:
        return min(readers[topic], key=lambda member: len(found[member]))

    for partition in free:
        found[least(partition.topic)].append(partition)
    # Each move makes two members more equal, so this ends.
    moved = True
    while moved:
        moved = False
        for member in sorted(found, key=lambda each: -len(found[each])):
            for partition in reversed(found[member]):
                target = least(partition.topic)
                if len(found[target]) + 1 < len(found[member]):
                    found[member].remove(partition)
                    found[target].append(partition)
                    moved = True
                    break
    return {member: sorted(partitions) for member, partitions in found.items()}


RANGE: Final = Assignor("range", assign_range)
ROUND_ROBIN: Final = Assignor("roundrobin", assign_round_robin)
COOPERATIVE_STICKY: Final = Assignor("cooperative-sticky", assign_cooperatively, cooperative=True)
ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RANGE, ROUND_ROBIN, COOPERATIVE_STICKY)
}
"""The assignors by name."""
