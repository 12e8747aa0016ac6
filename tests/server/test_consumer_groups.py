"""Which brokers accept the protocol of Kafka 4, and the configs of its groups."""

from __future__ import annotations

import pytest

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.metadata.cache import ClusterSnapshot
from klog.server.coordinators.consumer_groups import (
    LatestTopics,
    accepts_consumer_protocol,
    consumer_group_settings,
)

ZOOKEEPER = {"zookeeper.connect": "127.0.0.1:2181"}
BOTH = {"group.coordinator.rebalance.protocols": "classic,consumer"}
CLASSIC = {"group.coordinator.rebalance.protocols": "classic"}
ASSIGNORS = "group.consumer.assignors"
POLICY = "group.consumer.migration.policy"


@pytest.mark.parametrize(
    ("given", "accepts"),
    [
        ({}, True),
        (CLASSIC, False),
        (BOTH, True),
        (ZOOKEEPER, False),
        ({**ZOOKEEPER, **BOTH}, True),
        ({**ZOOKEEPER, **CLASSIC}, False),
    ],
)
def test_the_store_decides_unless_the_protocols_are_configured(given, accepts: bool) -> None:
    config = BrokerConfig(given)
    assert accepts_consumer_protocol(config) is accepts
    settings = consumer_group_settings(config)
    assert settings.may_upgrade is settings.may_downgrade is accepts


def test_the_classic_protocol_cannot_be_left_out() -> None:
    with pytest.raises(ConfigError, match="it must have classic"):
        accepts_consumer_protocol(BrokerConfig({"group.coordinator.rebalance.protocols": "consumer"}))


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("DOWNGRADE", False, True),
        ("Bidirectional", True, True),
    ],
)
def test_the_policy_says_which_changes_are_allowed(policy: str, up: bool, down: bool) -> None:
    settings = consumer_group_settings(BrokerConfig({POLICY: policy}))
    assert (settings.may_upgrade, settings.may_downgrade) == (up, down)


def test_assignors_have_names_or_those_of_kafka_s_classes() -> None:
    assert consumer_group_settings(BrokerConfig({})).assignors == ("uniform", "range")
    given = "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform,range"
    assert consumer_group_settings(BrokerConfig({ASSIGNORS: given})).assignors == ("range", "uniform")
    for refused in ("org.example.Mine", ""):
        with pytest.raises(ConfigError, match="klog has uniform, range"):
            consumer_group_settings(BrokerConfig({ASSIGNORS: refused}))


def test_a_new_snapshot_has_new_topics() -> None:
    snapshots = [ClusterSnapshot(), ClusterSnapshot()]
    latest = LatestTopics(lambda: snapshots[0])
    first = latest()
    assert latest() is first
    snapshots.pop(0)
    assert latest() is not first
