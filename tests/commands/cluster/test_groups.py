"""`klog groups` on real clusters, with consumers of confluent-kafka as members."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from klog.admin.offset_reset import Known, LogRange, by_duration, from_csv, parse_datetime, shift_by, to_csv
from klog.client.errors import ClientError
from klog.formats.errors import FormatError, UsageError
from klog.formats.names import TopicPartition
from tests.commands.running import Run
from tests.commands.test_completion import completions
from tests.waiting import eventually

_numbers = itertools.count()

Member = confluent_kafka.Consumer


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def orders(klog: Run) -> str:
    """A topic of two partitions with 10 records each, one every second from the time 1000."""
    name = f"orders-{next(_numbers)}"
    assert klog("topics", "create", name, "--partitions", 2).code == 0
    for partition in range(2):
        for second in range(1, 11):
            words = ("--partition", partition, "--timestamp", f"1970-01-01T00:00:{second:02}Z")
            if second in {1, 10}:
                assert klog("produce", name, "x", *words, "-q").code == 0
            elif second == 5:
                assert klog("produce", name, *"abcdefgh", *words, "-q").code == 0
    return name


@pytest.fixture
def commit(cluster: str, group: str) -> Callable[..., None]:
    """Commits offsets of the group's partitions without being a member."""

    def do(topic: str, *offsets: int) -> None:
        consumer = Member({"bootstrap.servers": cluster, "group.id": group})
        wanted = [confluent_kafka.TopicPartition(topic, *each) for each in enumerate(offsets)]
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()

    return do


@pytest.fixture
def member(cluster: str, group: str, orders: str) -> Iterator[Member]:
    """A member that holds both partitions of the topic."""
    consumer = Member(
        {
            "bootstrap.servers": cluster,
            "group.id": group,
            "client.id": "reader",
            "group.instance.id": f"instance-of-{group}",
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # what it has read meanwhile depends on the machine
        }
    )
    consumer.subscribe([orders])

    def assigned() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    eventually(assigned)
    yield consumer
    consumer.close()


