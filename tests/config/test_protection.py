"""Every config of Kafka 3.9 that protects something is served, refused or known to have no effect here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.config import broker_security
from klog.config.broker import ALLOW_UNENFORCED, KEYS_BY_NAME, BrokerConfig
from klog.config.broker_checks import check_together, without_effect
from klog.config.broker_protection import REFUSED, UnenforcedConfigError
from klog.config.keys import Type

DOCS = Path(__file__).parents[2] / "docs" / "broker.md"
# Words in the names of configs that restrict somebody or keep something safe.
TELLING = re.compile(
    r"authori|policy|principal|secur|ssl|sasl|quota|password|secret|token|acl|auth|min\.in|unclean|listener"
)
# Names with such a word that protect nothing, or only in KRaft and tiered storage.
HARMLESS = {
    "controller.listener.names",
    "group.consumer.migration.policy",
    "controller.quota.window.num",
    "controller.quota.window.size.seconds",
    "log.cleanup.policy",
    "remote.log.manager.copy.quota.window.num",
    "remote.log.manager.copy.quota.window.size.seconds",
    "remote.log.manager.fetch.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds",
    "remote.log.metadata.manager.listener.name",
    "alter.log.dirs.replication.quota.window.num",
    "alter.log.dirs.replication.quota.window.size.seconds",
    "replication.quota.window.num",
    "replication.quota.window.size.seconds",
    "unclean.leader.election.interval.ms",
}


def treatments() -> dict[str, str]:
    """What klog does with each config that protects something, as documented: served, refused, no effect.

    A name that ends in `*` stands for all that begin so, except those with a line of their own.
    """
    text = DOCS.read_text()
    section = text[text.index("### Configs that protect data") : text.index("### Secrets")]
    rows = re.findall(r"^\| (`.*`) \| (served|refused|no effect) \|.* \|$", section, re.MULTILINE)
    return {name: what for names, what in rows for name in re.findall(r"`([^`]+)`", names)}


def is_classified(name: str) -> bool:
    return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in treatments())


def test_every_config_with_a_telling_name_is_classified() -> None:
    wanted = {key.name for key in broker_security.KEYS} | {
        name for name in KEYS_BY_NAME if TELLING.search(name)
    }
    assert {name for name in wanted - HARMLESS if not is_classified(name)} == set()


def test_every_name_of_the_table_is_one_of_kafka_s() -> None:
    of_plugins = {
        "allow.everyone.if.no.acl.found",
        "authorizer.zookeeper.*",
        "config.providers",
        "super.users",
    }
    for name in treatments().keys() - of_plugins:
        if name.endswith("*"):
            assert any(each.startswith(name[:-1]) for each in KEYS_BY_NAME), name
        else:
            assert name in KEYS_BY_NAME, name


def test_the_configs_that_are_refused_are_those_of_the_documentation() -> None:
    assert {name for name, what in treatments().items() if what == "refused"} == set(REFUSED)


def bad_value(name: str) -> str:
    return "true" if KEYS_BY_NAME[name].type is Type.BOOLEAN else "x.Y"


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_config_keeps_the_broker_from_starting_unless_it_is_allowed_by_name(name: str) -> None:
    asked = {name: bad_value(name)}
    with pytest.raises(UnenforcedConfigError, match="klog does not enforce it") as refused:
        check_together(BrokerConfig(asked))
    assert refused.value.key == name
    assert f"-o {ALLOW_UNENFORCED}={name}" in str(refused.value)
    with pytest.raises(UnenforcedConfigError):
        check_together(BrokerConfig({**asked, ALLOW_UNENFORCED: "another"}))
    allowed = BrokerConfig({**asked, ALLOW_UNENFORCED: f"another, {name}"})
    check_together(allowed)
    assert name in without_effect(allowed)
    assert allowed.unknown() == {}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_config_may_have_its_default(name: str) -> None:
    check_together(BrokerConfig({name: "false" if bad_value(name) == "true" else ""}))
    default = KEYS_BY_NAME[name].default
    if isinstance(default, str):
        check_together(BrokerConfig({name: default}))


@pytest.mark.parametrize("name", ["ssl.provider", "principal.builder.class", "ssl.engine.factory.class"])
def test_a_listener_s_own_config_is_refused_alike(name: str) -> None:
    own = f"listener.name.external.{name}"
    for given in ({"static": {own: "x"}}, {"static": {}, "per_broker": {own: "x"}}):
        with pytest.raises(UnenforcedConfigError) as refused:
            check_together(BrokerConfig(**given))
        assert refused.value.key == own
    check_together(BrokerConfig({own: "x", ALLOW_UNENFORCED: name}))
