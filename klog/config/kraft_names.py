"""What becomes of each broker config between Kafka 3.9 with ZooKeeper and Kafka 4.1: the tables.

Rules: the configs that `KafkaConfig` of 3.9.1 and of 4.1.1 define, Kafka's upgrade notes, KIP-1030. A test
holds the tables against both. A config without a line is kept. `properties_translation` uses the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Default(NamedTuple):
    """A default that changed: its text in 3.9 and in 4.1."""

    before: str
    after: str


def _table(text: str) -> dict[str, str]:
    """Lines `name, name: reason`. A name that ends in `*` stands for all that begin so."""
    found: dict[str, str] = {}
    for line in text.strip().splitlines():
        names, _, reason = line.partition(":")
        found |= {name.strip(): reason.strip() for name in names.split(",")}
    return found


GONE: Final[Mapping[str, str]] = _table("""
zookeeper.*: Kafka 4 has no ZooKeeper
authorizer.zookeeper.*: Kafka 4 has no ZooKeeper
inter.broker.protocol.version: metadata.version is its successor, a feature (kafka-features)
log.message.format.version: Kafka 4 writes message format 2 only; 'klog convert' rewrites formats 0 and 1
log.message.downconversion.enable: Kafka 4 never converts records for old clients
broker.id.generation.enable, reserved.broker.max.id: node ids are always given
control.plane.listener.name: the controllers have listeners of their own
controlled.shutdown.max.retries, controlled.shutdown.retry.backoff.ms: the controller is asked by heartbeats
leader.imbalance.per.broker.percentage: KRaft's controller looks at each partition
offsets.commit.required.acks: it is always all
password.encoder.*: KRaft keeps passwords in dynamic configs as they are; protect metadata.log.dir
eligible.leader.replicas.enable: it is the feature eligible.leader.replicas.version
group.coordinator.new.enable: Kafka 4 has the new coordinator only
group.share.max.groups: removed in 4.1
metadata.log.segment.min.bytes: it was for tests
quota.producer.default, quota.consumer.default: removed in 3.0; set quotas of default users (kafka-configs)
enable.zookeeper.set.acl: Kafka 4 has no ZooKeeper
""")
"""Configs of brokers with ZooKeeper that Kafka 4.1 does not have, and why."""

ADDED: Final[Mapping[str, str]] = _table("""
add.partitions.to.txn.retry.backoff.*, transaction.two.phase.commit.enable: Kafka 3.9 does not have it
controller.performance.*, internal.metadata.*: Kafka 3.9 does not have it
group.consumer.regex.refresh.interval.ms, remote.list.offsets.request.timeout.ms: Kafka 3.9 does not have it
group.share.*, group.streams.*, share.*: groups of this kind need KRaft
sasl.oauthbearer.assertion.*, sasl.oauthbearer.client.credentials.*: Kafka 3.9 does not have it
sasl.oauthbearer.jwt.*, sasl.oauthbearer.scope: Kafka 3.9 does not have it
""")
"""Configs of Kafka 4.1 that brokers of 3.9 with ZooKeeper do not have."""

OF_KRAFT: Final[Mapping[str, str]] = _table("""
process.roles: a broker with ZooKeeper has no roles
controller.listener.names: brokers with ZooKeeper have no listeners of controllers
controller.quorum.*: brokers with ZooKeeper have no quorum
sasl.mechanism.controller.protocol: brokers with ZooKeeper have no listeners of controllers
broker.heartbeat.interval.ms, broker.session.timeout.ms: its successor is zookeeper.session.timeout.ms
early.start.listeners, initial.broker.registration.timeout.ms, log.dir.failure.timeout.ms: KRaft's only
metadata.log.*, metadata.max.idle.interval.ms, metadata.max.retention.*: there is no metadata log
server.max.startup.time.ms, unclean.leader.election.interval.ms: KRaft's only
unstable.feature.versions.enable: KRaft's only
group.coordinator.rebalance.protocols, group.consumer.migration.policy: with ZooKeeper groups are classic
group.coordinator.threads, group.coordinator.append.linger.ms: of the new coordinator, which needs KRaft
""")
"""Configs of KRaft that mean nothing to a broker with ZooKeeper, or keep it from starting."""

DEFAULTS: Final[Mapping[str, Default]] = {
    "num.recovery.threads.per.data.dir": Default("1", "2"),
    "log.message.timestamp.after.max.ms": Default("9223372036854775807", "3600000"),
    "remote.log.manager.thread.pool.size": Default("10", "2"),
    "group.coordinator.threads": Default("1", "4"),
    "group.coordinator.append.linger.ms": Default("10", "5"),
    "group.coordinator.rebalance.protocols": Default("classic", "classic,consumer,streams"),
    "group.consumer.migration.policy": Default("disabled", "bidirectional"),
    "group.share.partition.max.record.locks": Default("200", "2000"),
}
"""Defaults that differ between 3.9 and 4.1 (KIP-1030 and others)."""

LEAST: Final[Mapping[str, int]] = {
    "log.segment.bytes": 1 << 20,
    "metadata.log.segment.bytes": 8 << 20,
    "remote.log.manager.copier.thread.pool.size": 1,
    "remote.log.manager.expiration.thread.pool.size": 1,
}
"""Kafka 4.1 refuses to start with less, where 3.9 did not."""

AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's authorizers with ZooKeeper, the present one first."""

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"


def reason_in(table: Mapping[str, str], name: str) -> str | None:
    """The reason that a table has for a config; None if it has no line for it."""
    if name in table:
        return table[name]
    families = (each for each in table if each.endswith("*") and name.startswith(each[:-1]))
    return next((table[each] for each in families), None)
