"""`klog topics` on real clusters."""

from __future__ import annotations

import itertools
import json

import pytest

from klog.admin.topic_selection import PartitionConditions, select_partitions
from klog.admin.topics import Partition, Topic, parse_assignment
from klog.commands.kafka_tools.topics import in_hash_map_order
from klog.formats.errors import UsageError
from tests.waiting import eventually

_numbers = itertools.count()


def described(klog, name):
    outcome = klog("topics", "describe", name, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def await_deletion(klog, *names):
    """Wait until topics are gone: a KRaft broker learns of a deletion after the answer to it."""
    eventually(lambda: set(names).isdisjoint(klog("topics", "list").out.split()))


def test_a_created_topic_has_the_partitions_and_configs_asked_for(klog):
    created = klog("topics", "create", "made", "--partitions", 3, "--config", "retention.ms=1000")
    assert (created.code, created.out) == (0, "")
    found = described(klog, "made")
    assert (found["partitionCount"], found["replicationFactor"]) == (3, 1)
    assert found["configs"] == {"retention.ms": "1000"}
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1, 2]
    assert all(partition["leader"] == partition["isr"][0] for partition in found["partitions"])
    assert len(found["topicId"]) == 22


def test_a_created_topic_can_be_written_to_at_once(klog):
    klog("topics", "create", "at-once")
    assert klog("produce", "at-once", "x").code == 0


def test_partitions_and_replicas_default_to_the_clusters(klog):
    klog("topics", "create", "default-size")
    assert described(klog, "default-size")["partitionCount"] == 1


def test_an_assignment_decides_who_leads(klog, topic):
    broker = described(klog, topic)["partitions"][0]["leader"]
    klog("topics", "create", "assigned", "--replica-assignment", f"{broker},{broker}")
    assert [part["replicas"] for part in described(klog, "assigned")["partitions"]] == [[broker], [broker]]
    refused = klog("topics", "create", "assigned-2", "--replica-assignment", f"{broker}:{broker}")
    assert refused.code == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in refused.err


def test_an_existing_topic_is_an_error_without_if_not_exists(klog, topic):
    again = klog("topics", "create", topic)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert klog("topics", "create", topic, "--if-not-exists").code == 0


def test_a_refused_topic_does_not_stop_the_others(klog, topic):
    outcome = klog("topics", "create", topic, "other-than-that")
    assert outcome.code == 1
    assert "other-than-that: created" in outcome.err
    assert described(klog, "other-than-that")["topic"] == "other-than-that"


def test_validating_creates_nothing(klog):
    assert klog("topics", "create", "only-asked", "--validate-only").code == 0
    assert "only-asked" not in klog("topics", "list").out.split()


def test_partitions_can_be_added_but_not_removed(klog, topic):
    assert klog("topics", "add-partitions", topic, "--partitions", 3).code == 0
    assert described(klog, topic)["partitionCount"] == 3
    fewer = klog("topics", "add-partitions", topic, "--partitions", 2)
    assert fewer.code == 1
    assert "INVALID_PARTITIONS" in fewer.err


def test_new_partitions_can_be_assigned(klog, topic):
    broker = described(klog, topic)["partitions"][0]["leader"]
    grown = klog(
        "topics", "add-partitions", topic, "--partitions", 3, "--replica-assignment", f"{broker},{broker}"
    )
    assert grown.code == 0, grown.err
    assert described(klog, topic)["partitionCount"] == 3


def test_deletion_needs_a_yes(klog, topic):
    refused = klog("topics", "delete", topic)
    assert refused.code == 1
    assert topic in klog("topics", "list").out.split()
    assert klog("topics", "delete", topic, "--yes").code == 0
    await_deletion(klog, topic)


def test_a_missing_topic_is_an_error_without_if_exists(klog):
    assert klog("topics", "delete", "never-made", "--yes").code == 1
    assert klog("topics", "delete", "never-made", "--yes", "--if-exists").code == 0
    missing = klog("topics", "describe", "never-made")
    assert missing.code == 1
    assert "topic never-made does not exist" in missing.err


