"""Values, precedence and errors of broker and topic configs."""

from __future__ import annotations

import pytest

from klog.config.broker import KEYS_BY_NAME, BrokerConfig, Source
from klog.config.broker_checks import broker_id, check_together, without_effect
from klog.config.dynamic import check_dynamic_configs
from klog.config.keys import ConfigError
from klog.config.topic import (
    SYNONYMS,
    check_topic_values,
    default_topic_config,
    defaults,
    parse_overrides,
)
from klog.formats.errors import UsageError


def test_a_dynamic_value_wins_over_the_file_and_the_file_over_the_default() -> None:
    config = BrokerConfig({"log.retention.ms": "1000"})
    assert config["log.retention.ms"] == 1000
    config = config.changed(cluster={"log.retention.ms": "2000"})
    assert config["log.retention.ms"] == 2000
    config = config.changed(per_broker={"log.retention.ms": "3000"})
    assert config["log.retention.ms"] == 3000
    assert [setting.source for setting in config.settings("log.retention.ms")] == [
        Source.DYNAMIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.STATIC_BROKER,
    ]


def test_an_invalid_value_is_an_error_that_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.threads") as caught:
        BrokerConfig({"num.io.threads": "many"})
    assert caught.value.key == "num.io.threads"
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig({"num.io.threads": "0"})
    with pytest.raises(ConfigError, match="LONG"):
        BrokerConfig({"log.retention.ms": str(2**63)})


def test_an_unknown_name_is_kept_and_the_most_similar_known_one_is_given() -> None:
    config = BrokerConfig({"log.retention.mss": "1", "quite.different.thing": "x"})
    assert config.unknown() == {"log.retention.mss": "log.retention.ms", "quite.different.thing": None}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("super.users", "known"),
        ("allow.everyone.if.no.acl.found", "known"),
        ("rsm.config.dir", "known"),
        ("listener.name.inner.ssl.client.auth", "known"),
        ("listener.name.inner.scram-sha-256.sasl.jaas.config", "known"),
        ("listener.name.inner.ssl.keystore.locaton", "listener.name.inner.ssl.keystore.location"),
        ("listener.name.inner", None),
        ("confluent.license", None),
    ],
)
def test_configs_of_kafkas_plugins_and_of_listeners_are_known(name: str, nearest: str | None) -> None:
    unknown = BrokerConfig({name: "x"}).unknown()
    assert unknown == ({} if nearest == "known" else {name: nearest})


def test_a_read_only_config_may_not_be_changed_while_running() -> None:
    config = BrokerConfig({"num.io.threads": "4"})
    check_dynamic_configs(config, {"num.io.threads": "4"}, per_broker=False)
    with pytest.raises(UsageError, match="dynamically"):
        check_dynamic_configs(config, {"broker.id": "4"}, per_broker=True)
    with pytest.raises(UsageError, match="default cluster level"):
        check_dynamic_configs(config, {"listeners": "PLAINTEXT://:1"}, per_broker=False)


def test_topic_defaults_follow_the_first_broker_synonym_that_is_set_in_its_unit() -> None:
    broker = BrokerConfig({"log.retention.hours": "2", "log.roll.ms": "5"})
    values = defaults(broker.__getitem__)
    assert values["retention.ms"] == 2 * 3_600_000
    assert values["segment.ms"] == 5
    minutes = broker.changed(cluster={"log.retention.minutes": "3"})
    assert defaults(minutes.__getitem__)["retention.ms"] == 3 * 60_000


def test_every_synonym_names_a_broker_config() -> None:
    assert SYNONYMS["retention.ms"][0].broker_config == "log.retention.ms"
    for synonyms in SYNONYMS.values():
        for synonym in synonyms:
            assert synonym.broker_config in KEYS_BY_NAME
    assert "log.roll.hours" in [each.broker_config for each in SYNONYMS["segment.ms"]]


def test_topic_overrides_are_checked() -> None:
    assert default_topic_config({"cleanup.policy": "compact,delete"}).compact
    with pytest.raises(UsageError, match="Unknown topic config name: retention"):
        parse_overrides({"retention": "1"})
    lags = {"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5}
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms"):
        check_topic_values(defaults(lambda _: None) | lags)


def test_a_compacted_log_rolls_within_its_maximum_lag() -> None:
    assert default_topic_config({"cleanup.policy": "compact", "max.compaction.lag.ms": "7"}).roll_ms == 7
    assert default_topic_config({"max.compaction.lag.ms": "7"}).roll_ms == 604_800_000


def test_a_broker_id_may_be_set_by_its_newer_name() -> None:
    assert broker_id(BrokerConfig({"node.id": "7"})) == 7
    assert broker_id(BrokerConfig({"node.id": "7", "broker.id": "7"})) == 7
    with pytest.raises(ConfigError, match=r"Invalid value 7 for configuration node\.id"):
        broker_id(BrokerConfig({"node.id": "7", "broker.id": "8"}))


def test_a_config_that_klog_does_not_support_is_reported_only_if_it_is_set() -> None:
    asked = {"authorizer.class.name": "x.Y", "process.roles": "broker", "zookeeper.ssl.crl.enable": " True"}
    assert without_effect(BrokerConfig(asked)).keys() == asked.keys()
    unasked = {"authorizer.class.name": "", "process.roles": "", "zookeeper.ssl.crl.enable": "false"}
    assert without_effect(BrokerConfig(unasked)) == {}


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.7", True), ("2.8-IV1", True), ("0.10.2", True), ("3.4", False), ("3.9.1", False)],
)
def test_an_inter_broker_protocol_older_than_klogs_is_reported(version: str, told: bool) -> None:
    name = "inter.broker.protocol.version"
    assert (name in without_effect(BrokerConfig({name: version}))) is told


@pytest.mark.parametrize("name", ["", "org.apache.kafka.common.replica.", "com.example."])
def test_only_kafka_s_own_choice_of_replicas_is_accepted(name: str) -> None:
    config = BrokerConfig({"broker.id": "1", "replica.selector.class": f"{name}RackAwareReplicaSelector"})
    if name.startswith("com"):
        with pytest.raises(ConfigError, match=r"com\.example\.RackAwareReplicaSelector") as refused:
            check_together(config)
        assert "org.apache.kafka.common.replica.RackAwareReplicaSelector" in (refused.value.cure or "")
    else:
        check_together(config)
