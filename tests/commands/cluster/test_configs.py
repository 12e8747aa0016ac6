"""`klog configs` on real clusters."""

from __future__ import annotations

import json

import pytest

from klog.commands.cluster.assignments import parse_pairs, split_list, without_brackets
from klog.formats.errors import UsageError
from tests.waiting import eventually


def described(klog, *options):
    outcome = klog("configs", "describe", *options, "--json")
    assert outcome.code == 0, outcome.err
    return {entry["name"]: entry for entry in map(json.loads, outcome.out.splitlines())}


def values(klog, topic):
    return {name: entry["value"] for name, entry in described(klog, "--topic", topic).items()}


def await_values(klog, topic, **expected):
    """Wait for values: a KRaft broker learns of a change after the answer to it."""
    wanted = {name.replace("_", "."): value for name, value in expected.items()}
    eventually(lambda: values(klog, topic) == wanted)


def test_only_configs_that_are_set_are_shown_without_all(klog, topic):
    assert described(klog, "--topic", topic) == {}
    klog("configs", "alter", "--topic", topic, "--set", "retention.ms=1000")
    await_values(klog, topic, retention_ms="1000")
    everything = described(klog, "--topic", topic, "--all")
    assert everything["cleanup.policy"]["value"] == "delete"
    assert everything["cleanup.policy"]["source"] == "DEFAULT_CONFIG"


def test_a_value_is_shown_with_the_values_it_replaces(klog, topic):
    klog("configs", "alter", "--topic", topic, "--set", "cleanup.policy=compact")
    await_values(klog, topic, cleanup_policy="compact")
    entry = described(klog, "--topic", topic)["cleanup.policy"]
    assert (entry["value"], entry["source"]) == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert entry["synonyms"] == [
        {"name": "cleanup.policy", "value": "compact", "source": "DYNAMIC_TOPIC_CONFIG"},
        {"name": "log.cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG"},
    ]
    table = klog("configs", "describe", "--topic", topic).out.splitlines()
    assert table[1].split(maxsplit=3) == [
        "cleanup.policy", "compact", "DYNAMIC_TOPIC_CONFIG", "log.cleanup.policy=delete (DEFAULT_CONFIG)",
    ]  # fmt: skip


def test_lists_are_appended_to_and_subtracted_from(klog, topic):
    klog("configs", "alter", "--topic", topic, "--append", "cleanup.policy=compact")
    await_values(klog, topic, cleanup_policy="delete,compact")
    klog("configs", "alter", "--topic", topic, "--subtract", "cleanup.policy=delete")
    await_values(klog, topic, cleanup_policy="compact")


def test_a_deleted_config_returns_to_its_default(klog, topic):
    klog("configs", "alter", "--topic", topic, "--set", "retention.ms=1", "--set", "max.message.bytes=2000")
    assert klog("configs", "alter", "--topic", topic, "--delete", "retention.ms").code == 0
    await_values(klog, topic, max_message_bytes="2000")


def test_a_bad_change_among_good_ones_changes_nothing(klog, topic):
    refused = klog("configs", "alter", "--topic", topic, "--set", "retention.ms=1", "--set", "no.such=1")
    assert refused.code == 1
    assert "INVALID_CONFIG" in refused.err
    assert "no.such" in refused.err
    assert described(klog, "--topic", topic) == {}


def test_validating_changes_nothing(klog, topic):
    assert klog("configs", "alter", "--topic", topic, "--set", "retention.ms=1", "--validate-only").code == 0
    assert described(klog, "--topic", topic) == {}


def test_defaults_of_all_brokers_are_set_seen_and_deleted(klog):
    try:
        assert klog("configs", "alter", "--broker-defaults", "--set", "log.cleaner.threads=2").code == 0
        # A broker with ZooKeeper learns of it a moment later.
        eventually(lambda: "log.cleaner.threads" in described(klog, "--broker-defaults"))
        entry = described(klog, "--broker-defaults")["log.cleaner.threads"]
        assert (entry["value"], entry["source"]) == ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    finally:
        assert klog("configs", "alter", "--broker-defaults", "--delete", "log.cleaner.threads").code == 0
    eventually(lambda: "log.cleaner.threads" not in described(klog, "--broker-defaults"))


