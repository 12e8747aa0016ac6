"""What klog does with each config that protects data or restricts clients. Refuses those it cannot enforce.

A broker that ignored such a config would serve what somebody wanted to protect. So it does not start with
one, unless `klog.allow.unenforced.configs` names it. docs/broker.md has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from klog.config.broker import ALLOW_UNENFORCED, LISTENER_PREFIX, BrokerConfig
from klog.config.keys import ConfigError


class Treatment(Enum):
    """What klog does with a config that protects something."""

    SERVED = "served"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


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

_SERVED: Final = (
    "advertised.listeners",
    "allow.everyone.if.no.acl.found",
    "auto.create.topics.enable",
    "config.providers",
    "connection.failed.authentication.delay.ms",
    "connections.max.idle.ms",
    "connections.max.reauth.ms",
    "delegation.token.*",
    "delete.topic.enable",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.retention.bytes",
    "log.retention.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "password.encoder.*",
    "queued.max.request.bytes",
    "quota.window.*",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.oauthbearer.*",
    "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
    "security.inter.broker.protocol",
    "socket.request.max.bytes",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.*",
    "ssl.principal.mapping.rules",
    "ssl.protocol",
    "ssl.truststore.*",
    "super.users",
    "transaction.partition.verification.enable",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "unclean.leader.election.enable",
    "zookeeper.clientCnxnSocket",
    "zookeeper.set.acl",
    "zookeeper.ssl.*",
)
_NO_EFFECT: Final = (
    "authorizer.zookeeper.*",
    "control.plane.listener.name",
    "early.start.listeners",
    "sasl.*",
    "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation",
)

TREATMENTS: Final[Mapping[str, Treatment]] = {
    **dict.fromkeys(_SERVED, Treatment.SERVED),
    **dict.fromkeys(REFUSED, Treatment.REFUSED),
    **dict.fromkeys(_NO_EFFECT, Treatment.NO_EFFECT),
}
"""By name. A name that ends in `*` stands for all that begin so, except those with a line of their own."""


class UnenforcedConfigError(ConfigError):
    """A config is set that klog would not enforce."""


def treatment(name: str) -> Treatment | None:
    """What klog does with a config; None if it protects nothing."""
    found = TREATMENTS.get(name)
    if found is not None:
        return found
    families = {each[:-1]: found for each, found in TREATMENTS.items() if each.endswith("*")}
    return next((each for prefix, each in families.items() if name.startswith(prefix)), None)


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
