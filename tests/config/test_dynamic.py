"""Dynamic broker configs, and the topic configs that a broker gives its topics."""

from __future__ import annotations

import pytest

from klog.config.broker import BrokerConfig
from klog.config.broker_topics import check_topic_overrides, topic_config_on, topic_values
from klog.config.dynamic import applicable, base_name, broker_key, check_dynamic_configs, merged, synonyms
from klog.config.keys import ConfigError, Type, text_of
from klog.formats.errors import UsageError

DIFFERENCE = {"log.message.timestamp.difference.max.ms": "5"}


def test_a_listeners_own_config_is_distinguished_from_the_general_one() -> None:
    assert base_name("listener.name.outer.ssl.keystore.type") == "ssl.keystore.type"
    assert base_name("ssl.keystore.type") == "ssl.keystore.type"
    assert synonyms("listener.name.outer.max.connections") == (
        "listener.name.outer.max.connections",
        "max.connections",
    )
    key = broker_key("listener.name.outer.plain.sasl.jaas.config")
    assert key is not None
    assert key.type is Type.PASSWORD
    assert broker_key("own.plugin") is None


def test_a_config_that_is_set_removes_its_synonyms_of_lower_layers() -> None:
    static = {"log.retention.ms": "1", "log.retention.hours": "2", "log.roll.ms": "3"}
    assert merged(static, {"log.retention.hours": "4"}) == {"log.retention.hours": "4", "log.roll.ms": "3"}
    assert merged(static, {}, {"log.roll.ms": "5"}) == {**static, "log.roll.ms": "5"}


@pytest.mark.parametrize(
    ("name", "value", "per_broker"),
    [
        ("log.retention.ms", "1000", True),
        ("log.retention.ms", "1000", False),
        ("listener.name.outer.ssl.keystore.location", "x", True),
        ("ssl.client.auth", "required", True),
        ("ssl.enabled.protocols", "TLSv1.2", True),
        ("listener.name.outer.max.connections", "7", False),
        ("sasl.jaas.config", "x", True),
        ("own.plugin", "x", False),
    ],
)
def test_dynamic_configs_are_accepted(name, value, per_broker) -> None:
    check_dynamic_configs(BrokerConfig({}), {name: value}, per_broker=per_broker)


@pytest.mark.parametrize(
    ("name", "value", "per_broker"),
    [
        ("num.partitions", "1", True),
        ("ssl.keystore.location", "x", True),
        ("listener.name.outer.ssl.keystore.location", "x", False),
        ("ssl.client.auth", "required", False),
        ("sasl.jaas.config", "x", False),
        ("listener.name.outer.max.connections", "many", False),
        ("log.cleaner.threads", "3", True),
        ("num.io.threads", "0", True),
        ("listener.name.outer.num.network.threads", "7", True),
    ],
)
def test_other_configs_and_invalid_values_are_refused(name, value, per_broker) -> None:
    with pytest.raises(UsageError, match=name.rpartition(".")[2]):
        check_dynamic_configs(BrokerConfig({}), {name: value}, per_broker=per_broker)


def test_a_dynamic_default_below_the_brokers_own_config_changes_no_threads() -> None:
    config = BrokerConfig({}, per_broker={"num.io.threads": "8"})
    check_dynamic_configs(config, {"num.io.threads": "100"}, per_broker=False)


def test_configs_that_cannot_be_applied_are_returned_separately() -> None:
    stored = {"log.retention.ms": "soon", "num.partitions": "2", "log.roll.ms": "5", "own.plugin": "x"}
    kept, passed_over = applicable(stored, per_broker=True)
    assert kept == {"log.roll.ms": "5", "own.plugin": "x"}
    assert sorted(passed_over) == ["log.retention.ms", "num.partitions"]


@pytest.mark.parametrize(
    ("static", "topic_name", "value"),
    [
        ({"log.retention.hours": "2"}, "retention.ms", 7_200_000),
        ({"log.retention.hours": "-1"}, "retention.ms", -1),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, "retention.ms", 180_000),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", 9),
        (DIFFERENCE, "message.timestamp.before.max.ms", 5),
        ({**DIFFERENCE, "log.message.timestamp.after.max.ms": "6"}, "message.timestamp.after.max.ms", 6),
        ({"log.message.format.version": "0.10.0"}, "message.format.version", "3.0-IV1"),
    ],
)
def test_a_topic_inherits_from_its_broker(static, topic_name, value) -> None:
    assert topic_values(BrokerConfig(static), {})[topic_name] == value


def test_logs_use_the_old_timestamp_limit_if_the_new_ones_are_not_set() -> None:
    config = topic_config_on(BrokerConfig({}), {"message.timestamp.difference.max.ms": "5"})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (5, 5)


@pytest.mark.parametrize(
    "overrides",
    [
        {"no.such": "1"},
        {"retention.ms": "soon"},
        {"remote.storage.enable": "true"},
        {"remote.log.copy.disable": "true"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    ],
)
def test_invalid_topic_overrides_are_refused(overrides) -> None:
    with pytest.raises(UsageError):
        check_topic_overrides(BrokerConfig({}), overrides)


def test_a_topics_limits_are_checked_together_with_its_brokers() -> None:
    config = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "10"})
    with pytest.raises(ConfigError):
        check_topic_overrides(config, {"min.compaction.lag.ms": "11"})


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e7, "1.0E7"),
        (9_999_999.5, "9999999.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (-2.5e10, "-2.5E10"),
        (0.0, "0.0"),
    ],
)
def test_doubles_are_written_as_java_does(number, text) -> None:
    assert text_of(number) == text
