"""`klog brokers`, `klog log-dirs` and `klog elect-leader` on real clusters, beside Kafka's tools."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from klog.admin.elections import parse_json
from klog.admin.log_dirs import summaries, unbalanced
from klog.client.log_dirs import LogDir, ReplicaInLogDir
from klog.commands.kafka_tools.java_errors import java_class
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from tests.commands.asking import keeps_to_the_rule
from tests.commands.running import Run
from tests.peers.tool_server import ToolServer
from tests.waiting import eventually

API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"

_numbers = itertools.count()


def rows(klog: Run, *words: object) -> list[dict]:
    outcome = klog(*words, "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


# -- brokers -------------------------------------------------------------------------------------------------


def test_brokers_are_listed_with_their_racks(on_three: Run, three) -> None:
    found = rows(on_three, "brokers")
    assert [(each["id"], each["rack"]) for each in found] == [(0, "rack-0"), (1, "rack-1"), (2, "rack-2")]
    assert sum(each["isController"] for each in found) == 1
    assert [f"{each['host']}:{each['port']}" for each in found] == [each.address for each in three.members]


def test_configs_of_a_broker_are_those_that_were_set(klog: Run) -> None:
    (broker,) = rows(klog, "brokers")
    found = {each["name"]: each for each in rows(klog, "brokers", "configs", broker["id"])}
    assert found["log.retention.ms"]["value"] == "-1"
    assert found["log.retention.ms"]["source"] == "STATIC_BROKER_CONFIG"
    assert "num.io.threads" not in found
    (only,) = rows(klog, "brokers", "configs", broker["id"], "num.io.threads")
    assert only["source"] == "DEFAULT_CONFIG"
    unknown = klog("brokers", "configs", broker["id"], "no.such.config")
    assert unknown.code == 1
    assert "no.such.config" in unknown.err
    assert klog("brokers", "configs", 77).code == 1


@pytest.mark.kafka
@pytest.mark.parametrize("cluster", ["klog", pytest.param("kafka3", marks=pytest.mark.kafka)], indirect=True)
def test_api_versions_are_printed_as_by_kafkas_tool(klog: Run, cluster: str, tools: ToolServer) -> None:
    theirs = tools.run(API_VERSIONS, "--bootstrap-server", cluster)
    assert theirs.status == 0, theirs.err
    assert klog("brokers", "api-versions").out == theirs.out


def test_api_versions_are_rows_for_programs(klog: Run) -> None:
    found = {each["name"]: each for each in rows(klog, "brokers", "api-versions")}
    assert found["Metadata"]["apiKey"] == 3
    assert found["Metadata"]["minVersion"] < found["Metadata"]["maxVersion"]


# -- log-dirs ------------------------------------------------------------------------------------------------


def test_log_directories_show_what_they_hold(on_three: Run, three) -> None:
    klog = on_three
    name = f"dirs-{next(_numbers)}"
    assert klog("topics", "create", name, "--replica-assignment", "0:1,1:2").code == 0
    assert klog("produce", name, "x" * 1000, "--partition", 0, "-q").code == 0

    def written() -> bool:
        found = rows(klog, "log-dirs", name)
        replicas = sorted((each["broker"], each["partition"]) for each in found)
        filled = [each["broker"] for each in found if each["size"] > 1000]
        return replicas == [(0, 0), (1, 0), (1, 1), (2, 1)] and filled == [0, 1]

    eventually(written)
    found = rows(klog, "log-dirs", name)
    assert {each["isFuture"] for each in found} == {False}
    dirs = rows(klog, "log-dirs")
    assert [each["broker"] for each in dirs] == [0, 0, 1, 1, 2, 2]
    assert all(0 < each["usableBytes"] <= each["totalBytes"] for each in dirs)
    assert {each["error"] for each in dirs} == {None}
    assert [each["broker"] for each in rows(klog, "log-dirs", "--broker", 1)] == [1, 1]


def test_directories_that_hold_more_than_the_mean_are_named(klog: Run, topic: str) -> None:
    def of(broker_id: int, path: str, size: int, error: ErrorCode = ErrorCode.NONE) -> LogDir:
        replica = ReplicaInLogDir(TopicPartition("t", 0), size, 3, True)
        return LogDir(broker_id, path, error, None, None, (replica,))

    gib = 1 << 30
    found = summaries(
        [of(0, "/a", 6 * gib), of(0, "/b", 2 * gib), of(1, "/a", 2 * gib), of(1, "/b", 2 * gib)]
    )
    assert [each.share_of_broker for each in found] == [1.5, 0.5, 1.0, 1.0]
    assert [each.broker_share for each in found] == [1.333, 1.333, 0.667, 0.667]
    assert unbalanced(found) == [
        "broker 0 holds 33 % more than the mean of the brokers",
        "/a of broker 0 holds 50 % more than the mean of its directories",
    ]
    assert (found[0].lagging, found[0].future) == (1, 1)
    small = summaries([of(0, "/a", 300), of(0, "/b", 100), of(1, "/a", 100), of(1, "/b", 100)])
    assert [each.share_of_broker for each in small] == [each.share_of_broker for each in found]
    assert unbalanced(small) == []  # nobody moves 200 bytes
    alone = summaries([of(0, "/a", 6 * gib), of(0, "/b", 0, ErrorCode.KAFKA_STORAGE_ERROR)])
    assert unbalanced(alone) == []
    assert alone[1].to_json()["error"] == "KAFKA_STORAGE_ERROR"


@pytest.mark.kafka
def test_describe_prints_the_json_of_kafkas_tool(on_three: Run, three, tools: ToolServer) -> None:
    klog = on_three
    name = f"dirs-{next(_numbers)}"
    assert klog("topics", "create", name, "--partitions", 2, "--replication-factor", 2).code == 0
    eventually(lambda: len(rows(klog, "log-dirs", name)) == 4)  # followers may make theirs later
    for words in (
        ("--topic-list", name),
        ("--topic-list", f"{name},none-of-these", "--broker-list", "0,2"),
        ("--broker-list", "7"),
    ):
        options = ("--bootstrap-server", three.bootstrap, "--describe", *words)
        theirs, ours = tools.run(LOG_DIRS, *options), klog("log-dirs", *options)
        assert (ours.code == 0) == (theirs.status == 0)
        assert ours.out.splitlines()[:2] == theirs.out.splitlines()[:2]
        assert [_sorted(line) for line in ours.out.splitlines()[2:]] == [
            _sorted(line) for line in theirs.out.splitlines()[2:]
        ]
    assert "do not exist from --broker-list: 7. Current existent brokers: 0,1,2" in ours.err


def _sorted(line: str) -> object:
    """The JSON with lists in an order of their own: Kafka's tool has that of hash maps."""
    found = json.loads(line)
    for broker in found["brokers"]:
        broker["logDirs"].sort(key=lambda each: each["logDir"])
        for each in broker["logDirs"]:
            each["partitions"].sort(key=lambda part: part["partition"])
    found["brokers"].sort(key=lambda each: each["broker"])
    return found


