"""The assignors that the coordinator has: which member of a consumer group reads which partitions.

Rules: KIP-848. `range` gives each member of a topic a row of neighbouring partitions, so that topics with
equal subscribers and equal numbers of partitions go together. `uniform` gives all members equally many and
moves as few as possible (`uniform_assignor`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.coordinator.groups.consumer.uniform_assignor import assign_uniform
from klog.coordinator.groups.consumer.values import AssignedPartition, Partitions, TopicId


class AssignedMember(NamedTuple):
    """What an assignor knows of a member: the topics that it subscribes to, and what it was assigned last."""

    instance_id: str | None
    topics: frozenset[TopicId]
    previous: Partitions


Members = Mapping[str, AssignedMember]
Assignor = Callable[[Members, Mapping[TopicId, int]], dict[str, Partitions]]


def assign_range(members: Members, partition_counts: Mapping[TopicId, int]) -> dict[str, Partitions]:
    """Contiguous partitions of each topic: static members first by instance id, then others by member id."""
    order = sorted(members, key=lambda each: _range_order(each, members[each]))
    assigned: dict[str, set[AssignedPartition]] = {member_id: set() for member_id in order}
    for topic_id, count in partition_counts.items():
        subscribers = [each for each in order if topic_id in members[each].topics]
        if not subscribers:
            continue
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + quota + (position < extra)
            assigned[member_id].update((topic_id, number) for number in range(start, end))
            start = end
    return {member_id: frozenset(each) for member_id, each in assigned.items()}


def _range_order(member_id: str, member: AssignedMember) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member_id if member.instance_id is None else member.instance_id


def _uniform(members: Members, partition_counts: Mapping[TopicId, int]) -> dict[str, Partitions]:
    topics = {member_id: member.topics for member_id, member in members.items()}
    previous = {member_id: member.previous for member_id, member in members.items()}
    return assign_uniform(topics, previous, partition_counts)


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": _uniform, "range": assign_range})


def select_assignor(asked: Iterable[str | None], offered: Sequence[str]) -> str:
    """The assignor that most members ask for; the first that is offered if they ask for none.

    Of equals the one that is offered first wins.
    """
    votes = Counter(name for name in asked if name in offered)
    return max(offered, key=lambda name: votes[name])