def test_the_list_has_only_names_without_a_terminal(klog, topic):
    assert topic in klog("topics", "list").out.split("\n")
    rows = [json.loads(line) for line in klog("topics", "list", "--json").out.splitlines()]
    assert {"topic": topic, "partitions": 1, "replicas": 1} in rows


def test_healthy_partitions_are_neither_under_replicated_nor_unavailable(klog, topic):
    assert klog("topics", "describe", topic, "--under-replicated-partitions").out == ""
    assert klog("topics", "describe", topic, "--unavailable-partitions").out == ""


def test_the_table_shows_every_partition(klog, topic):
    lines = klog("topics", "describe", topic).out.splitlines()
    assert lines[0].startswith(f"{topic}  id ")
    assert lines[1].split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE"]
    assert lines[2].split()[0] == "0"


def test_command_lines_of_kafka_topics_work_as_they_are(klog, cluster):
    at = ("--bootstrap-server", cluster)
    created = klog("topics", *at, "--create", "--topic", "kafkas-way", "--partitions", 2)
    assert (created.code, created.out, created.err) == (0, "Created topic kafkas-way.\n", "")
    altered = klog("topics", "--alter", "--topic", "kafkas-way", "--partitions", 3, *at)
    assert (altered.code, altered.out) == (0, "")
    assert "kafkas-way" in klog("topics", "--list", *at).out.split()
    lines = klog("topics", "--describe", "--topic", "kafkas-way", *at).out.splitlines()
    assert len(lines) == 4
    heading = dict(part.split(": ", 1) for part in lines[0].split("\t"))
    assert list(heading) == ["Topic", "TopicId", "PartitionCount", "ReplicationFactor", "Configs"]
    assert (heading["Topic"], heading["PartitionCount"], heading["ReplicationFactor"]) == (
        "kafkas-way",
        "3",
        "1",
    )
    for number, line in enumerate(lines[1:]):
        found = dict(part.split(": ", 1) for part in line.split("\t")[1:])
        assert list(found) == ["Topic", "Partition", "Leader", "Replicas", "Isr", "Elr", "LastKnownElr"]
        assert found["Partition"] == str(number)
        assert found["Leader"] == found["Replicas"] == found["Isr"]
    deleted = klog("topics", "--delete", "--topic", "kafkas-way", *at)  # Kafka's tool asks nobody
    assert (deleted.code, deleted.out) == (0, "")
    eventually(lambda: "kafkas-way" not in klog("topics", "--list", *at).out.split())


@pytest.fixture
def three(klog) -> str:
    """A new prefix P with topics `P.one`, `P-one` with a config, and `P.two` with two partitions."""
    prefix = f"p{next(_numbers)}x"
    assert klog("topics", "create", f"{prefix}.one").code == 0
    assert klog("topics", "create", f"{prefix}-one", "--config", "retention.ms=5").code == 0
    assert klog("topics", "create", f"{prefix}.two", "--partitions", 2).code == 0
    return prefix


def names_in(outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    return outcome.out.split()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("P.one", ["P-one", "P.one"]),
        (r"P\.one", ["P.one"]),
        ("P.one,P.two", ["P-one", "P.one", "P.two"]),
        (" 'P.t.*' ", ["P.two"]),
        ("P.on", []),
    ],
)
def test_a_topic_option_is_a_pattern_for_the_whole_name(klog, three, pattern, found):
    pattern, found = pattern.replace("P", three), [name.replace("P", three) for name in found]
    assert names_in(klog("topics", "list", "--topic", pattern)) == found
    assert names_in(klog("topics", "--list", "--topic", pattern)) == found