def test_one_broker_is_configured_by_its_id(klog, topic):
    broker = json.loads(klog("topics", "describe", topic, "--json").out)["partitions"][0]["leader"]
    try:
        assert klog("configs", "alter", "--broker", broker, "--set", "log.cleaner.threads=2").code == 0
        eventually(lambda: "log.cleaner.threads" in described(klog, "--broker", broker))
        entry = described(klog, "--broker", broker)["log.cleaner.threads"]
        assert entry["source"] == "DYNAMIC_BROKER_CONFIG"
    finally:
        klog("configs", "alter", "--broker", broker, "--delete", "log.cleaner.threads")
    everything = described(klog, "--broker", broker, "--all")
    assert everything["log.dirs"]["isReadOnly"] is True


def test_configs_of_a_missing_topic_or_broker_are_an_error(klog):
    assert "topic never-made does not exist" in klog("configs", "describe", "--topic", "never-made").err
    missing = klog("configs", "describe", "--broker", "77")
    assert missing.code == 1
    assert "there is no broker 77" in missing.err


def test_command_lines_of_kafka_configs_work_as_they_are(klog, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = klog(
        "configs", "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],retention.ms=5"
    )
    assert added.code == 0, added.err
    await_values(klog, topic, cleanup_policy="compact,delete", retention_ms="5")
    assert described(klog, *entity)["cleanup.policy"]["value"] == "compact,delete"
    assert klog("configs", "--alter", *entity, "--delete-config", "cleanup.policy,retention.ms").code == 0
    await_values(klog, topic)
    assert klog("configs", "--describe", *entity).out == f"Dynamic configs for topic {topic} are:\n"
    assert klog("configs", "--describe", "--entity-type", "brokers", "--entity-default").code == 0


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--topic", "a", "--broker", "1"),
        ("--entity-type", "brokers", "--entity-name", "0", "--entity-default"),
        ("--entity-type", "topics", "--entity-default"),
        ("--entity-type", "users", "--entity-name", "a"),
    ],
)
def test_exactly_one_entity_must_be_named(klog, options):
    assert klog("configs", "describe", "--all", *options).code == 2


@pytest.mark.parametrize("options", [(), ("--set", "a"), ("--set", "a=1", "--delete", "a")])
def test_invalid_changes_are_wrong_usage(klog, options):
    assert klog("configs", "alter", "--topic", "a", *options).code == 2


def test_lists_of_changes_are_parsed_as_by_kafka() -> None:
    assert split_list("a=1,b=[2,3],c=") == ["a=1", "b=[2,3]", "c="]
    assert parse_pairs("--set", ["a=1=2", "b="]) == {"a": "1=2", "b": ""}
    assert without_brackets("[2,3]") == "2,3"
    with pytest.raises(UsageError):
        parse_pairs("--set", ["=1"])


