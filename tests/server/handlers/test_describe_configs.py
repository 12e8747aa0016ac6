"""DescribeConfigs tells values, sources, synonyms and types as Kafka does (KIP-226, KIP-569)."""

from __future__ import annotations

import logging

import pytest

from klog.config.documentation import broker_documentation, topic_documentation
from klog.metadata.configs import write_config
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import part_of

DESCRIBE = ApiKey.DESCRIBE_CONFIGS
TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16
OF_TOPIC, OF_BROKER, OF_CLUSTER, STATIC, DEFAULT, OF_LOGGER = 1, 2, 3, 4, 5, 6


def describe(cluster, *resources, keys=None, synonyms=True, documentation=False, version=4):
    return cluster.ask(
        DESCRIBE,
        version,
        resources=tuple(
            part_of(
                DESCRIBE,
                version,
                "DescribeConfigsResource",
                resource_type=kind,
                resource_name=name,
                configuration_keys=keys,
            )
            for kind, name in resources
        ),
        include_synonyms=synonyms,
        include_documentation=documentation,
    ).results


def configs(cluster, kind, name, **options):
    (result,) = describe(cluster, (kind, name), **options)
    assert result.error_code == ErrorCode.NONE
    return {each.name: each for each in result.configs}


def told(entry):
    """Value, source, and every synonym with value and source."""
    return entry.value, entry.config_source, [tuple(_synonym(each)) for each in entry.synonyms]


def _synonym(each):
    return each.name, each.value, each.source


@pytest.fixture
def configured() -> AdminCluster:
    """Static, cluster-wide, per-broker and topic configs over each other."""
    cluster = AdminCluster(
        {
            "log.segment.bytes": "1000000",
            "log.retention.hours": "12",
            "num.io.threads": "4",
            "own.plugin": "x",
        }
    )
    cluster.create("t", (1,), configs={"segment.bytes": "500000", "cleanup.policy": "compact,delete"})
    write_config(cluster.store, "brokers/<default>", {"log.segment.bytes": "900000"})
    write_config(cluster.store, "brokers/1", {"log.segment.bytes": "800000", "min.insync.replicas": "2"})
    cluster.config_changes.load()
    return cluster


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_config_has_every_value_that_it_could_have(configured, version) -> None:
    entry = configs(configured, TOPIC, "t", version=version)["segment.bytes"]
    assert told(entry) == (
        "500000",
        OF_TOPIC,
        [
            ("segment.bytes", "500000", OF_TOPIC),
            ("log.segment.bytes", "800000", OF_BROKER),
            ("log.segment.bytes", "900000", OF_CLUSTER),
            ("log.segment.bytes", "1000000", STATIC),
            ("log.segment.bytes", "1073741824", DEFAULT),
        ],
    )


def test_version_0_tells_values_without_their_sources(configured) -> None:
    entry = configs(configured, TOPIC, "t", version=0)["segment.bytes"]
    assert (entry.value, entry.read_only, entry.is_default, entry.is_sensitive) == (
        "500000",
        False,
        False,
        False,
    )


def test_a_topic_config_without_an_override_is_the_brokers(configured) -> None:
    found = configs(configured, TOPIC, "t")
    assert told(found["min.insync.replicas"]) == (
        "2",
        OF_BROKER,
        [("min.insync.replicas", "2", OF_BROKER), ("min.insync.replicas", "1", DEFAULT)],
    )
    assert told(found["flush.ms"]) == ("9223372036854775807", DEFAULT, [])
    # Hours give the value, but only log.retention.ms itself would be told as its source.
    assert told(found["retention.ms"]) == ("43200000", DEFAULT, [])
    assert told(found["remote.storage.enable"]) == ("false", DEFAULT, [])