def described(klog: Run, group: str) -> dict:
    outcome = klog("groups", "describe", group, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def offsets(klog: Run, group: str) -> list[int]:
    return [each["currentOffset"] for each in described(klog, group)["offsets"]]


def test_groups_are_listed_by_state_and_type(klog: Run, group, orders, commit):
    commit(orders, 3)
    assert group in klog("groups", "list").out.splitlines()
    assert group in klog("groups", "list", "--state", "empty").out
    assert group not in klog("groups", "list", "--state", "Stable").out
    assert group in klog("groups", "list", "--type", "classic").out
    rows = [json.loads(line) for line in klog("groups", "list", "--json").out.splitlines()]
    (row,) = (row for row in rows if row["group"] == group)
    assert (row["state"], row["protocolType"]) == ("Empty", "")


def test_a_group_without_members_has_offsets_and_lag(klog: Run, group, orders, commit):
    commit(orders, 3, 10)
    found = described(klog, group)
    assert (found["state"], found["members"]) == ("Empty", [])
    shown = [(each["partition"], each["currentOffset"], each["lag"]) for each in found["offsets"]]
    assert shown == [(0, 3, 7), (1, 10, 0)]
    table = klog("groups", "describe", group)
    assert table.err == f"klog: group {group} has no active members\n"
    head, titles, *rows = table.out.splitlines()
    assert head == f"{group}  Empty  0 members  lag 7"
    assert titles.split()[:5] == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert [row.split()[:5] for row in rows] == [
        [orders, "0", "3", "10", "7"],
        [orders, "1", "10", "10", "0"],
    ]


def test_members_are_shown_with_their_partitions(klog: Run, group, orders, member):
    found = described(klog, group)
    (reader,) = found["members"]
    assert (reader["clientId"], reader["groupInstanceId"]) == ("reader", f"instance-of-{group}")
    assert reader["assignment"] == {orders: [0, 1]}
    assert (found["state"], found["assignmentStrategy"]) == ("Stable", "range")
    assert {each["consumerId"] for each in found["offsets"]} == {reader["consumerId"]}
    assert [each["lag"] for each in found["offsets"]] == [None, None]
    assert f"{orders}(0,1)" in klog("groups", "describe", group, "--members", "--verbose").out
    state = klog("groups", "describe", group, "--state").out.splitlines()[1].split()
    assert state[0] == group
    assert state[-3:] == ["range", "Stable", "1"]


@pytest.mark.parametrize("cluster", ["klog", pytest.param("kafka4", marks=pytest.mark.kafka)], indirect=True)
def test_groups_of_the_protocol_of_kafka_4_are_shown(klog: Run, cluster, group, orders):
    consumer = Member(
        {
            "bootstrap.servers": cluster,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([orders])

    def assigned() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    try:
        eventually(assigned)
        eventually(lambda: described(klog, group)["state"] == "Stable")
        found = described(klog, group)
        assert [each["assignment"] for each in found["members"]] == [{orders: [0, 1]}]
        assert (found["assignmentStrategy"], found["members"][0]["clientId"]) == ("uniform", "reader")
        assert group in klog("groups", "list", "--type", "consumer").out.split()
        assert klog("groups", "delete", group, "--yes").code == 1
    finally:
        consumer.close()
    eventually(lambda: described(klog, group)["state"] == "Empty")
    assert klog("groups", "reset-offsets", group, "--topic", orders, "--to-offset", 3, "--execute").code == 0
    assert offsets(klog, group) == [3, 3]


def test_a_group_with_members_is_neither_reset_nor_deleted(klog: Run, group, orders, member):
    reset = klog("groups", "reset-offsets", group, "--topic", orders, "--to-latest", "--execute")
    assert (reset.code, reset.out) == (1, "")
    assert "has members (state Stable)" in reset.err
    deleted = klog("groups", "delete", group, "--yes")
    assert deleted.code == 1
    assert "NON_EMPTY_GROUP" in deleted.err
    subscribed = klog("groups", "delete-offsets", group, "--topic", orders, "--yes")
    assert subscribed.code == 1
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in subscribed.err


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-current"], [3, 10]),
        (["--to-offset", 7], [7, 7]),
        (["--to-offset", 70], [10, 10]),
        (["--shift-by", -2], [1, 8]),
        (["--shift-by", 5], [8, 10]),
        (["--to-datetime", "1970-01-01T00:00:05.000"], [1, 1]),
        (["--to-datetime", "1970-01-01T02:00:06+02:00"], [9, 9]),
        (["--by-duration", "PT1H"], [10, 10]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_offsets_are_reset_by_every_rule(klog: Run, group, orders, commit, rule, expected):
    commit(orders, 3, 10)
    shown = klog("groups", "reset-offsets", group, "--topic", orders, *rule, "--json")
    assert [json.loads(line)["newOffset"] for line in shown.out.splitlines()] == expected
    assert "nothing was changed" in shown.err
    assert offsets(klog, group) == [3, 10]
    assert klog("groups", "reset-offsets", group, "--all-topics", *rule, "--execute").code == 0
    assert offsets(klog, group) == expected


def test_a_reset_may_name_partitions_and_make_a_group(klog: Run, group, orders):
    words = ("--topic", f"{orders}:1", "--to-offset", 4)
    assert klog("groups", "reset-offsets", group, *words, "--execute").code == 0
    found = described(klog, group)["offsets"]
    assert [(each["partition"], each["currentOffset"]) for each in found] == [(1, 4)]


def test_offsets_are_exported_and_set_from_a_file(klog: Run, group, orders, commit, tmp_path):
    commit(orders, 3, 10)
    exported = klog("groups", "reset-offsets", group, "--all-topics", "--to-current", "--export")
    assert exported.out == f"{orders},0,3\n{orders},1,10\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported.out.replace(",3", ",6"))
    done = klog("groups", "reset-offsets", group, "--from-file", file, "--execute")
    assert done.code == 0, done.err
    assert offsets(klog, group) == [6, 10]
    file.write_text("orders,zero,1\n")
    wrong = klog("groups", "reset-offsets", group, "--from-file", file)
    assert (wrong.code, wrong.out) == (1, "")
    assert "offsets.csv: line 1 is not topic,partition,offset" in wrong.err


def test_the_groups_that_read_a_topic_are_listed(klog: Run, group, orders, topic, commit):
    commit(orders, 3, 10)
    assert klog("groups", "list", "--topic", orders).out == f"{group}\n"
    neither = klog("groups", "list", "--topic", topic)
    assert (neither.code, neither.out, "there are no such groups" in neither.err) == (0, "", True)
    unknown = klog("groups", "list", "--topic", "no-such-topic")
    assert (unknown.code, "no-such-topic does not exist" in unknown.err) == (1, True)


def test_offsets_and_groups_are_deleted(klog: Run, group, orders, commit):
    commit(orders, 3, 10)
    gone = klog("groups", "delete-offsets", group, "--topic", f"{orders}:0", "--yes")
    assert gone.err == f"{orders}-0: deleted\n"
    assert [each["partition"] for each in described(klog, group)["offsets"]] == [1]
    unasked = klog("groups", "delete", group)
    assert unasked.code == 1
    assert klog("groups", "delete", group, "--yes").err == f"{group}: deleted\n"
    gone = klog("groups", "describe", group)
    assert (gone.code, gone.out) == (1, "")


def test_names_that_do_not_exist_are_code_1(klog: Run, orders):
    for words in (
        ("describe", "no-such-group"),
        ("delete", "no-such-group", "--yes"),
        ("delete-offsets", "no-such-group", "--topic", orders, "--yes"),
        ("reset-offsets", "no-such-group", "--topic", "no-such-topic", "--to-latest"),
        ("reset-offsets", "no-such-group", "--topic", f"{orders}:7", "--to-latest"),
    ):
        done = klog("groups", *words)
        assert (done.code, done.out) == (1, ""), words
        assert "Traceback" not in done.err


def test_groups_of_the_cluster_are_completed(klog: Run, group, orders, commit):
    commit(orders, 1)
    for words in ("klog groups describe ", "klog groups delete-offsets --group ", "klog consume --group "):
        # A busy machine may take longer than a completion waits.
        eventually(lambda words=words: group in completions(f"{words}{group[:-1]}"))


def test_a_shift_needs_a_committed_offset() -> None:
    partition = TopicPartition("orders", 0)
    known = Known({partition: LogRange(5, 9)}, {}, lambda _: {})
    with pytest.raises(ClientError, match="no committed offset for orders-0"):
        shift_by(1)(partition, known)
    assert shift_by(-7)(partition, known._replace(committed={partition: 6})) == 5


def test_times_and_durations_are_kafkas() -> None:
    assert parse_datetime("1970-01-01T00:00:01.500") == 1500
    assert parse_datetime("1970-01-01T01:00:01+01:00") == 1000
    for wrong in ("PT", "P", "1h", "PT1X", ""):
        with pytest.raises(UsageError):
            by_duration(wrong, 0)
    asked: list[int] = []

    def offset_at(time_ms: int) -> dict[TopicPartition, int]:
        asked.append(time_ms)
        return {partition: 2}

    partition = TopicPartition("orders", 0)
    known = Known({partition: LogRange(0, 9)}, {}, offset_at)
    day_ms = 86_400_000
    assert by_duration("P1DT2H3M4.5S", 2 * day_ms)(partition, known) == 2
    assert asked == [2 * day_ms - day_ms - 7_384_500]


def test_csv_of_several_groups_names_them() -> None:
    planned = {"a": {TopicPartition("t", 0): 1}, "b": {TopicPartition("t", 1): 2}}
    assert to_csv(planned) == "a,t,0,1\nb,t,1,2\n"
    assert from_csv(to_csv(planned).splitlines(), ["a", "b"], "file") == planned
    assert from_csv(["t,0,5"], ["a"], "file") == {"a": {TopicPartition("t", 0): 5}}
    with pytest.raises(FormatError, match="line 1"):
        from_csv(["t,0,5"], ["a", "b"], "file")
