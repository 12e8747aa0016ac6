"""How far a stream is: the arithmetic of its batches, without any Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition
from klog.spark.stream_offsets import Available, batch_end, bounded, from_json, losses, ranges, to_json

A, B, C = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 2)

names = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 12))
offsets = st.dictionaries(names, st.integers(0, 2**62), max_size=6)


@given(offsets)
def test_json_is_that_of_sparks_kafka_source_and_is_read_back(told: dict[TopicPartition, int]) -> None:
    tree = to_json(told)
    assert tree == {
        topic: {str(p.partition): told[p] for p in told if p.topic == topic}
        for topic in {p.topic for p in told}
    }
    assert from_json(tree) == told


def test_equal_offsets_are_equal_texts() -> None:
    assert str(to_json({B: 1, C: 2, A: 3})) == str(to_json({C: 2, A: 3, B: 1}))


@pytest.mark.parametrize("foreign", [[1], {"a": 3}, {"a": {"x": 3}}, {"a": {"1": "3"}}, {"a": {"-1": 3}}])
def test_a_checkpoint_of_something_else_is_an_error(foreign: object) -> None:
    with pytest.raises(FormatError, match="are not offsets of topics"):
        from_json(foreign)


logs = st.dictionaries(
    names,
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda p: Available(p[0], sum(p))),
    max_size=6,
)


@given(logs, st.data(), st.integers(1, 60))
def test_limited_batches_bring_every_offset_once_and_come_to_an_end(
    there: dict[TopicPartition, Available], data: st.DataObject, limit: int
) -> None:
    start = {p: data.draw(st.integers(log.first, log.end)) for p, log in there.items()}
    at, seen = dict(start), 0
    while (end := batch_end(at, there, limit)) != at:
        taken = [stop - first for first, stop in ranges(at, end).values()]
        assert 0 < sum(taken) <= limit + len(there)
        seen += sum(taken)
        at = end
    assert at == {p: log.end for p, log in there.items()}
    assert seen == sum(log.end - start[p] for p, log in there.items())


def test_a_limit_is_divided_in_proportion_to_the_available_records() -> None:
    there = {A: Available(0, 100), B: Available(0, 300), C: Available(0, 4)}
    assert batch_end({A: 0, B: 0, C: 4}, there, 40) == {A: 10, B: 30, C: 4}


def test_a_partition_with_records_advances_however_small_its_share() -> None:
    there = {A: Available(0, 1), B: Available(0, 1_000_000)}
    assert batch_end({A: 0, B: 0}, there, 10)[A] == 1


def test_a_new_partition_is_read_from_its_first_record() -> None:
    there = {A: Available(0, 5), B: Available(7, 9)}
    end = batch_end({A: 5}, there, None)
    assert end == {A: 5, B: 9}
    assert ranges({A: 5}, end) == {B: (0, 9)}
    assert losses({A: 5}, there) == ["a-10 is new and starts at offset 7: earlier records are not read"]


def test_what_retention_deleted_before_it_was_read_is_lost() -> None:
    assert losses({A: 3}, {A: Available(10, 20)}) == [
        "a-0: offsets from 3 to before 10 were deleted before they were read"
    ]
    assert batch_end({A: 3}, {A: Available(10, 20)}, 5) == {A: 15}


def test_a_truncated_log_is_read_from_its_new_end() -> None:
    there = {A: Available(0, 8)}
    assert losses({A: 10}, there) == ["a-0 was truncated to offset 8; its next offset was 10"]
    end = batch_end({A: 10}, there, None)
    assert end == {A: 8}
    assert ranges({A: 10}, end) == {}


def test_a_missing_partition_keeps_its_offset() -> None:
    assert losses({A: 10, B: 3}, {A: Available(0, 10)}) == [
        "a-10 does not exist any more; its next offset was 3"
    ]
    assert batch_end({A: 10, B: 3}, {A: Available(0, 12)}, None) == {A: 12, B: 3}


def test_records_that_can_be_read_are_no_loss() -> None:
    assert losses({A: 3}, {A: Available(0, 3), B: Available(0, 3)}) == []


def test_what_came_after_the_target_does_not_count() -> None:
    there = {A: Available(2, 9), B: Available(0, 9)}
    assert bounded(there, {A: Available(0, 5)}) == {A: Available(2, 5)}
