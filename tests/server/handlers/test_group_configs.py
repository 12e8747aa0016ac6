"""Configs of single groups (KIP-848): described, changed, refused, and read again by the broker."""

from __future__ import annotations

import logging

import pytest

from klog.config.documentation import broker_documentation
from klog.formats.errors import UsageError
from klog.metadata.configs import change_config, read_config, write_config
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.server.configs.live_config import LiveConfig
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.test_alter_configs import DELETE, SET, increment, replace
from tests.server.handlers.test_describe_configs import configs, describe, told

GROUP = 32
OF_GROUP, DEFAULT = 8, 5
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
# A name that is no part of a path as it stands.
NAME = "read/ers ä"
PATH = "groups/read%2Fers%20%C3%A4"


@pytest.fixture
def embedded() -> AdminCluster:
    """Brokers that keep their metadata by themselves."""
    cluster = AdminCluster({"group.consumer.session.timeout.ms": "46000"})
    del cluster.config.static["zookeeper.connect"]
    return cluster


def test_a_group_has_the_brokers_values_until_it_overrides_them(embedded) -> None:
    found = configs(embedded, GROUP, NAME, documentation=True)
    assert {name: told(entry) for name, entry in found.items()} == {
        HEARTBEAT: ("5000", DEFAULT, [(HEARTBEAT, "5000", DEFAULT)]),
        SESSION: ("46000", DEFAULT, [(SESSION, "46000", DEFAULT)]),
    }
    assert found[SESSION].documentation == broker_documentation()["group.consumer.session.timeout.ms"]
    assert increment(embedded, GROUP, NAME, (SET, SESSION, "50000")) == ErrorCode.NONE
    found = configs(embedded, GROUP, NAME)
    assert told(found[SESSION]) == (
        "50000",
        OF_GROUP,
        [(SESSION, "50000", OF_GROUP)],
    )
    assert told(found[HEARTBEAT]) == ("5000", DEFAULT, [(HEARTBEAT, "5000", DEFAULT)])


def test_changes_are_written_and_the_broker_hears_of_them(embedded) -> None:
    assert increment(embedded, GROUP, NAME, (SET, SESSION, "50000"), (SET, HEARTBEAT, "6000")) == 0
    assert read_config(embedded.store, PATH) == {SESSION: "50000", HEARTBEAT: "6000"}
    assert increment(embedded, GROUP, NAME, (DELETE, HEARTBEAT, None)) == 0
    assert replace(embedded, GROUP, NAME, {HEARTBEAT: "7000"}) == 0
    assert read_config(embedded.store, PATH) == {HEARTBEAT: "7000"}
    assert embedded.group_changes == [
        (NAME, {SESSION: "50000", HEARTBEAT: "6000"}),
        (NAME, {SESSION: "50000"}),
        (NAME, {HEARTBEAT: "7000"}),
    ]


