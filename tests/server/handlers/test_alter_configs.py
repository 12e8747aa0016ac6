"""AlterConfigs and IncrementalAlterConfigs: what is written, what is refused, what the broker does then."""

from __future__ import annotations

import logging

import pytest

from klog.metadata.configs import change_config, read_config
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import part_of

TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)


def replace(cluster, kind, name, configs, *, version=2, validate_only=False):
    """AlterConfigs on one resource: its error."""
    api = ApiKey.ALTER_CONFIGS
    pairs = configs.items() if isinstance(configs, dict) else configs
    alterable = [part_of(api, version, "AlterableConfig", name=key, value=value) for key, value in pairs]
    return _alter(cluster, api, version, kind, name, alterable, validate_only=validate_only)


def increment(cluster, kind, name, *operations, version=1, validate_only=False):
    """IncrementalAlterConfigs on one resource: its error."""
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    alterable = [
        part_of(api, version, "AlterableConfig", name=key, config_operation=operation, value=value)
        for operation, key, value in operations
    ]
    return _alter(cluster, api, version, kind, name, alterable, validate_only=validate_only)


def _alter(cluster, api, version, kind, name, alterable, *, validate_only):
    resource = part_of(
        api, version, "AlterConfigsResource", resource_type=kind, resource_name=name, configs=tuple(alterable)
    )
    (response,) = cluster.ask(api, version, resources=(resource,), validate_only=validate_only).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response.error_code


@pytest.fixture
def topic(cluster) -> AdminCluster:
    cluster.create("t", (1,), configs={"retention.ms": "1000", "cleanup.policy": "compact"})
    return cluster


@pytest.mark.parametrize("version", range(3))
def test_a_topics_configs_are_replaced_as_a_whole_and_the_broker_hears_of_it(topic, version) -> None:
    assert replace(topic, TOPIC, "t", {"segment.bytes": "2000"}, version=version) == ErrorCode.NONE
    assert read_config(topic.store, "topics/t") == {"segment.bytes": "2000"}
    assert topic.topic_changes == [("t", {"segment.bytes": "2000"})]


@pytest.mark.parametrize("version", range(2))
def test_a_topics_configs_are_changed_one_by_one(topic, version) -> None:
    operations = [
        (SET, "segment.bytes", "2000"),
        (DELETE, "retention.ms", None),
        (APPEND, "cleanup.policy", "delete,compact"),
    ]
    assert increment(topic, TOPIC, "t", *operations, version=version) == ErrorCode.NONE
    assert read_config(topic.store, "topics/t") == {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "2000",
    }
    assert increment(topic, TOPIC, "t", (SUBTRACT, "cleanup.policy", "compact,x")) == ErrorCode.NONE
    assert read_config(topic.store, "topics/t")["cleanup.policy"] == "delete"


def test_what_is_appended_to_a_list_that_is_not_set_joins_its_default(topic) -> None:
    topic.create("u", (1,))
    assert increment(topic, TOPIC, "u", (APPEND, "cleanup.policy", "compact")) == ErrorCode.NONE
    assert read_config(topic.store, "topics/u") == {"cleanup.policy": "delete,compact"}
    throttled = (APPEND, "leader.replication.throttled.replicas", "0:1")
    assert increment(topic, TOPIC, "u", throttled) == ErrorCode.NONE
    assert read_config(topic.store, "topics/u")["leader.replication.throttled.replicas"] == "0:1"


@pytest.mark.parametrize(
    ("text", "kept"),
    [("compact", "delete,compact"), ("compact,,", "delete,compact"), (",", "delete"), ("delete", "delete")],
)
def test_separators_at_the_end_of_what_is_appended_add_nothing(topic, text, kept) -> None:
    topic.create("u", (1,))
    assert increment(topic, TOPIC, "u", (APPEND, "cleanup.policy", text)) == ErrorCode.NONE
    assert read_config(topic.store, "topics/u") == {"cleanup.policy": kept}