def test_command_lines_of_kafka_configs_print_what_kafka_prints(klog, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    altered = klog(
        "configs", "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],retention.ms=7"
    )
    assert (altered.code, altered.out) == (0, f"Completed updating config for topic {topic}.\n")
    await_values(klog, topic, cleanup_policy="compact,delete", retention_ms="7")
    lines = klog("configs", "--describe", *entity).out.splitlines()
    assert lines[0] == f"Dynamic configs for topic {topic} are:"
    value = "cleanup.policy=compact,delete"
    assert lines[1].startswith(f"  {value} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{value}, ")
    assert lines[2].startswith(
        "  retention.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7"
    )
    assert len(lines) == 3
    everything = klog("configs", "--describe", "--topic", topic, "--all").out.splitlines()
    assert everything[0] == f"All configs for topic {topic} are:"
    assert len(everything) > 30
    assert (
        klog("configs", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy", "--force").code
        == 0
    )
    eventually(lambda: klog("configs", "--describe", *entity).out.count("\n") == 1)


def test_a_config_that_is_not_set_cannot_be_deleted_as_with_kafka_configs(klog, topic):
    refused = klog("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms")
    assert (refused.code, refused.out) == (1, "")
    assert "retention.ms cannot be deleted" in refused.err
    assert klog("configs", "alter", "--topic", topic, "--delete", "retention.ms").code == 0


def test_configs_of_a_file_are_set_and_the_command_line_wins(klog, topic, tmp_path):
    file = tmp_path / "topic.properties"
    file.write_text("# keep little\nretention.ms=1000\ncleanup.policy = compact,delete\n")
    alter = ("configs", "--alter", "--topic", topic, "--add-config-file", file)
    assert klog(*alter, "--add-config", "retention.ms=2000").code == 0
    await_values(klog, topic, cleanup_policy="compact,delete", retention_ms="2000")
    assert klog("configs", "--alter", "--topic", topic, "--add-config-file", tmp_path / "none").code == 1


def test_without_a_name_all_entities_of_a_type_are_described(klog, topic):
    klog("configs", "alter", "--topic", topic, "--set", "retention.ms=7")
    await_values(klog, topic, retention_ms="7")
    lines = klog("configs", "--describe", "--entity-type", "topics").out.splitlines()
    assert f"Dynamic configs for topic {topic} are:" in lines
    of_json = klog("configs", "describe", "--entity-type", "topics", "--json").out.splitlines()
    found = [json.loads(line) for line in of_json]
    assert (topic, "retention.ms") in {(each["entityName"], each["name"]) for each in found}
    assert topic in klog("configs", "describe", "--entity-type", "topics").out
    brokers = klog("configs", "--describe", "--entity-type", "brokers").out.splitlines()
    assert brokers[0].startswith("Dynamic configs for broker ")
    assert "Default configs for brokers in the cluster are:" in brokers


def test_levels_of_loggers_are_shown_and_changed(klog, topic):
    broker = json.loads(klog("topics", "describe", topic, "--json").out)["partitions"][0]["leader"]
    shown = klog("configs", "--describe", "--broker-logger", broker).out.splitlines()
    assert shown[0] == f"Dynamic configs for broker-logger {broker} are:"
    name = shown[1].strip().partition("=")[0]
    entity = ("--entity-type", "broker-loggers", "--entity-name", broker)
    altered = klog("configs", "--alter", *entity, "--add-config", f"{name}=ERROR")
    assert (altered.code, altered.out) == (0, f"Completed updating config for broker-logger {broker}.\n")
    assert f"  {name}=ERROR sensitive=false" in klog("configs", "--describe", *entity).out
    assert klog("configs", "--alter", *entity, "--add-config", f"{name}=INFO").code == 0


KRAFT_CONFIGS = [
    ("--group", "groups", "DYNAMIC_GROUP_CONFIG", "consumer.session.timeout.ms", "46000"),
    ("--client-metrics", "client-metrics", "DYNAMIC_CLIENT_METRICS_CONFIG", "interval.ms", "60000"),
]


@pytest.mark.parametrize("cluster", [pytest.param("kafka4", marks=pytest.mark.kafka)], indirect=True)
@pytest.mark.parametrize(("option", "kind", "source", "key", "value"), KRAFT_CONFIGS)
def test_configs_of_groups_and_client_metrics_are_changed_and_listed(
    klog, cluster, kafka4, option, kind, source, key, value
):
    assert klog("configs", "alter", option, "held", "--set", f"{key}={value}").code == 0
    eventually(lambda: key in described(klog, option, "held"))
    entry = described(klog, option, "held")[key]
    assert (entry["entityType"], entry["entityName"]) == (kind, "held")
    assert (entry["value"], entry["source"]) == (value, source)
    assert set(described(klog, "--entity-type", kind, "--entity-name", "held")) == {key}
    assert key in described(klog, option, "held", "--all")
    listed = klog("configs", "describe", "--entity-type", kind, "--json").out.splitlines()
    assert "held" in {json.loads(line)["entityName"] for line in listed}
    words = ("--describe", "--entity-type", kind, "--entity-name", "held", "--bootstrap-server", cluster)
    theirs = kafka4.java("kafka.admin.ConfigCommand", *words)
    assert klog("configs", *words).out == theirs.stdout.decode()
    words = ("--alter", "--entity-type", kind, "--entity-name", "held", "--delete-config", key)
    done = klog("configs", *words)
    assert (done.code, done.out) == (0, f"Completed updating config for {kind[:-1]} held.\n"), done.err
    eventually(lambda: described(klog, option, "held") == {})


@pytest.mark.parametrize("cluster", ["klog"], indirect=True)
def test_klogs_own_brokers_have_configs_of_groups_but_not_of_client_metrics(klog):
    key = "consumer.session.timeout.ms"
    assert klog("configs", "alter", "--group", "held", "--set", f"{key}=46000").code == 0
    assert described(klog, "--group", "held")[key]["value"] == "46000"
    assert ("held", key) in {
        (each["entityName"], each["name"])
        for each in map(
            json.loads, klog("configs", "describe", "--entity-type", "groups", "--json").out.splitlines()
        )
    }
    assert klog("configs", "alter", "--group", "held", "--delete", key).code == 0
    for action in (("describe",), ("alter", "--set", "interval.ms=60000")):
        refused = klog("configs", *action, "--client-metrics", "held")
        assert (refused.code, refused.out) == (1, "")
        assert "configs of client metrics held: INVALID_REQUEST" in refused.err
        assert "with KRaft only" in refused.err


@pytest.mark.parametrize("cluster", [pytest.param("kafka3", marks=pytest.mark.kafka)], indirect=True)
@pytest.mark.parametrize("option", ["--group", "--client-metrics"])
def test_a_cluster_with_zookeeper_refuses_configs_of_groups_and_client_metrics(klog, option):
    refused = klog("configs", "describe", option, "held")
    assert (refused.code, refused.out) == (1, "")
    assert "with KRaft only" in refused.err
    refused = klog("configs", "describe", "--entity-type", f"{option[2:].removesuffix('s')}s")
    assert (refused.code, refused.out) == (1, "")
    assert "the cluster does not list configs of kind" in refused.err
    refused = klog("configs", "alter", option, "held", "--set", "interval.ms=60000")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("--entity-type", "users"), ("--client", "c"), ("--ip-defaults",), ("--user", "u")]
)
def test_the_own_form_of_the_command_leaves_quotas_to_others(klog, words):
    for action in (("describe",), ("alter", "--set", "a=b")):
        refused = klog("configs", *action, *words)
        assert (refused.code, refused.out) == (2, "")
        assert "quotas and SCRAM" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ip", "10.0.0.1", "--user", "u"), "neither a user nor a client id"),
        (("--zookeeper", "z:2181", "--entity-type", "users"), "talks to brokers"),
        (("--entity-type", "groups", "--entity-default"), "stands for all brokers"),
        (("--group", "g", "--client-metrics", "m"), "more than one"),
        (("--entity-type", "pets"), "is unknown"),
        (("--entity-name", "t"), "missing --entity-type"),
        (("--entity-type", "topics", "--entity-default"), "stands for all brokers"),
        (("--zookeeper", "z:2181", "--entity-type", "topics"), "talks to brokers"),
        (("--topic", "t", "--broker", "0"), "more than one"),
    ],
)
def test_entities_that_klog_does_not_have_are_refused_clearly(klog, words, said):
    refused = klog("configs", "--describe", *words)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err


def test_a_change_needs_the_name_of_an_entity(klog):
    refused = klog("configs", "--alter", "--entity-type", "topics", "--add-config", "a=b")
    assert refused.code == 2
    assert "needs an --entity-name" in refused.err


def test_documentation_is_shown_on_request(klog, topic):
    found = described(klog, "--topic", topic, "--all", "--doc")
    assert all(len(entry["documentation"]) > 10 for entry in found.values())
    assert "documentation" not in described(klog, "--topic", topic, "--all")["retention.ms"]
    lines = klog("configs", "describe", "--topic", topic, "--all", "--documentation").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("retention.ms = "))
    assert lines[at + 1].startswith("    ")
    assert lines[at + 1].split()[:3] == found["retention.ms"]["documentation"].split()[:3]