def test_a_check_changes_nothing(embedded) -> None:
    assert increment(embedded, GROUP, NAME, (SET, SESSION, "50000"), validate_only=True) == ErrorCode.NONE
    assert increment(embedded, GROUP, NAME, (SET, SESSION, "1"), validate_only=True) != ErrorCode.NONE
    assert read_config(embedded.store, PATH) == {}
    assert embedded.group_changes == []


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        ("", {SESSION: "50000"}, ErrorCode.INVALID_REQUEST),
        (NAME, {SESSION: None}, ErrorCode.INVALID_REQUEST),
        (NAME, {"session.timeout.ms": "50000"}, ErrorCode.INVALID_CONFIG),
        (NAME, {"share.session.timeout.ms": "50000"}, ErrorCode.INVALID_CONFIG),
        (NAME, {SESSION: "long"}, ErrorCode.INVALID_CONFIG),
        (NAME, {SESSION: "0"}, ErrorCode.INVALID_CONFIG),
        (NAME, {SESSION: "44999"}, ErrorCode.INVALID_CONFIG),
        (NAME, {SESSION: "60001"}, ErrorCode.INVALID_CONFIG),
        (NAME, {HEARTBEAT: "4999"}, ErrorCode.INVALID_CONFIG),
        (NAME, {HEARTBEAT: "15001"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_a_group_cannot_have_is_refused(embedded, name, changes, error) -> None:
    assert replace(embedded, GROUP, name, changes) == error
    assert increment(embedded, GROUP, name, *[(SET, *each) for each in changes.items()]) == error
    assert read_config(embedded.store, PATH) == {}


@pytest.mark.parametrize("least_most", [{SESSION: "45000"}, {SESSION: "60000", HEARTBEAT: "15000"}])
def test_limits_of_the_broker_are_inclusive(embedded, least_most) -> None:
    assert replace(embedded, GROUP, NAME, least_most) == ErrorCode.NONE


def test_a_session_is_longer_than_the_interval_of_its_heartbeats() -> None:
    limits = {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "50000"}
    cluster = AdminCluster(limits)
    del cluster.config.static["zookeeper.connect"]
    assert replace(cluster, GROUP, NAME, {SESSION: "5000"}) == ErrorCode.INVALID_CONFIG
    assert replace(cluster, GROUP, NAME, {SESSION: "5001"}) == ErrorCode.NONE
    assert increment(cluster, GROUP, NAME, (SET, HEARTBEAT, "5001")) == ErrorCode.INVALID_CONFIG


def test_zookeeper_has_no_place_for_configs_of_groups(cluster) -> None:
    assert increment(cluster, GROUP, NAME, (SET, SESSION, "50000")) == ErrorCode.INVALID_REQUEST
    (result,) = describe(cluster, (GROUP, NAME))
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, ())


def test_a_group_without_a_name_cannot_be_described(embedded) -> None:
    (result,) = describe(embedded, (GROUP, ""))
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Group name must not be empty",
    )


def test_a_broker_that_starts_reads_the_configs_of_all_groups(embedded, caplog) -> None:
    write_config(embedded.store, PATH, {SESSION: "50000"})
    write_config(embedded.store, "groups/other", {HEARTBEAT: "6000"})
    write_config(embedded.store, "groups/bad", {SESSION: "long"})
    live = LiveConfig(embedded.config, {})
    changes = embedded.config_changes
    object.__setattr__(changes, "group_changed", live.set_group)
    with caplog.at_level(logging.ERROR):
        changes.load()
    assert [live.group(each) for each in (NAME, "other", "bad")] == [
        {SESSION: 50_000},
        {HEARTBEAT: 6_000},
        {},
    ]
    (record,) = caplog.records
    assert record.getMessage().startswith("The configs of group bad are ignored: Invalid value long")


def test_a_group_keeps_its_configs_if_new_ones_are_invalid(embedded) -> None:
    live = LiveConfig(embedded.config, {})
    live.set_group(NAME, {SESSION: "50000"})
    for bad in ({SESSION: "long"}, {"no.such.config": "1"}):
        with pytest.raises(UsageError):
            live.set_group(NAME, bad)
    assert live.group(NAME) == {SESSION: 50_000}
    live.set_group(NAME, {})
    assert live.group(NAME) == {}


def test_a_note_of_a_group_reads_its_configs(embedded) -> None:
    change_config(embedded.store, PATH, {SESSION: "50000"})
    assert embedded.group_changes == [(NAME, {SESSION: "50000"})]


def listed(cluster, version=1, **asked):
    answer = cluster.ask(ApiKey.LIST_CONFIG_RESOURCES, version, **asked)
    names = [(getattr(each, "resource_type", 16), each.resource_name) for each in answer.config_resources]
    return answer.error_code, names


def test_resources_are_listed_by_their_kind(embedded) -> None:
    embedded.create("t", (1,))
    increment(embedded, GROUP, NAME, (SET, SESSION, "50000"))
    increment(embedded, GROUP, "gone", (SET, SESSION, "50000"))
    increment(embedded, GROUP, "gone", (DELETE, SESSION, None))
    groups = [(GROUP, NAME)]
    assert listed(embedded, resource_types=(GROUP,)) == (ErrorCode.NONE, groups)
    brokers = [(kind, str(number)) for kind in (4, 8) for number in (1, 2, 3)]
    assert listed(embedded, resource_types=()) == (ErrorCode.NONE, [(2, "t"), *brokers, *groups])
    assert listed(embedded, version=0) == (ErrorCode.NONE, [])
    assert listed(embedded, resource_types=(GROUP, 3)) == (ErrorCode.UNSUPPORTED_VERSION, [])
