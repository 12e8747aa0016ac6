"""`klog offsets` and `klog delete-records` on real clusters, beside Kafka's tools."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import confluent_kafka
import pytest

from klog.admin.offsets import parse_filter, parse_partition_rules
from klog.admin.record_deletion import parse_json, parse_targets
from klog.formats.errors import FormatError, UsageError
from klog.formats.names import TopicPartition
from tests.commands.running import Run
from tests.peers.tool_server import ToolServer

GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"

_numbers = itertools.count()


@pytest.fixture
def orders(klog: Run) -> str:
    """A topic of three partitions: 10 records, 4 records, none. The times are 1 s, 2 s and so on."""
    name = f"offsets-{next(_numbers)}"
    assert klog("topics", "create", name, "--partitions", 3).code == 0
    for partition, records in ((0, 10), (1, 4)):
        for second in range(1, records + 1):
            time = f"1970-01-01T00:00:{second:02}Z"
            assert klog("produce", name, "x", "--partition", partition, "--timestamp", time, "-q").code == 0
    return name


def rows(klog: Run, *words: object) -> list[dict]:
    outcome = klog(*words, "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def delete(klog: Run, *targets: str) -> None:
    assert klog("delete-records", *targets, "--yes").code == 0


# -- offsets -------------------------------------------------------------------------------------------------


def test_partitions_are_shown_from_their_first_offset_to_their_end(klog: Run, orders: str) -> None:
    delete(klog, f"{orders}:0:3")
    found = rows(klog, "offsets", orders)
    assert [(each["logStartOffset"], each["logEndOffset"], each["offsets"]) for each in found] == [
        (3, 10, 7),
        (0, 4, 4),
        (0, 0, 0),
    ]
    table = klog("offsets", f"{orders}:0,2").out.splitlines()
    assert " ".join(table[0].split()) == "TOPIC PARTITION LEADER LOG-START-OFFSET LOG-END-OFFSET OFFSETS"
    assert [line.split()[1] for line in table[1:]] == ["0", "2"]


def test_a_group_adds_what_it_has_committed_and_its_lag(klog: Run, cluster: str, orders: str) -> None:
    group = f"group-of-{orders}"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(orders, 0, 4)], asynchronous=False)
    consumer.close()
    found = rows(klog, "offsets", orders, "--group", group)
    assert [(each["currentOffset"], each["lag"]) for each in found] == [(4, 6), (None, None), (None, None)]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("3000", [2, 2, None]),
        ("9000", [8, None, None]),
        ("1970-01-01T00:00:03Z", [2, 2, None]),
        ("1970-01-01T01:00:03+01:00", [2, 2, None]),
        ("2h", [None, None, None]),
        ("latest", [10, 4, 0]),
        ("earliest", [0, 0, 0]),
        ("max-timestamp", [9, 3, None]),
        ("-3", [9, 3, None]),
    ],
)
def test_the_offset_of_a_time_is_that_of_the_first_record_since(
    klog: Run, orders: str, time: str, expected: list[int | None]
) -> None:
    assert [each["offset"] for each in rows(klog, "offsets", orders, "--time", time)] == expected


KAFKAS_OPTIONS = (
    ("--topic", "{}"),
    ("--topic", "{}", "--time", "-2"),
    ("--topic", "{}", "--time", "earliest", "--partitions", "0,2"),
    ("--topic", "{}", "--time", "-3"),
    ("--topic", "{}", "--time", "2500"),
    ("--topic-partitions", "{}:1-"),
    ("--topic-partitions", "{}:-1,{}:2"),
    ("--topic-partitions", ":1", "--exclude-internal-topics"),
    ("--topic", "none-of-these"),
    ("--topic", "{}", "--topic-partitions", "{}"),
    ("--topic", "{}", "--time", "noon"),
    (),
)


@pytest.mark.kafka
def test_more_than_ten_partitions_are_in_the_order_of_kafkas_tool(
    klog: Run, cluster: str, tools: ToolServer
) -> None:
    name = f"offsets-{next(_numbers)}"
    for topic in (name, f"{name}-more"):
        assert klog("topics", "create", topic, "--partitions", 12).code == 0
    options = ("--topic", f"{name}.*")
    theirs = tools.run(GET_OFFSETS, "--bootstrap-server", cluster, *options)
    assert theirs.out.index(f"{name}:10:") < theirs.out.index(f"{name}:2:")
    assert klog("offsets", *options).out == theirs.out


@pytest.mark.kafka
def test_the_lines_are_those_of_kafkas_tool(klog: Run, cluster: str, orders: str, tools: ToolServer) -> None:
    delete(klog, f"{orders}:0:2")
    for words in KAFKAS_OPTIONS:
        options = [word.replace("{}", orders) for word in words]
        before, theirs = None, tools.run(GET_OFFSETS, "--bootstrap-server", cluster, *options)
        # Members of groups that earlier tests have left may still write to the internal topics.
        while before != theirs.out:
            before = theirs.out
            ours = klog("offsets", *options)
            theirs = tools.run(GET_OFFSETS, "--bootstrap-server", cluster, *options)
        assert (ours.out, ours.code == 0) == (theirs.out, theirs.status == 0), options


def test_a_topic_that_does_not_exist_is_one_error(klog: Run) -> None:
    outcome = klog("offsets", "never-made")
    assert (outcome.code, outcome.out) == (1, "")
    assert "topic never-made does not exist" in outcome.err


def test_arguments_and_kafkas_options_exclude_each_other(klog: Run, topic: str) -> None:
    assert klog("offsets", topic, "--topic", topic).code == 2
    assert klog("offsets", topic, "--group", "g", "--time", "-1").code == 2


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("a", {"a-0", "a-1", "a-2"}),
        ("a:1", {"a-1"}),
        ("a:1-", {"a-1", "a-2"}),
        ("a:-1", {"a-0"}),
        ("a:0-2", {"a-0", "a-1"}),
        (":0", {"a-0", "ab-0"}),
        ("a.*:0,a:2", {"a-0", "ab-0", "a-2"}),
        ("a:-", {"a-0", "a-1", "a-2"}),
    ],
)
def test_rules_of_topic_partitions(rules: str, expected: set[str]) -> None:
    known = [*(TopicPartition("a", number) for number in range(3)), TopicPartition("ab", 0)]
    assert {str(each) for each in known if parse_partition_rules(rules)(each)} == expected


@pytest.mark.parametrize("wrong", ["a:x", "a:1-2-3", "a:0:1", "[", "a:-1-"])
def test_rules_that_are_none_are_errors(wrong: str) -> None:
    with pytest.raises(UsageError):
        parse_partition_rules(wrong)


def test_partitions_that_are_no_numbers_are_errors() -> None:
    with pytest.raises(UsageError):
        parse_filter(None, "1,b")


# -- delete-records ------------------------------------------------------------------------------------------


def test_records_go_only_after_a_yes(klog: Run, orders: str) -> None:
    shown = klog("delete-records", f"{orders}:0:3", f"{orders}:1:-1")
    assert shown.code == 1
    assert shown.out.splitlines()[0].split()[-1] == "DELETED-OFFSETS"
    assert [line.split()[-1] for line in shown.out.splitlines()[1:]] == ["3", "4"]
    assert [each["logStartOffset"] for each in rows(klog, "offsets", orders)] == [0, 0, 0]
    assert klog("delete-records", f"{orders}:0:3", "--dry-run").code == 0
    assert [each["logStartOffset"] for each in rows(klog, "offsets", orders)] == [0, 0, 0]
    done = klog("delete-records", f"{orders}:0:3", f"{orders}:1:-1", "--yes")
    assert done.code == 0
    assert f"{orders}-0: begins at offset 3\n{orders}-1: begins at offset 4\n" in done.err
    assert [each["logStartOffset"] for each in rows(klog, "offsets", orders)] == [3, 4, 0]


def test_an_offset_after_the_end_deletes_nothing(klog: Run, orders: str) -> None:
    outcome = klog("delete-records", f"{orders}:0:11", "--yes")
    assert outcome.code == 1
    assert "OFFSET_OUT_OF_RANGE" in outcome.err
    assert rows(klog, "offsets", f"{orders}:0")[0]["logStartOffset"] == 0


def test_records_that_the_cleanup_policy_keeps_are_not_deleted(klog: Run) -> None:
    topic = f"offsets-{next(_numbers)}"
    assert klog("topics", "create", topic, "--config", "cleanup.policy=compact").code == 0
    outcome = klog("delete-records", f"{topic}:0:0", "--yes")
    assert outcome.code == 1
    assert "POLICY_VIOLATION" in outcome.err
    assert "set cleanup.policy to compact,delete first" in outcome.err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("{}:9:3", "topic {} has no partition 9"), ("no-{}:0:3", "topic no-{} does not exist")],
)
def test_a_partition_that_does_not_exist_stops_all(klog: Run, orders: str, wrong: str, said: str) -> None:
    outcome = klog("delete-records", f"{orders}:0:3", wrong.format(orders), "--yes")
    assert outcome.code == 1
    assert said.format(orders) in outcome.err
    assert rows(klog, "offsets", f"{orders}:0")[0]["logStartOffset"] == 0


def test_kafkas_file_names_a_topic_that_does_not_exist(klog: Run, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 3} for topic in (f"no-{orders}", orders)]
    file.write_text(json.dumps({"partitions": partitions}))
    done = klog("delete-records", "--offset-json-file", file)
    assert f"partition: no-{orders}-0\terror: org.apache.kafka.common.errors.UnknownTopic" in done.out
    assert f"partition: {orders}-0\tlow_watermark: 3" in done.out


@pytest.mark.kafka
def test_kafkas_file_gives_the_output_of_kafkas_tool(
    klog: Run, cluster: str, orders: str, tools: ToolServer, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.json"
    partitions = [
        {"topic": orders, "partition": 0, "offset": 3},
        {"topic": orders, "partition": 1, "offset": 5},
        {"topic": orders, "partition": 2, "offset": -1},
    ]
    for version in ({}, {"version": 1}):
        file.write_text(json.dumps({"partitions": partitions, **version}))
        words = ("--bootstrap-server", cluster, "--offset-json-file", file)
        ours = klog("delete-records", *words)
        theirs = tools.run(DELETE_RECORDS, *words)
        assert ours.out.splitlines()[:2] == theirs.out.splitlines()[:2]
        assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines())
        assert ours.code == theirs.status, ours.err
    for wrong in ('{"version": 2, "partitions": []}', '{"partitions": 1}', "no"):
        file.write_text(wrong)
        ours = klog("delete-records", *words)
        assert (ours.out, ours.code) == ("", 1)
        assert ours.err.startswith("klog: ")
        assert tools.run(DELETE_RECORDS, *words).status == 1


@pytest.mark.parametrize("wrong", ["orders", "orders:0", "orders:0:x", ":0:1", "orders:-1:1", "orders:0:-2"])
def test_targets_that_are_none_are_errors(wrong: str) -> None:
    with pytest.raises(UsageError):
        parse_targets([wrong])


def test_targets_and_files_name_a_partition_once() -> None:
    assert parse_targets(["a:0:1", "a:1:-1"]) == {TopicPartition("a", 0): 1, TopicPartition("a", 1): -1}
    with pytest.raises(UsageError):
        parse_targets(["a:0:1", "a:0:2"])
    twice = [{"topic": "a", "partition": 0, "offset": 1}] * 2
    with pytest.raises(FormatError):
        parse_json(json.dumps({"partitions": twice}), "f")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": 1, "partition": 0, "offset": 1},
        {"topic": "a", "partition": "0", "offset": 1},
        {"topic": "a", "partition": 0, "offset": True},
        {"topic": "a", "partition": 0, "offset": -2},
        {"topic": "a", "partition": 0},
        7,
    ],
)
def test_a_file_with_a_wrong_entry_is_an_error(wrong: object) -> None:
    with pytest.raises(FormatError):
        parse_json(json.dumps({"partitions": [wrong]}), "f")
