"""The assignors that the coordinator has: which member of a consumer group reads which partitions.

Rules: KIP-848. `range` gives each member of a topic a row of neighbouring partitions, so that topics with
equal subscribers and equal numbers of partitions go together. `uniform` gives all members equally many and
moves as few as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

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


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": _uniform, "range": assign_range}


def select_assignor(asked: Iterable[str | None], offered: Sequence[str]) -> str:
    """The assignor that most members ask for; the first that is offered if they ask for none.

    Of equals the one that is offered first wins.
    """
    votes = Counter(name for name in asked if name in offered)
    return max(offered, key=lambda name: votes[name])


# -- The uniform assignor: all members get equally many partitions, and few partitions move ------------------
# If all members subscribe to the same topics, no two have counts that differ by more than one, and as many
# partitions stay as that allows. If not, no partition can move to a member that has two or more fewer.

Topics = Mapping[str, frozenset[TopicId]]
Previous = Mapping[str, Partitions]
Counts = Mapping[TopicId, int]


def assign_uniform(topics: Topics, previous: Previous, counts: Counts) -> dict[str, Partitions]:
    """The partitions of each member: `topics` are its subscriptions, `previous` is what it had."""
    if not topics:
        return {}
    if len(set(topics.values())) == 1:
        return _assign_equal(topics, previous, counts)
    return _assign_different(topics, previous, counts)


def _all_partitions(topics: Iterable[TopicId], counts: Counts) -> list[AssignedPartition]:
    return [(topic_id, number) for topic_id in sorted(topics) for number in range(counts.get(topic_id, 0))]


def _still_valid(topics: Topics, previous: Previous, counts: Counts) -> dict[str, list[AssignedPartition]]:
    """What each member may keep: it subscribes to the topic, the partition exists, and is nobody else's."""
    taken: set[AssignedPartition] = set()
    kept: dict[str, list[AssignedPartition]] = {}
    for member_id, subscribed in topics.items():
        mine = sorted(
            each
            for each in previous[member_id]
            if each[0] in subscribed and each[1] < counts.get(each[0], 0) and each not in taken
        )
        taken.update(mine)
        kept[member_id] = mine
    return kept


def _assign_equal(topics: Topics, previous: Previous, counts: Counts) -> dict[str, Partitions]:
    wanted = _all_partitions(next(iter(topics.values())), counts)
    kept = _still_valid(topics, previous, counts)
    quota, extra = divmod(len(wanted), len(topics))
    # Members that have more than the quota keep one more, as far as there are so many.
    quotas = {
        member_id: quota + (position < extra)
        for position, member_id in enumerate(sorted(topics, key=lambda each: (-len(kept[each]), each)))
    }
    for member_id, mine in kept.items():
        del mine[quotas[member_id] :]
    taken = {each for mine in kept.values() for each in mine}
    free = iter([each for each in wanted if each not in taken])
    for member_id in sorted(topics):
        mine = kept[member_id]
        mine += (next(free) for _ in range(quotas[member_id] - len(mine)))
    return {member_id: frozenset(mine) for member_id, mine in kept.items()}


def _assign_different(topics: Topics, previous: Previous, counts: Counts) -> dict[str, Partitions]:
    subscribers: dict[TopicId, list[str]] = {}
    for member_id in sorted(topics):
        for topic_id in topics[member_id]:
            subscribers.setdefault(topic_id, []).append(member_id)
    owned = {member_id: set(mine) for member_id, mine in _still_valid(topics, previous, counts).items()}
    taken = {each for mine in owned.values() for each in mine}
    # Topics with few subscribers come first, because their partitions have the smallest choice.
    order = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    for topic_id in order:
        for partition in _all_partitions([topic_id], counts):
            if partition not in taken:
                owned[_least(subscribers[topic_id], owned)].add(partition)
    _balance(order, subscribers, owned, previous)
    return {member_id: frozenset(mine) for member_id, mine in owned.items()}


def _least(members: Sequence[str], owned: Mapping[str, set[AssignedPartition]]) -> str:
    return min(members, key=lambda member_id: len(owned[member_id]))


def _balance(
    order: Sequence[TopicId],
    subscribers: Mapping[TopicId, Sequence[str]],
    owned: Mapping[str, set[AssignedPartition]],
    previous: Previous,
) -> None:
    """Move partitions from members with many to members with few, until none of these moves helps.

    Every move makes the sum of the squared counts smaller, so this ends.
    """
    changed = True
    while changed:
        changed = False
        for topic_id in order:
            while _move_one(topic_id, subscribers[topic_id], owned, previous):
                changed = True


def _move_one(
    topic_id: TopicId,
    subscribers: Sequence[str],
    owned: Mapping[str, set[AssignedPartition]],
    previous: Previous,
) -> bool:
    least = _least(subscribers, owned)
    for member_id in sorted(subscribers, key=lambda each: -len(owned[each])):
        if len(owned[member_id]) - len(owned[least]) < 2:
            return False
        movable = [each for each in owned[member_id] if each[0] == topic_id]
        if movable:
            # A partition that the member did not have before moves first, best to where it was before.
            moved = min(
                movable, key=lambda each: (each in previous[member_id], each not in previous[least], each)
            )
            owned[member_id].discard(moved)
            owned[least].add(moved)
            return True
    return False
