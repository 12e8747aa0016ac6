"""Assignors as functions: everybody's share, and who keeps what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.client.assignors import ASSIGNORS, COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, Subscriber
from klog.client.consumer_protocol import Subscription
from klog.formats.names import TopicPartition


def parts(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def member(name: str, *topics: str, owned: list[TopicPartition] | None = None, generation: int = 1):
    return Subscriber(name, None, Subscription(topics or ("t",), b"", tuple(owned or ()), generation))


def test_range_gives_neighbours_and_the_rest_to_the_first() -> None:
    found = RANGE.assign({"t": 5, "u": 1}, [member("b", "t", "u"), member("a", "t", "u")])
    assert found == {"a": [*parts("t", 0, 1, 2), *parts("u", 0)], "b": parts("t", 3, 4)}


def test_round_robin_goes_through_all_topics() -> None:
    found = ROUND_ROBIN.assign({"t": 3, "u": 3}, [member("a", "t", "u"), member("b", "t", "u")])
    assert found == {
        "a": [*parts("t", 0, 2), *parts("u", 1)],
        "b": [*parts("t", 1), *parts("u", 0, 2)],
    }


def test_static_members_come_first_in_the_order_of_their_instances() -> None:
    static = member("z")._replace(instance_id="1")
    found = RANGE.assign({"t": 3}, [member("a"), static])
    assert found == {"z": parts("t", 0, 1), "a": parts("t", 2)}


def test_a_partition_that_moves_is_given_up_first() -> None:
    first = [member("a", owned=parts("t", 0, 1, 2, 3)), member("b", generation=-1)]
    found = COOPERATIVE_STICKY.assign({"t": 4}, first)
    assert (len(found["a"]), found["b"]) == (2, [])
    second = [member("a", owned=found["a"]), member("b", generation=-1)]
    assert len(COOPERATIVE_STICKY.assign({"t": 4}, second)["b"]) == 2


def test_of_two_owners_the_one_of_the_later_generation_keeps_a_partition() -> None:
    members = [member("a", owned=parts("t", 0), generation=3), member("b", owned=parts("t", 0), generation=5)]
    assert COOPERATIVE_STICKY.assign({"t": 2}, members) == {"a": parts("t", 1), "b": parts("t", 0)}


topics = st.sets(st.sampled_from("tuv"), min_size=1)


@given(
    assignor=st.sampled_from(sorted(ASSIGNORS)),
    counts=st.fixed_dictionaries({topic: st.integers(0, 6) for topic in "tuv"}),
    wanted=st.lists(topics, min_size=1, max_size=6),
)
def test_every_partition_has_just_one_reader_who_wants_it(assignor, counts, wanted) -> None:
    members = [member(f"m{number}", *sorted(each)) for number, each in enumerate(wanted)]
    found = ASSIGNORS[assignor].assign(counts, members)
    given_out = [partition for each in found.values() for partition in each]
    read = set().union(*wanted)
    assert sorted(given_out) == sorted(
        TopicPartition(topic, number) for topic in read for number in range(counts[topic])
    )
    for each in members:
        assert {partition.topic for partition in found[each.member_id]} <= set(each.subscription.topics)


@given(st.integers(0, 20), st.lists(st.integers(0, 8), min_size=1, max_size=5))
def test_cooperative_shares_become_equal_and_stay(count, owned_counts) -> None:
    names = [f"m{number}" for number in range(len(owned_counts))]
    left = iter(parts("t", *range(count)))
    owned = {
        name: [each for _, each in zip(range(wanted), left, strict=False)]
        for name, wanted in zip(names, owned_counts, strict=True)
    }
    for _ in range(2):
        members = [member(name, owned=owned[name]) for name in names]
        owned = COOPERATIVE_STICKY.assign({"t": count}, members)
    sizes = [len(each) for each in owned.values()]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    again = COOPERATIVE_STICKY.assign({"t": count}, [member(name, owned=owned[name]) for name in names])
    assert again == owned