def test_patterns_work_wherever_topics_are_named(klog, three):
    pattern = f"{three}.one"
    described = klog("topics", "describe", "--topic", pattern, "--json")
    assert [json.loads(line)["topic"] for line in described.out.splitlines()] == [
        f"{three}-one",
        f"{three}.one",
    ]
    assert klog("topics", "add-partitions", "--topic", pattern, "--partitions", 2).code == 0
    assert "PartitionCount: 2" in klog("topics", "--describe", "--topic", f"{three}-one").out
    assert klog("topics", "delete", "--topic", pattern).code == 1  # without a terminal it needs --yes
    assert klog("topics", "delete", "--topic", pattern, "--yes").code == 0
    await_deletion(klog, f"{three}-one", f"{three}.one")
    assert names_in(klog("topics", "list", "--topic", f"{three}.*")) == [f"{three}.two"]


def test_a_pattern_without_a_topic_is_an_error_without_if_exists(klog):
    for action in (("describe",), ("delete", "--yes"), ("add-partitions", "--partitions", 2)):
        missing = klog("topics", *action, "--topic", "no-such-.*")
        assert missing.code == 1
        assert "no-such-.* does not exist" in missing.err
        assert klog("topics", *action, "--topic", "no-such-.*", "--if-exists").code == 0
    assert klog("topics", "describe", "--topic", "(").code == 2
    assert klog("topics", "describe", "no-such", "--if-exists").code == 0


def test_only_topics_with_configs_of_their_own_are_shown_on_request(klog, three):
    found = klog("topics", "describe", "--topic", f"{three}.*", "--topics-with-overrides", "--json")
    assert [json.loads(line)["topic"] for line in found.out.splitlines()] == [f"{three}-one"]
    as_kafka = klog("topics", "--describe", "--topic", f"{three}-.*", "--topics-with-overrides")
    assert as_kafka.out.count("\n") == 1
    assert "retention.ms=5" in as_kafka.out
    assert klog("topics", "--describe", "--topics-with-overrides", "--at-min-isr-partitions").code == 2


def test_partitions_are_compared_with_min_insync_replicas(klog):
    klog("topics", "create", "wants-two", "--config", "min.insync.replicas=2")
    try:
        klog("topics", "create", "wants-one")
        both = ("--topic", "wants-.*", "--json")
        under = klog("topics", "describe", "--under-min-isr-partitions", *both)
        assert [json.loads(line)["topic"] for line in under.out.splitlines()] == ["wants-two"]
        at = klog("topics", "describe", "--at-min-isr-partitions", *both)
        assert [json.loads(line)["topic"] for line in at.out.splitlines()] == ["wants-one"]
        lines = klog(
            "topics", "--describe", "--under-min-isr-partitions", "--topic", "wants-.*"
        ).out.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("\tTopic: wants-two\tPartition: 0\t")
    finally:  # the cluster is not healthy with it
        klog("topics", "delete", "wants-two", "--yes")
        await_deletion(klog, "wants-two")


