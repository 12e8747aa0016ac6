"""Refuses the configs that protect data or restrict clients and that klog cannot enforce.

A broker that ignored such a config would serve what somebody wanted to protect. So it does not start with
one, unless `klog.allow.unenforced.configs` names it. docs/broker.md has a table of all configs that protect
something, and of what klog does with each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.config.broker import ALLOW_UNENFORCED, LISTENER_PREFIX, BrokerConfig
from klog.config.keys import ConfigError


class Refused(NamedTuple):
    """A config with which the broker does not start: what would happen, and values that are harmless, in
    lower case, besides an empty one and false.
    """

    what: str
    harmless: tuple[str, ...] = ()


ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
"""Kafka's class that means klog's own authoriser: the rules and the ACLs in the tree are the same."""

_DEFAULT_PRINCIPALS: Final = "org.apache.kafka.common.security.authenticator.defaultkafkaprincipalbuilder"
_DEFAULT_ENGINE: Final = "org.apache.kafka.common.security.ssl.defaultsslenginefactory"

REFUSED: Final[Mapping[str, Refused]] = {
    "alter.config.policy.class.name": Refused("changes of configs would not be checked by it"),
    "authorizer.class.name": Refused(
        f"it has {ACL_AUTHORIZER} only, and without one every client could do everything",
        (ACL_AUTHORIZER.lower(),),
    ),
    "client.quota.callback.class": Refused("clients would not be limited by it"),
    "create.topic.policy.class.name": Refused("new topics would not be checked by it"),
    "principal.builder.class": Refused("clients would not be identified by it", (_DEFAULT_PRINCIPALS,)),
    "security.providers": Refused("there are no Java security providers"),
    "ssl.engine.factory.class": Refused("TLS would be OpenSSL's, without its checks", (_DEFAULT_ENGINE,)),
    "ssl.provider": Refused("TLS would be OpenSSL's"),
    "ssl.trustmanager.algorithm": Refused(
        "certificates would be checked by OpenSSL's rules (PKIX)", ("pkix", "sunx509")
    ),
    "zookeeper.metadata.migration.enable": Refused(
        "the migration to KRaft would not be carried out", ("false",)
    ),
    "zookeeper.ssl.crl.enable": Refused("revoked certificates of ZooKeeper would be trusted"),
    "zookeeper.ssl.ocsp.enable": Refused("revoked certificates of ZooKeeper would be trusted"),
}


class UnenforcedConfigError(ConfigError):
    """A config is set that klog would not enforce."""


def unenforced(config: BrokerConfig) -> dict[str, str]:
    """The configs that are set and would not be enforced, by the name that was set, with what would happen.

    A listener's own config counts like the general one.
    """
    found = {}
    for given in (config.static, config.cluster, config.per_broker):
        for name, value in given.items():
            refused = REFUSED.get(LISTENER_PREFIX.sub("", name))
            if refused is not None and value.strip().lower() not in ("", "false", *refused.harmless):
                found[name] = refused.what
    return found


def require_enforced(config: BrokerConfig) -> None:
    """Raises `UnenforcedConfigError` if a config is set that klog would not enforce, and was not allowed."""
    allowed = {each.strip() for each in config.static.get(ALLOW_UNENFORCED, "").split(",")}
    for name, what in unenforced(config).items():
        general = LISTENER_PREFIX.sub("", name)
        if general not in allowed:
            given = (config.per_broker, config.cluster, config.static)
            raise UnenforcedConfigError(
                name,
                next(each[name] for each in given if name in each),
                f"klog does not enforce it: {what}",
                cure=f"remove it, or start with -o {ALLOW_UNENFORCED}={general} if that is acceptable",
            )