@pytest.mark.parametrize(
    ("name", "configs", "error"),
    [
        ("", {"retention.ms": "1"}, ErrorCode.INVALID_REQUEST),
        ("gone", {"retention.ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", {"no.such.config": "1"}, ErrorCode.INVALID_CONFIG),
        ("t", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("t", {"retention.ms": "-2"}, ErrorCode.INVALID_CONFIG),
        ("t", {"cleanup.policy": "burn"}, ErrorCode.INVALID_CONFIG),
        ("t", {"max.compaction.lag.ms": "1", "min.compaction.lag.ms": "2"}, ErrorCode.INVALID_CONFIG),
        ("t", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_topic_cannot_have_is_refused_with_kafkas_error(topic, name, configs, error) -> None:
    assert replace(topic, TOPIC, name, configs) == error
    assert increment(topic, TOPIC, name, *[(SET, *each) for each in configs.items()]) == error
    assert read_config(topic.store, "topics/t") == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert topic.topic_changes == []


def test_a_config_named_twice_is_refused(topic) -> None:
    assert (
        replace(topic, TOPIC, "t", [("retention.ms", "1"), ("retention.ms", "2")])
        == ErrorCode.INVALID_REQUEST
    )
    twice = [(SET, "retention.ms", "1"), (DELETE, "retention.ms", None)]
    assert increment(topic, TOPIC, "t", *twice) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ((APPEND, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        ((SUBTRACT, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        ((APPEND, "no.such.config", "1"), ErrorCode.UNKNOWN_SERVER_ERROR),
        ((9, "retention.ms", "1"), ErrorCode.UNKNOWN_SERVER_ERROR),
        ((APPEND, "cleanup.policy", None), ErrorCode.INVALID_REQUEST),
        ((APPEND, "cleanup.policy", ""), ErrorCode.INVALID_CONFIG),
        ((APPEND, "cleanup.policy", ",compact"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_operation_that_does_not_fit_is_refused(topic, operation, error) -> None:
    assert increment(topic, TOPIC, "t", operation) == error


def test_a_resource_named_twice_is_refused_both_times(topic) -> None:
    api = ApiKey.ALTER_CONFIGS
    resource = part_of(api, 2, "AlterConfigsResource", resource_type=TOPIC, resource_name="t", configs=())
    responses = topic.ask(api, 2, resources=(resource, resource), validate_only=False).responses
    assert [each.error_code for each in responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_check_changes_nothing(topic) -> None:
    assert replace(topic, TOPIC, "t", {"segment.bytes": "2000"}, validate_only=True) == ErrorCode.NONE
    assert (
        increment(topic, BROKER, "1", (SET, "log.segment.bytes", "2000"), validate_only=True)
        == ErrorCode.NONE
    )
    assert read_config(topic.store, "topics/t") == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert read_config(topic.store, "brokers/1") == {}


@pytest.mark.parametrize(("kind", "name"), [(CLIENT_METRICS, "x"), (99, "x")])
def test_other_resources_have_no_configs_here(topic, kind, name) -> None:
    assert replace(topic, kind, name, {}) == ErrorCode.INVALID_REQUEST
    assert increment(topic, kind, name) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("name", "path"), [("1", "brokers/1"), ("", "brokers/<default>")])
def test_dynamic_broker_configs_are_in_force_as_soon_as_they_are_written(cluster, name, path) -> None:
    assert increment(cluster, BROKER, name, (SET, "log.segment.bytes", "2000")) == ErrorCode.NONE
    assert read_config(cluster.store, path) == {"log.segment.bytes": "2000"}
    assert cluster.config.number("log.segment.bytes") == 2000
    assert increment(cluster, BROKER, name, (DELETE, "log.segment.bytes", None)) == ErrorCode.NONE
    assert cluster.config.number("log.segment.bytes") == 2**30


@pytest.mark.parametrize(
    ("name", "config", "value"),
    [
        ("1", "num.partitions", "3"),  # read-only
        ("", "zookeeper.connect", "x"),  # read-only
        ("", "advertised.listeners", "PLAINTEXT://x:1"),  # per broker only
        ("", "listener.name.plaintext.ssl.keystore.location", "x"),  # per broker only
        ("1", "ssl.keystore.location", "x"),  # by listener only
        ("1", "log.segment.bytes", "much"),
        ("1", "log.segment.bytes", "1"),
        ("1", "num.io.threads", "17"),  # more than double
        ("1", "num.io.threads", "3"),  # less than half
        ("2", "log.segment.bytes", "2000"),  # another broker
        ("one", "log.segment.bytes", "2000"),
    ],
)
def test_what_a_broker_cannot_change_is_an_invalid_request(cluster, name, config, value) -> None:
    assert increment(cluster, BROKER, name, (SET, config, value)) == ErrorCode.INVALID_REQUEST
    assert replace(cluster, BROKER, name, {config: value}) == ErrorCode.INVALID_REQUEST
    assert cluster.config.cluster == cluster.config.per_broker == {}


def test_names_that_nobody_knows_and_throttles_are_let_through(cluster) -> None:
    given = {"own.plugin": "x", "leader.replication.throttled.rate": "1000"}
    assert replace(cluster, BROKER, "1", given) == ErrorCode.NONE
    assert read_config(cluster.store, "brokers/1") == given
    throttle = (SET, "follower.replication.throttled.rate", "-1")
    assert increment(cluster, BROKER, "1", throttle) == ErrorCode.INVALID_REQUEST


def test_secrets_are_not_put_into_the_tree(cluster) -> None:
    password = (SET, "listener.name.plaintext.ssl.key.password", "secret")
    assert increment(cluster, BROKER, "1", password) == ErrorCode.INVALID_CONFIG
    assert read_config(cluster.store, "brokers/1") == {}


def test_broker_configs_in_the_tree_that_cannot_be_applied_are_passed_over(cluster, caplog) -> None:
    stored = {"log.segment.bytes": "2000", "num.partitions": "7", "log.retention.ms": "soon"}
    change_config(cluster.store, "brokers/1", stored)
    assert dict(cluster.config.per_broker) == {"log.segment.bytes": "2000"}
    assert "log.retention.ms, num.partitions" in caplog.text


def test_configs_of_other_brokers_and_entities_are_not_this_brokers(cluster) -> None:
    for path in ("brokers/2", "clients/c", "users/alice/clients/c", "ips/1.2.3.4"):
        change_config(cluster.store, path, {"log.segment.bytes": "2000"})
    assert cluster.config.cluster == cluster.config.per_broker == {}
    assert cluster.topic_changes == []


def test_unclean_elections_that_become_allowed_are_told(topic) -> None:
    assert increment(topic, TOPIC, "t", (SET, "unclean.leader.election.enable", "true")) == ErrorCode.NONE
    assert topic.unclean == ["t"]
    assert increment(topic, BROKER, "", (SET, "unclean.leader.election.enable", "true")) == ErrorCode.NONE
    assert topic.unclean == ["t", None]


def test_levels_of_loggers_are_set_and_given_back(cluster) -> None:
    logger = logging.getLogger("klog.made.for.tests")
    logger.setLevel(logging.NOTSET)
    assert increment(cluster, LOGGER, "1", (SET, logger.name, "ERROR")) == ErrorCode.NONE
    assert logger.level == logging.ERROR
    assert increment(cluster, LOGGER, "1", (DELETE, logger.name, None)) == ErrorCode.NONE
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "error"),
    [
        ("2", (SET, "root", "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", (SET, "no.such.logger", "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", (SET, "root", "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", (DELETE, "root", None), ErrorCode.INVALID_REQUEST),
        ("1", (APPEND, "root", "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_cannot_be_set_are_refused(cluster, name, operation, error) -> None:
    before = logging.getLogger().level
    assert increment(cluster, LOGGER, name, operation) == error
    assert logging.getLogger().level == before


def test_only_the_incremental_request_knows_loggers(cluster) -> None:
    assert replace(cluster, LOGGER, "1", {"root": "INFO"}) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["x", "+-1", "--1", "+", "9" * 5000, "\u00b2"], ids=lambda name: name[:9])
@pytest.mark.parametrize("kind", [BROKER, LOGGER])
def test_a_name_that_is_no_number_is_no_brokers(cluster, kind, name) -> None:
    operation = SET, "log.retention.ms", "1"
    assert increment(cluster, kind, name, operation) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["+1", "01"])
def test_the_brokers_id_may_be_written_as_java_reads_it(cluster, name) -> None:
    assert increment(cluster, BROKER, name, (SET, "log.retention.ms", "1")) == ErrorCode.NONE


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "n" * 250])
def test_no_path_is_made_of_a_name_that_is_no_topics(cluster, monkeypatch, name) -> None:
    monkeypatch.setattr(cluster.store, "get", None)  # ZooKeeper's client raises errors of its own
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(cluster, TOPIC, name, {"retention.ms": "1"}) == error
    assert increment(cluster, TOPIC, name, (SET, "retention.ms", "1")) == error
    misfit = APPEND, "retention.ms", "1"
    assert increment(cluster, TOPIC, name, misfit) == ErrorCode.INVALID_CONFIG
