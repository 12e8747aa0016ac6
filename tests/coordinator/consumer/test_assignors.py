"""The assignors: everybody gets what it subscribes to, evenly, and as little as possible moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    AssignedMember,
    assign_range,
    select_assignor,
)
from klog.coordinator.groups.consumer.values import NO_PARTITIONS, Partitions

COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 12), min_size=1)
NAMES = st.sets(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1).map(sorted)


def members(
    topics: Mapping[str, frozenset[str]], previous: Mapping[str, Partitions] | None = None
) -> dict[str, AssignedMember]:
    return {
        name: AssignedMember(None, each, (previous or {}).get(name, NO_PARTITIONS))
        for name, each in topics.items()
    }


@st.composite
def same_topics(draw: st.DrawFn) -> tuple[dict[str, frozenset[str]], dict[str, int]]:
    counts = draw(COUNTS)
    return dict.fromkeys(draw(NAMES), frozenset(counts)), counts


@st.composite
def any_topics(draw: st.DrawFn) -> tuple[dict[str, frozenset[str]], dict[str, int]]:
    counts = draw(COUNTS)
    subsets = st.frozensets(st.sampled_from(sorted(counts)))
    return {name: draw(subsets) for name in draw(NAMES)}, counts


def check_complete(
    topics: Mapping[str, frozenset[str]], counts: Mapping[str, int], assigned: Mapping[str, Partitions]
) -> None:
    """Every partition that somebody subscribes to has one owner, who subscribes to it."""
    assert assigned.keys() == topics.keys()
    for name, partitions in assigned.items():
        assert {topic for topic, _ in partitions} <= topics[name]
    every = [each for partitions in assigned.values() for each in partitions]
    subscribed = frozenset().union(*topics.values())
    assert sorted(every) == sorted((topic, n) for topic in subscribed for n in range(counts[topic]))


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(case=any_topics(), seed=st.randoms(use_true_random=False))
def test_every_partition_has_one_owner_that_subscribes_to_it(assignor, case, seed) -> None:
    topics, counts = case
    # What was assigned before may be of topics, partitions and members that do not exist any more.
    previous = {
        name: frozenset((seed.choice("abcdef"), seed.randrange(15)) for _ in range(seed.randrange(9)))
        for name in topics
    }
    check_complete(topics, counts, ASSIGNORS[assignor](members(topics, previous), counts))


@given(case=same_topics())
def test_uniform_members_of_equal_subscriptions_differ_by_one_at_most(case) -> None:
    topics, counts = case
    sizes = [len(each) for each in ASSIGNORS["uniform"](members(topics), counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(case=any_topics())
def test_uniform_leaves_no_partition_that_should_move(case) -> None:
    topics, counts = case
    assigned = ASSIGNORS["uniform"](members(topics), counts)
    for owner, partitions in assigned.items():
        for topic, _ in partitions:
            for other, subscribed in topics.items():
                if topic in subscribed:
                    assert len(partitions) - len(assigned[other]) <= 1, (owner, other, topic)


@given(case=any_topics())
def test_uniform_moves_nothing_without_a_change(case) -> None:
    topics, counts = case
    assigned = ASSIGNORS["uniform"](members(topics), counts)
    assert ASSIGNORS["uniform"](members(topics, assigned), counts) == assigned


@given(case=same_topics(), newcomer=st.booleans())
def test_uniform_moves_as_few_partitions_as_balance_allows(case, newcomer: bool) -> None:
    topics, counts = case
    before = ASSIGNORS["uniform"](members(topics), counts)
    after_topics = dict(topics)
    if newcomer:
        after_topics["new"] = frozenset(counts)
    elif len(topics) > 1:
        del after_topics[min(topics)]
    after = ASSIGNORS["uniform"](members(after_topics, before), counts)
    quota, extra = divmod(sum(counts.values()), len(after_topics))
    # The members that had most may keep one more.
    sizes = sorted((len(before[name]) for name in after_topics if name in before), reverse=True)
    kept = sum(min(size, quota + (place < extra)) for place, size in enumerate(sizes))
    assert sum(len(after[name] & before[name]) for name in after_topics if name in before) == kept


def test_range_gives_neighbouring_partitions_static_members_first() -> None:
    topics = frozenset("ab")
    group = {
        "z": AssignedMember("1", topics, NO_PARTITIONS),
        "a": AssignedMember(None, topics, NO_PARTITIONS),
        "y": AssignedMember("0", frozenset("a"), NO_PARTITIONS),
    }
    assert assign_range(group, {"a": 5, "b": 3}) == {
        "y": {("a", 0), ("a", 1)},
        "z": {("a", 2), ("a", 3), ("b", 0), ("b", 1)},
        "a": {("a", 4), ("b", 2)},
    }


@given(case=same_topics())
def test_range_puts_equal_numbers_of_topics_of_equal_size_together(case) -> None:
    topics, counts = case
    assigned = assign_range(members(topics), dict.fromkeys(counts, 7))
    for partitions in assigned.values():
        numbers = {topic: {n for each, n in partitions if each == topic} for topic in counts}
        assert len({frozenset(each) for each in numbers.values()}) == 1


def test_most_members_choose_the_assignor_and_the_first_offered_is_the_default() -> None:
    offered = ("uniform", "range")
    assert select_assignor([None, None], offered) == "uniform"
    assert select_assignor(["range", None, "range", "uniform"], offered) == "range"
    assert select_assignor(["range", "uniform"], offered) == "uniform"
    assert select_assignor(["gone"], offered) == "uniform"
