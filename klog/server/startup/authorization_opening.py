"""Opens the authoriser that the configs name: Kafka's AclAuthorizer, or none.

Rules: Kafka's `AclAuthorizer.configure`. Super users are separated by semicolons, because names may contain
commas.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.broker_protection import ACL_AUTHORIZER
from klog.config.keys import ConfigError
from klog.metadata.store import MetadataStore
from klog.security.authorization.acl_store import AclStore
from klog.security.authorization.acl_znodes import is_principal
from klog.security.principal import KafkaPrincipal
from klog.server.handlers.access import Access

_SUPER_USERS: Final = "super.users"
_ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
_OTHER_ZOOKEEPER: Final = "authorizer.zookeeper.url"
# As Kafka waits before it writes ACLs again that others have changed meanwhile.
_RETRY_MS: Final = 100
_RETRY_JITTER_MS: Final = 50


@dataclass(frozen=True, slots=True)
class Authorization:
    """The ACLs of the cluster, and the decisions by them."""

    acls: AclStore
    access: Access


def open_authorization(
    config: BrokerConfig, store: MetadataStore, clock_ms: Callable[[], int]
) -> Authorization | None:
    """The authoriser, with the ACLs that the tree has; None without one.

    Raises `ConfigError`, `StoreError`, `InvalidZnodeError`.
    """
    if config.text("authorizer.class.name") != ACL_AUTHORIZER:
        return None
    _require_one_zookeeper(config)
    super_users = super_users_of(config.static.get(_SUPER_USERS, ""))
    allows_without_acls = _flag(_ALLOW_EVERYONE, config.static.get(_ALLOW_EVERYONE, "false"))
    acls = AclStore(store, clock_ms, _pause)
    acls.follow()
    return Authorization(acls, Access(acls, super_users, allows_without_acls))


def _pause() -> None:
    time.sleep((_RETRY_MS + secrets.randbelow(_RETRY_JITTER_MS)) / 1000)


def super_users_of(text: str) -> frozenset[KafkaPrincipal]:
    """The principals of `super.users`. Raises `ConfigError`."""
    users = [each.strip() for each in text.split(";") if each.strip()]
    for user in users:
        if not is_principal(user):
            raise ConfigError(_SUPER_USERS, text, f"{user!r} is no principal", cure="User:NAME;User:NAME")
    return frozenset(KafkaPrincipal(*user.split(":", 1)) for user in users)


def _flag(name: str, text: str) -> bool:
    plain = text.strip().lower()
    if plain not in ("true", "false"):
        raise ConfigError(name, text, "it is true or false")
    return plain == "true"


def _require_one_zookeeper(config: BrokerConfig) -> None:
    other = config.static.get(_OTHER_ZOOKEEPER, "").strip()
    if other and other != config.text("zookeeper.connect"):
        raise ConfigError(
            _OTHER_ZOOKEEPER,
            other,
            "klog keeps ACLs where its other metadata is",
            cure="set it to the value of zookeeper.connect, or remove it",
        )
