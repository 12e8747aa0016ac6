"""Rates come from samples of offsets, sizes and groups."""

from __future__ import annotations

from itertools import pairwise

from klog.admin.groups import Group, PartitionLag
from klog.admin.health import ClusterState
from klog.admin.rates import WINDOW_S, Sample, group_rates, recent, topic_rates
from klog.admin.requests.cluster_description import ClusterNodes
from klog.admin.topics import Partition, Topic
from klog.client.groups import CommittedOffset
from klog.formats.names import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def topic(name: str, partitions: int) -> Topic:
    parts = tuple(Partition(number, 1, 0, (1,), (1,), ()) for number in range(partitions))
    return Topic(name, None, is_internal=False, partitions=parts, settings=())


STATE = ClusterState(ClusterNodes("id", 1, ()), (topic("a", 2), topic("b", 1)))


def group(name: str, committed: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> Group:
    lags = tuple(
        PartitionLag(partition, CommittedOffset(offset, -1, ""), ends.get(partition), None)
        for partition, offset in committed.items()
    )
    return Group(name, "Empty", "consumer", "", 1, "h:1", (), lags)


def sample(at_s, ends, sizes=None, groups=()) -> Sample:
    return Sample(at_s, STATE, ends, sizes or {}, tuple(groups))


def test_what_was_written_and_read_is_divided_by_the_time_between() -> None:
    ends = {A0: 10, A1: 0, B0: 5}
    later = {A0: 30, A1: 10, B0: 5}
    before = sample(100, ends, {A0: 1000, A1: 0, B0: 50}, [group("g", {A0: 4}, ends)])
    after = sample(110, later, {A0: 3000, A1: 500, B0: 50}, [group("g", {A0: 24}, later)])
    first, second = topic_rates([before], after)
    assert (first.topic, first.records_in, first.bytes_in, first.records_out) == ("a", 3.0, 250.0, 2.0)
    assert (first.size_bytes, first.partitions) == (3500, 2)
    assert (second.topic, second.records_in, second.bytes_in, second.records_out) == ("b", 0.0, 0.0, 0.0)
    (of_group,) = group_rates([before], after)
    assert (of_group.lag, of_group.records_out, of_group.lag_growth) == (6, 2.0, 0.0)


def test_the_first_sample_has_sizes_and_lags_only() -> None:
    ends = {A0: 10, B0: 5}
    only = sample(1, ends, {A0: 7, B0: 9}, [group("g", {A0: 4}, ends)])
    assert [
        (each.topic, each.size_bytes, each.records_in, each.bytes_in) for each in topic_rates([], only)
    ] == [
        ("b", 9, None, None),
        ("a", 7, None, None),
    ]
    (of_group,) = group_rates([], only)
    assert (of_group.lag, of_group.records_out, of_group.lag_growth) == (6, None, None)


def test_truncated_logs_and_groups_that_were_reset_have_written_and_read_nothing() -> None:
    before = sample(0, {A0: 10}, {}, [group("g", {A0: 9}, {A0: 10})])
    after = sample(1, {A0: 4}, {}, [group("g", {A0: 2}, {A0: 4})])
    (a, _) = topic_rates([before], after)
    assert (a.records_in, a.records_out) == (0.0, 0.0)
    assert group_rates([before], after)[0].lag_growth == 1.0


def test_bytes_are_not_known_when_segments_were_deleted() -> None:
    before, after = sample(0, {A0: 1}, {A0: 100, A1: 5}), sample(1, {A0: 2}, {A0: 10, A1: 9})
    assert {each.topic: each.bytes_in for each in topic_rates([before], after)}["a"] is None


def test_partitions_and_groups_that_came_between_do_not_count_yet() -> None:
    before = sample(0, {A0: 1})
    after = sample(1, {A0: 2, A1: 100}, {}, [group("new", {A0: 0}, {A0: 2})])
    assert {each.topic: each.records_in for each in topic_rates([before], after)}["a"] == 1.0
    (new,) = group_rates([before], after)
    assert (new.lag, new.records_out, new.lag_growth) == (2, None, None)


def test_samples_of_the_same_moment_have_no_rates() -> None:
    both = sample(5, {A0: 1})
    assert {each.records_in for each in topic_rates([both], both)} == {None}


def test_groups_with_the_most_lag_come_first() -> None:
    ends = {A0: 100}
    groups = [group("near", {A0: 90}, ends), group("far", {A0: 0}, ends), group("none", {}, ends)]
    assert [each.group for each in group_rates([], sample(0, ends, {}, groups))] == ["far", "near", "none"]


def committing(at_s: int) -> Sample:
    """A group that reads 100 records a second as they are written, and commits every 5 seconds."""
    ends = {A0: 100 * at_s}
    return sample(at_s, ends, {}, [group("g", {A0: 100 * (at_s - at_s % 5)}, ends)])


def test_the_rate_of_a_group_does_not_jump_with_its_commits() -> None:
    """Looks come every 2 seconds; between two of them the group commits nothing, or what it read in five."""
    looks = [committing(at_s) for at_s in range(0, 100, 2)]
    for number in range(8, len(looks)):
        after = looks[number]
        earlier = recent(looks[:number], after.at_s)
        (found,) = group_rates(earlier, after)
        assert found.records_out is not None
        assert 80 <= found.records_out <= 120
        assert found.lag_growth is not None
        assert abs(found.lag_growth) <= 20
        assert topic_rates(earlier, after)[0].records_out == found.records_out


def test_a_group_that_stops_is_seen_to_stop() -> None:
    looks = [committing(at_s) for at_s in range(0, 40, 2)]
    ends = {A0: 100 * 40}
    still = [group("g", {A0: 100 * 35}, ends)]
    looks += [sample(at_s, ends, {}, still) for at_s in range(40, 40 + 2 * int(WINDOW_S), 2)]
    rates = [
        found.records_out
        for number in range(20, len(looks))
        for found in group_rates(recent(looks[:number], looks[number].at_s), looks[number])
    ]
    assert rates[0] is not None
    assert rates[0] >= 80
    assert all(later <= earlier for earlier, later in pairwise(rates) if earlier and later)
    assert rates[-1] == 0.0