def test_a_broker_that_does_not_answer_is_an_error_and_the_others_are_shown(on_three: Run, three) -> None:
    three.kill(1)
    outcome = on_three("log-dirs", "--json", "--timeout-ms", 20_000)
    assert {json.loads(line)["broker"] for line in outcome.out.splitlines()} == {0, 2}
    assert (outcome.code == 1) == ("broker 1" in outcome.err)  # it is known until its session ends


# -- elect-leader --------------------------------------------------------------------------------------------


@pytest.fixture
def moved(on_three: Run, three) -> str:
    """A topic whose partitions 0 and 1 prefer broker 2, and which broker 2 does not lead after a kill."""
    klog = on_three
    name = f"elections-{next(_numbers)}"
    assert klog("topics", "create", name, "--replica-assignment", "2:0,2:1,0:1").code == 0
    three.kill(2)
    eventually(lambda: [each["leader"] for each in partitions(klog, name)] == [0, 1, 0])
    three.restore()
    eventually(lambda: all(len(each["isr"]) == 2 for each in partitions(klog, name)))
    return name


def partitions(klog: Run, name: str) -> list[dict]:
    return json.loads(klog("topics", "describe", name, "--json").out)["partitions"]


def leaders(klog: Run, name: str) -> list[int]:
    return [each["leader"] for each in partitions(klog, name)]