def test_types_are_told_from_version_3_on(configured) -> None:
    found = configs(configured, TOPIC, "t", version=3)
    types = {
        "preallocate": 1,
        "compression.type": 2,
        "segment.bytes": 3,
        "segment.ms": 5,
        "min.cleanable.dirty.ratio": 6,
        "cleanup.policy": 7,
    }
    assert {name: found[name].config_type for name in types} == types


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_is_told_to_those_who_ask_for_it(configured, version) -> None:
    of_topic = configs(configured, TOPIC, "t", documentation=True, version=version)
    assert of_topic["segment.bytes"].documentation == topic_documentation()["segment.bytes"]
    assert all(entry.documentation for entry in of_topic.values())
    of_broker = configs(configured, BROKER, "1", documentation=True, version=version)
    assert of_broker["num.io.threads"].documentation == broker_documentation()["num.io.threads"]
    assert of_broker["own.plugin"].documentation is None
    assert all(entry.documentation for name, entry in of_broker.items() if name != "own.plugin")
    of_all = configs(configured, BROKER, "", documentation=True, version=version)
    assert of_all["log.segment.bytes"].documentation == broker_documentation()["log.segment.bytes"]
    assert configs(configured, TOPIC, "t", version=version)["segment.bytes"].documentation is None


def test_synonyms_are_left_out_unless_they_are_asked_for(configured) -> None:
    entry = configs(configured, TOPIC, "t", synonyms=False)["segment.bytes"]
    assert (entry.synonyms, entry.config_source) == ((), OF_TOPIC)


def test_only_the_configs_asked_for_are_told(configured) -> None:
    assert list(configs(configured, TOPIC, "t", keys=("segment.bytes", "no.such"))) == ["segment.bytes"]
    assert len(configs(configured, TOPIC, "t", keys=())) == len(configs(configured, TOPIC, "t")) > 30


def test_a_broker_tells_of_itself_what_is_in_force_and_what_may_change(configured) -> None:
    found = configs(configured, BROKER, "1")
    assert told(found["log.segment.bytes"])[:2] == ("800000", OF_BROKER)
    assert told(found["num.io.threads"]) == (
        "4",
        STATIC,
        [("num.io.threads", "4", STATIC), ("num.io.threads", "8", DEFAULT)],
    )
    assert told(found["log.retention.hours"]) == (
        "12",
        STATIC,
        [("log.retention.hours", "12", STATIC), ("log.retention.hours", "168", DEFAULT)],
    )
    assert told(found["log.retention.ms"]) == (None, DEFAULT, [])
    assert (found["log.segment.bytes"].read_only, found["zookeeper.connect"].read_only) == (False, True)
    assert told(found["node.id"])[:2] == ("1", STATIC)


def test_secrets_and_what_nobody_knows_are_never_told(configured) -> None:
    found = configs(configured, BROKER, "1")
    for name in ("ssl.key.password", "own.plugin"):
        assert (found[name].is_sensitive, found[name].value) == (True, None)
    assert told(found["own.plugin"]) == (None, STATIC, [("own.plugin", None, STATIC)])


def test_the_brokers_defaults_are_only_what_is_set_for_all(configured) -> None:
    found = configs(configured, BROKER, "")
    assert list(found) == ["log.segment.bytes"]
    assert told(found["log.segment.bytes"]) == (
        "900000",
        OF_CLUSTER,
        [("log.segment.bytes", "900000", OF_CLUSTER)],
    )


def test_a_newer_config_of_a_unit_pushes_the_older_ones_out() -> None:
    cluster = AdminCluster({"log.retention.hours": "12"})
    write_config(cluster.store, "brokers/1", {"log.retention.ms": "5000"})
    cluster.config_changes.load()
    found = configs(cluster, BROKER, "1")
    assert found["log.retention.ms"].value == "5000"
    assert found["log.retention.hours"].value == "168"
    cluster.create("t", (1,))
    assert told(configs(cluster, TOPIC, "t")["retention.ms"]) == (
        "5000",
        OF_BROKER,
        [
            ("log.retention.ms", "5000", OF_BROKER),
            ("log.retention.hours", "12", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ],
    )


def test_loggers_are_told_with_their_levels(cluster) -> None:
    logging.getLogger("klog.made.for.tests").setLevel(logging.WARNING)
    entry = configs(cluster, LOGGER, "1")["klog.made.for.tests"]
    assert (entry.value, entry.config_source, entry.read_only) == ("WARN", OF_LOGGER, False)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_told_has_kafkas_error(configured, kind, name, error) -> None:
    refused, fine = describe(configured, (kind, name), (TOPIC, "t"))
    assert (refused.error_code, refused.configs) == (error, ())
    assert (refused.resource_type, refused.resource_name) == (kind, name)
    assert fine.error_code == ErrorCode.NONE


def test_a_type_of_resource_that_there_is_not_spoils_the_request(configured) -> None:
    results = describe(configured, (99, "x"), (TOPIC, "t"))
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2