def test_a_topic_is_described_by_its_id(klog, topic):
    topic_id = described(klog, topic)["topicId"]
    found = klog("topics", "--describe", "--topic-id", topic_id)
    assert found.out.startswith(f"Topic: {topic}\tTopicId: {topic_id}\t")
    assert klog("topics", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ").code == 1
    assert klog("topics", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--if-exists").code == 0


def test_new_partitions_are_assigned_as_kafkas_tool_wants_it(klog, topic):
    broker = described(klog, topic)["partitions"][0]["leader"]
    # Kafka's tool takes the brokers of all partitions, klog's command those of the new ones.
    every = f"{broker},{broker},{broker}"
    grown = klog("topics", "--alter", "--topic", topic, "--partitions", 3, "--replica-assignment", every)
    assert grown.code == 0, grown.err
    assert described(klog, topic)["partitionCount"] == 3


def test_configs_of_existing_topics_are_changed_elsewhere(klog, topic):
    refused = klog("topics", "--alter", "--topic", topic, "--partitions", 3, "--config", "a=b")
    assert refused.code == 2
    assert "klog topics alter TOPIC --set KEY=VALUE" in refused.err


@pytest.mark.parametrize(
    "line",
    [
        ("topics", "--version"),
        ("topics", "--bootstrap-server", "x:1", "--version"),
        ("topics", "list", "--version"),
        ("configs", "--version"),
        ("produce", "--version"),
        ("consume", "--version"),
        ("dump-segment", "--version"),
    ],
)
def test_every_tool_tells_its_version(klog, line):
    assert klog(*line) == klog("--version")


def test_partitions_without_a_living_leader_are_unavailable() -> None:
    topic = Topic(
        "t", None, False, (Partition(0, 1, 0, (1, 2), (1,), ()), Partition(1, -1, 0, (2,), (2,), ()))
    )
    unavailable = PartitionConditions(unavailable=True)
    shown = [
        [part.partition for each in select_partitions([topic], unavailable, live) for part in each.partitions]
        for live in ((1,), (2,))
    ]
    assert shown == [[1], [0, 1]]
    (under,) = select_partitions([topic], PartitionConditions(under_replicated=True), ())
    assert [part.partition for part in under.partitions] == [0]
    (leaderless,) = select_partitions([topic], PartitionConditions(under_min_isr=True), ())
    assert [part.partition for part in leaderless.partitions] == [1]


def test_configs_come_in_the_order_of_javas_hash_map() -> None:
    # What java.util.HashMap printed for these keys.
    assert in_hash_map_order(["a", "b", "c"]) == ["a", "b", "c"]
    names = ["segment.bytes", "retention.ms", "cleanup.policy"]
    assert in_hash_map_order(names) == ["cleanup.policy", "segment.bytes", "retention.ms"]


def test_assignments_are_parsed_as_by_kafka() -> None:
    assert parse_assignment("0:1,1:2") == {0: [0, 1], 1: [1, 2]}
    with pytest.raises(UsageError):
        parse_assignment("0:one")


def as_it_is(klog, topic):
    """How many partitions a topic has, and its retention if that is set."""
    found = json.loads(klog("topics", "describe", topic, "-o", "json").out)
    found = found[0] if isinstance(found, list) else found
    configs = klog("configs", "describe", topic, "--json").out.splitlines()
    set_ = {each["name"]: each["value"] for each in map(json.loads, configs)}
    return len(found["partitions"]), set_.get("retention.ms")


def test_topics_are_altered_by_name_and_first_tried(klog, topic):
    change = ("topics", "alter", topic, "--set", "retention.ms=7777", "--partitions", 3)
    dry = klog(*change, "--dry-run")
    assert (dry.code, dry.err.splitlines()[0]) == (0, f"{topic}: could be changed")
    assert as_it_is(klog, topic) == (1, None)
    done = klog(*change)
    assert (done.code, done.err) == (0, f"{topic}: changed\n")
    eventually(lambda: as_it_is(klog, topic) == (3, "7777"))
    assert klog("topics", "alter", topic, "--delete-config", "retention.ms", "--partitions", 3).code == 0
    eventually(lambda: as_it_is(klog, topic) == (3, None))


def test_if_one_topic_is_refused_no_topic_is_altered(klog, topic):
    other = f"{topic}-other"
    assert klog("topics", "create", other, "--partitions", 3).code == 0
    done = klog(
        "topics", "alter", topic, other, "--set", "retention.ms=7777", "--partitions", 2, "-o", "json"
    )
    assert done.code == 1
    found = {each["topic"]: each for each in json.loads(done.out)}
    assert "INVALID_PARTITIONS" in found[other]["error"]
    assert found[topic]["result"] == "not changed, because another topic was refused"
    assert (as_it_is(klog, topic), as_it_is(klog, other)) == ((1, None), (3, None))
    assert klog("topics", "alter", topic).code == 2
    refused = klog("topics", "alter", topic, "--set", "retention.ms=soon")
    assert (refused.code, "retention.ms" in refused.err) == (1, True)
