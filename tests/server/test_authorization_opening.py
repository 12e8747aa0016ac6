"""Which authoriser the configs mean, and what stops the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.config.broker_checks import check_together
from klog.config.broker_protection import ACL_AUTHORIZER, UnenforcedConfigError
from klog.config.keys import ConfigError
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.security.principal import KafkaPrincipal
from klog.server.startup.authorization_opening import open_authorization, super_users_of


@pytest.fixture
def store(tmp_path: Path):
    opened = EmbeddedStore(tmp_path / FILE_NAME)
    yield opened
    opened.close()


def opening(store: EmbeddedStore, **configs: str):
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return open_authorization(BrokerConfig(named), store, lambda: 0)


def test_without_a_class_there_is_no_authoriser(store) -> None:
    assert opening(store) is None
    assert opening(store, authorizer_class_name="") is None
    assert store.exists("/kafka-acl") is None


def test_kafka_s_class_is_klog_s_authoriser(store) -> None:
    config = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:a;User:b"}
    check_together(BrokerConfig(config))
    assert opening(store, authorizer_class_name=ACL_AUTHORIZER) is not None
    assert store.exists("/kafka-acl/Topic") is not None


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.auth.SimpleAclAuthorizer",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "com.example.Mine",
    ],
)
def test_another_class_stops_the_start(name: str) -> None:
    with pytest.raises(UnenforcedConfigError, match=re.escape(ACL_AUTHORIZER)):
        check_together(BrokerConfig({"authorizer.class.name": name}))


def test_super_users_are_separated_by_semicolons() -> None:
    users = super_users_of(" User:CN=a,OU=b ; Group:c:d;")
    assert users == {KafkaPrincipal("User", "CN=a,OU=b"), KafkaPrincipal("Group", "c:d")}
    assert super_users_of("") == frozenset()


@pytest.mark.parametrize(
    "config",
    [
        {"super_users": "alice"},
        {"allow_everyone_if_no_acl_found": "yes"},
        {"authorizer_zookeeper_url": "other:2181"},
    ],
)
def test_what_would_let_the_wrong_clients_in_stops_the_start(store, config: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        opening(store, authorizer_class_name=ACL_AUTHORIZER, **config)