def test_preferred_leaders_lead_again(on_three: Run, moved: str) -> None:
    klog = on_three
    done = klog("elect-leader", "--preferred", f"{moved}:1,2")
    assert done.code == 0, done.err
    assert f"{moved}-1: has a new leader" in done.err
    assert f"{moved}-2: nothing to do" in done.err
    eventually(lambda: leaders(klog, moved) == [0, 2, 0])
    assert f"{moved}-0: has a new leader" in klog("elect-leader", "--preferred", "--all").err
    eventually(lambda: leaders(klog, moved) == [2, 2, 0])
    # Partitions of earlier tests may follow, as soon as their preferred replica has caught up.
    eventually(lambda: "nothing to do" in klog("elect-leader", "--preferred", "--all").err)


@pytest.mark.kafka
def test_the_lines_are_those_of_kafkas_election_tool(
    on_three: Run, three, moved: str, tools: ToolServer, tmp_path: Path
) -> None:
    def both(*words: object) -> str:
        options = ("--bootstrap-server", three.bootstrap, "--election-type", "preferred", *words)
        ours, theirs = on_three("elect-leader", *options), tools.run(ELECTION, *options)
        assert ours.code == theirs.status, theirs.err
        again = on_three("elect-leader", *options)
        assert _parts(again.out) == _parts(theirs.out)
        return ours.out

    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": moved, "partition": number} for number in (0, 2)]}))
    lines = both("--path-to-json-file", file).splitlines()
    assert lines == [
        f"Successfully completed leader election (PREFERRED) for partitions {moved}-0",
        f"Valid replica already elected for partitions {moved}-2",
    ]
    assert both("--topic", moved, "--partition", 2).startswith("Valid replica already elected")
    both("--topic", "none-of-these", "--partition", 0)
    # Partitions of earlier tests that catch up between the two calls would be elected by the second one.
    eventually(lambda: on_three("topics", "describe", "--under-replicated-partitions").out == "")
    assert both("--all-topic-partitions").startswith("Successfully completed leader election (PREFERRED)")


def _parts(text: str) -> list[list[str]]:
    """The words of each line in order: Kafka's tool has partitions in that of hash maps."""
    return sorted(sorted(line.replace(",", "").split()) for line in text.splitlines())


def test_an_unclean_election_brings_back_a_partition_and_asks_first(on_three: Run, three) -> None:
    klog = on_three
    name = f"elections-{next(_numbers)}"
    assert klog("topics", "create", name, "--replica-assignment", "1:2").code == 0
    assert klog("elect-leader", "--unclean", name).code == 0  # there is nothing to do
    three.kill(2)
    eventually(lambda: partitions(klog, name)[0]["isr"] == [1])
    three.kill(1)
    eventually(lambda: leaders(klog, name) == [None])
    three.start(2)
    eventually(
        lambda: [each["id"] for each in json.loads(klog("brokers", "list", "-o", "json").out)] == [0, 2]
    )
    keeps_to_the_rule(klog, "elect-leader", ["--unclean", name], lambda: leaders(klog, name))
    eventually(lambda: leaders(klog, name) == [2])


def test_ways_to_name_partitions_exclude_each_other(klog: Run, topic: str) -> None:
    for words in (
        ("--preferred",),
        ("--all",),
        ("--preferred", "--all", topic),
        ("--preferred", "--unclean", "--all"),
        ("--election-type", "other", "--all-topic-partitions"),
        ("--election-type", "preferred", "--topic", topic),
    ):
        assert klog("elect-leader", *words).code == 2, words
    assert klog("elect-leader", "--preferred", "--path-to-json-file", "no-such-file").code == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "no",
        "[]",
        '{"partitions": 3}',
        '{"partitions": [{"topic": "a"}]}',
        '{"partitions": [[]]}',
        '{"partitions": [{"topic": "a", "partition": "0"}]}',
        '{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}',
    ],
)
def test_a_file_that_names_no_partitions_is_an_error(wrong: str) -> None:
    with pytest.raises(FormatError):
        parse_json(wrong, "f")


def test_errors_have_the_names_of_javas_classes() -> None:
    names = {
        ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
        ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "PreferredLeaderNotAvailableException",
        ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    }
    for code, name in names.items():
        assert java_class(code) == f"org.apache.kafka.common.errors.{name}"
