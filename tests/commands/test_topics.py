"""`klog topics` on real clusters."""

from __future__ import annotations

import json

import pytest

from klog.admin.topics import parse_assignment
from klog.formats.errors import UsageError


def described(klog, name):
    outcome = klog("topics", "describe", name, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


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
    assert topic not in klog("topics", "list").out.split()


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
    assert klog("topics", *at, "--create", "--topic", "kafkas-way", "--partitions", 2).code == 0
    assert klog("topics", "--alter", "--topic", "kafkas-way", "--partitions", 3, *at).code == 0
    assert "kafkas-way" in klog("topics", "--list", *at).out
    assert klog("topics", "--describe", "--topic", "kafkas-way", *at).out.count("\n") == 5
    assert klog("topics", "--delete", "--topic", "kafkas-way", "--yes", *at).code == 0


def test_assignments_are_parsed_as_by_kafka() -> None:
    assert parse_assignment("0:1,1:2") == {0: [0, 1], 1: [1, 2]}
    with pytest.raises(UsageError):
        parse_assignment("0:one")
