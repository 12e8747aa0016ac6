"""The JSON files of kafka-reassign-partitions: what is read, what is refused and where, what is written."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.admin.reassign.json_files import format_assignments, parse_assignments, parse_topics
from klog.admin.reassign.values import PartitionAssignment
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition

T0 = TopicPartition("t", 0)


@st.composite
def assignments(draw) -> list[PartitionAssignment]:
    found = []
    names = st.text("abz-._09", min_size=1, max_size=5)
    partitions = draw(st.sets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), min_size=1))
    for partition in partitions:
        replicas = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True))
        dirs = draw(st.none() | st.lists(st.sampled_from(["/a", "/b c", "any"]), min_size=4, max_size=4))
        log_dirs = () if dirs is None else tuple(dirs[: len(replicas)])
        named = any(path != "any" for path in log_dirs)
        found.append(PartitionAssignment(partition, tuple(replicas), log_dirs if named else ()))
    return found


@given(assignments())
def test_what_is_written_is_read_again(wanted) -> None:
    text = format_assignments(wanted)
    assert "\n" not in text
    assert parse_assignments(text, "f") == sorted(wanted, key=lambda each: each.partition)
    assert format_assignments(parse_assignments(json.dumps(json.loads(text), indent=2), "f")) == text


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_no_value_in_place_of_another_ends_in_anything_but_an_error(value) -> None:
    part = {"topic": "t", "partition": 0, "replicas": [1]}
    for name in ("topic", "partition", "replicas", "log_dirs"):
        text = json.dumps({"version": 1, "partitions": [{**part, name: value}]})
        with suppress(FormatError):
            assert parse_assignments(text, "f")


@given(st.binary())
def test_no_bytes_end_in_anything_but_an_error(data) -> None:
    with pytest.raises(FormatError):
        parse_assignments(data.decode("utf-8", "replace"), "f")


def test_files_are_written_as_by_kafka() -> None:
    written = format_assignments(
        [
            PartitionAssignment(TopicPartition("b", 0), (2,)),
            PartitionAssignment(TopicPartition("a", 10), (0, 1)),
        ]
    )
    assert written == (
        '{"version":1,"partitions":[{"topic":"a","partition":10,"replicas":[0,1],"log_dirs":["any","any"]},'
        '{"topic":"b","partition":0,"replicas":[2],"log_dirs":["any"]}]}'
    )


def test_the_version_and_the_directories_may_be_missing() -> None:
    text = '{"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
    assert parse_assignments(text, "f") == [PartitionAssignment(T0, (1,))]


def part(**fields) -> str:
    whole = {"topic": "t", "partition": 0, "replicas": [0, 1]} | fields
    return json.dumps({"version": 1, "partitions": [{name: v for name, v in whole.items() if v is not None}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "at byte 1: not JSON"),
        ('{"ä":', "at byte 6: not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the file: it has to be an object"),
        ('{"version":2,"partitions":[]}', "Not supported version field value 2"),
        ('{"version":"1"}', 'Not supported version field value "1"'),
        ('{"version":true}', "Not supported version field value true"),
        ("{}", "Partition reassignment list cannot be empty"),
        ('{"version":1,"partitions":{}}', "partitions has to be a list"),
        (part(topic=None), "partitions[0]: no field `topic`"),
        (part(replicas=None), "no field `replicas`"),
        (part(partition=-1), "partition has to be a whole number from 0, not -1"),
        (part(partition=1.5), "not 1.5"),
        (part(replicas=[]), "Partition replica list cannot be empty"),
        (part(replicas=[1, 1]), "t-0 contains multiple entries for 1"),
        (
            part(log_dirs=["any"]),
            "Size of replicas list [0, 1] is different from size of log dirs list [any] for partition t-0",
        ),
        (part(log_dirs=["any", "relative"]), "an absolute path"),
        (
            part()[:-2] + "," + part().partition("[")[2],
            "Partition reassignment contains duplicate topic partitions: t-0",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_assignments(text, "plan.json")
    assert str(raised.value).startswith("plan.json")
    assert message in str(raised.value)


def test_topics_to_move_are_read() -> None:
    assert parse_topics('{"version":1,"topics":[{"topic":"b"},{"topic":"a"}]}', "f") == ["b", "a"]
    for text in ('{"topics":[{"topic":"a"},{"topic":"a"}]}', '{"topics":[{}]}', '{"topics":[{"topic":1}]}'):
        with pytest.raises(FormatError):
            parse_topics(text, "f")
