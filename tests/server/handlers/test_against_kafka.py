"""The same requests to Kafka 3.9 and to klog's handlers get the same answers.

Compared is everything but texts for people, ids that are random, and addresses. Kafka's broker is alone in
its cluster, and so is klog's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from klog.protocol.api_versions import encode_api_versions_response
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.messages import build, decode_response, request_class
from tests.peers.broker import ZooKeeperBroker
from tests.peers.kafka import KafkaPeer
from tests.server.handlers import test_alter_configs as alter
from tests.server.handlers import test_create_partitions as grow
from tests.server.handlers import test_create_topics as create
from tests.server.handlers import test_delete_topics as delete
from tests.server.handlers import test_describe_configs as describe
from tests.server.handlers import test_metadata as metadata
from tests.server.handlers import test_partition_reassignments as moves
from tests.server.handlers.admin_parts import ME, AdminCluster
from tests.server.handlers.parts import part_of
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

SETTLED_WITHIN_S = 60

CONFIG = {
    "broker.id": ME,
    "num.io.threads": 4,
    "log.segment.bytes": 1_000_000,
    "log.retention.hours": 12,
    "log.roll.ms": 3_600_000,
    "log.message.timestamp.difference.max.ms": 86_400_000,
    "log.cleaner.io.max.bytes.per.second": 12_345_678.5,
    "ssl.key.password": "secret",
    "password.encoder.secret": "secret of secrets",
    "own.plugin": "x",
    "min.insync.replicas": 1,
    "auto.create.topics.enable": "true",
}

# What differs between any two brokers.
_APART = {"error_message", "topic_id", "throttle_time", "cluster_id", "host", "port", "documentation"}


def comparable(value):
    """An answer without what differs between any two brokers, lists in a fixed order."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: comparable(each) for name, each in fields.items() if name not in _APART}
    if isinstance(value, tuple):
        return sorted((comparable(each) for each in value), key=repr)
    return int(value) if isinstance(value, int) else str(value) if isinstance(value, UUID) else value


class Twins:
    """Kafka and klog, asked the same."""

    def __init__(self, channel: Channel, cluster: AdminCluster) -> None:
        self.channel = channel
        self.cluster = cluster

    def ask(self, api: ApiKey, version: int, /, **values):
        """What Kafka answers, and what klog does."""
        kafka = self.channel.send(build(request_class(api, version), **values))
        return kafka, self.cluster.ask(api, version, **values)

    def agree(self, api: ApiKey, version: int, /, **values):
        """Both answer the same; Kafka's answer. Kafka's brokers hear of changes a moment later."""
        kafka = klog = None

        def agreed() -> bool:
            nonlocal kafka, klog
            kafka, klog = (comparable(each) for each in self.ask(api, version, **values))
            return kafka == klog

        eventually(agreed, SETTLED_WITHIN_S, lambda: f"Kafka: {kafka}\nklog: {klog}\nnot the same")
        return kafka


@pytest.fixture(scope="module")
def twins(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with (
        ZooKeeperBroker(tmp_path_factory.mktemp("kafka"), CONFIG, kafka3) as broker,
        Channel("127.0.0.1", broker.port) as channel,
    ):
        properties = {key: str(value) for key, value in broker.config.items()}
        yield Twins(channel, AdminCluster(properties, racks=(None,)))


def errors(answers, *path):
    for name in path:
        answers = answers[name]
    return [each["error_code"] for each in answers]


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_told_alike(twins, version) -> None:
    asked = build(
        request_class(ApiKey.API_VERSIONS, version), client_software_name="a", client_software_version="1"
    )
    kafka = twins.channel.send(asked)
    # Kafka's controller has made the node, and nothing changes it.
    raw = encode_api_versions_response(version, features_epoch=0)
    klog = decode_response(ApiKey.API_VERSIONS, version, memoryview(raw))
    for answer in (kafka, klog):
        assert answer.supported_features == answer.finalized_features == ()
    assert klog.finalized_features_epoch == kafka.finalized_features_epoch
    assert klog.zk_migration_ready == kafka.zk_migration_ready


@pytest.mark.parametrize("version", [0, 1])
def test_updates_of_features_are_refused_alike(twins, version) -> None:
    updates = [
        {"feature": f"{name}{level}{way}" if name else "", "max_version_level": level, "upgrade_type": way}
        for name in ("x", "metadata.version", "")
        for level in (1, 0, -1)
        for way in (1, 2, 3, 9)
    ]
    updates.append({"feature": "twice", "max_version_level": 1, "upgrade_type": 1})
    updates.append({"feature": "twice", "max_version_level": 0, "upgrade_type": 1})
    asked = [{**each, "allow_downgrade": each["upgrade_type"] == 2} for each in updates]
    kafka, klog = twins.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=asked)
    assert (klog.error_code, klog.error_message) == (kafka.error_code, kafka.error_message) == (0, None)
    messages = [
        {each.feature: (each.error_code, each.error_message) for each in one.results} for one in (kafka, klog)
    ]
    assert len(messages[0]) > 20
    assert messages[1] == messages[0]


def test_only_the_controller_updates_features() -> None:
    elsewhere = AdminCluster(elected=False)
    answer = elsewhere.ask(
        ApiKey.UPDATE_FEATURES, 1, feature_updates=[{"feature": "x", "max_version_level": 1}]
    )
    assert (answer.error_code, answer.results) == (41, ())


@pytest.mark.parametrize("version", create.VERSIONS)
def test_topics_are_created_alike(twins, version) -> None:
    topics = [
        create.wanted(f"made{version}", 2, 1, configs={"segment.ms": "60000"}, version=version),
        create.wanted(f"by-hand{version}", replicas={0: (1,), 1: (1,)}, version=version),
        create.wanted(f"by-default{version}", version=version),
        create.wanted("a/b", 1, 1, version=version),
        create.wanted("", 1, 1, version=version),
        create.wanted("none", 0, 1, version=version),
        create.wanted("nowhere", 1, 0, version=version),
        create.wanted("many", 1, 3, version=version),
        create.wanted("both", 1, 1, {0: (1,)}, version=version),
        create.wanted("gap", replicas={0: (1,), 2: (1,)}, version=version),
        create.wanted("uneven", replicas={0: (1,), 1: (1, 2)}, version=version),
        create.wanted("double", replicas={0: (1, 1)}, version=version),
        create.wanted("odd", 1, 1, configs={"no.such": "1"}, version=version),
        create.wanted("bad", 1, 1, configs={"retention.ms": "x"}, version=version),
        create.wanted("null", 1, 1, configs={"retention.ms": None}, version=version),
        create.wanted("lags", 1, 1, configs=create.CONTRADICTING, version=version),
        create.wanted("tiered", 1, 1, configs={"remote.storage.enable": "true"}, version=version),
        create.wanted("tiered2", 1, 1, configs={"remote.log.copy.disable": "true"}, version=version),
        create.wanted("twice", 1, 1, version=version),
        create.wanted("twice", 1, 1, version=version),
        create.wanted("__cluster_metadata", 1, 1, version=version),
    ]
    kafka, klog = twins.ask(ApiKey.CREATE_TOPICS, version, **create.values(*topics))
    assert comparable(klog) == comparable(kafka)
    again = create.values(create.wanted(f"made{version}", 1, 1, version=version))
    kafka, klog = twins.ask(ApiKey.CREATE_TOPICS, version, **again)
    assert comparable(klog) == comparable(kafka)


def test_colliding_names_are_refused_alike(twins) -> None:
    first = create.values(create.wanted("col.lide", 1, 1))
    second = create.values(create.wanted("col_lide", 1, 1))
    for values in (first, second):
        kafka, klog = twins.ask(ApiKey.CREATE_TOPICS, 7, **values)
        assert comparable(klog) == comparable(kafka)


def test_checks_are_answered_alike(twins) -> None:
    for topic in (create.wanted("check", 3, 1), create.wanted("check", 3, 2)):
        twins.agree(ApiKey.CREATE_TOPICS, 7, **create.values(topic, validate_only=True))


@pytest.mark.parametrize("version", range(4))
def test_topics_grow_alike(twins, version) -> None:
    name = f"grows{version}"
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted(name, 2, 1)))
    for topics in (
        [grow.wanted(name, 1, version=version)],
        [grow.wanted(name, 2, version=version)],
        [grow.wanted(name, -1, version=version)],
        [grow.wanted(name, 3, replicas=[(9,)], version=version)],
        [grow.wanted(name, 3, replicas=[], version=version)],
        [grow.wanted(name, 3, replicas=[()], version=version)],
        [grow.wanted(name, 3, replicas=[(1, 1)], version=version)],
        [grow.wanted(name, 4, replicas=[(1,)], version=version)],
        [grow.wanted("gone", 4, version=version)],
        [grow.wanted(name, 3, version=version), grow.wanted(name, 4, version=version)],
        [grow.wanted(name, 4, version=version)],
        [grow.wanted(name, 5, replicas=[(1,)], version=version)],
    ):
        kafka, klog = twins.ask(ApiKey.CREATE_PARTITIONS, version, **grow.values(*topics))
        assert comparable(klog) == comparable(kafka)
    twins.agree(ApiKey.METADATA, 9, **metadata.values(9, name))


@pytest.mark.parametrize("version", range(7))
def test_topics_are_deleted_alike(twins, version) -> None:
    name = f"goes{version}"
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted(name, 1, 1)))
    for names in ((name, "gone"), (name,)):
        kafka, klog = twins.ask(ApiKey.DELETE_TOPICS, version, **delete.by_name(version, *names))
        assert comparable(klog) == comparable(kafka)


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_metadata_is_told_alike(twins, version) -> None:
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted("told", 2, 1)))
    options = {"topic_operations": True, "cluster_operations": True}
    for values in (
        metadata.values(version, "told"),
        metadata.values(version, "told", **options),
        metadata.values(version, "told", "a/b", create=False),
        {**metadata.values(version), "topics": ()} if version else metadata.values(version, "told"),
    ):
        twins.agree(ApiKey.METADATA, version, **values)
    if version >= 10:
        ids = (UUID(int=1),)
        twins.agree(ApiKey.METADATA, version, **metadata.values(version, "told", ids=ids))
    if version >= 4:
        twins.agree(ApiKey.METADATA, version, **metadata.values(version, "absent", create=False))


def test_missing_topics_are_created_alike(twins) -> None:
    kafka, klog = twins.ask(ApiKey.METADATA, 9, **metadata.values(9, "sudden"))
    assert comparable(klog) == comparable(kafka)
    twins.agree(ApiKey.METADATA, 9, **metadata.values(9, "sudden"))
    twins.agree(ApiKey.DESCRIBE_CONFIGS, 4, **describing((describe.TOPIC, "sudden")))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", [1, 2, 9])
def test_the_cluster_is_described_alike(twins, version, kind) -> None:
    for operations in (True, False):
        twins.agree(
            ApiKey.DESCRIBE_CLUSTER,
            version,
            include_cluster_authorized_operations=operations,
            endpoint_type=kind,
        )


def describing(*resources, version=4, synonyms=True, keys=None):
    parts = tuple(
        part_of(
            ApiKey.DESCRIBE_CONFIGS,
            version,
            "DescribeConfigsResource",
            resource_type=kind,
            resource_name=name,
            configuration_keys=keys,
        )
        for kind, name in resources
    )
    return {"resources": parts, "include_synonyms": synonyms, "include_documentation": False}


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("synonyms", [True, False])
def test_configs_are_described_alike(twins, version, synonyms) -> None:
    overrides = {
        "segment.bytes": "500000",
        "cleanup.policy": "compact , delete",
        "min.cleanable.dirty.ratio": ".25",
    }
    topic = create.wanted("described", 1, 1, configs=overrides)
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(topic))
    for resource in ((describe.TOPIC, "described"), (describe.BROKER, str(ME)), (describe.BROKER, "")):
        values = describing(resource, version=version, synonyms=synonyms)
        twins.agree(ApiKey.DESCRIBE_CONFIGS, version, **values)


def test_configs_that_cannot_be_described_have_the_same_errors(twins) -> None:
    resources = [
        (describe.TOPIC, "gone"),
        (describe.TOPIC, "a/b"),
        (describe.TOPIC, ""),
        (describe.BROKER, "7"),
        (describe.BROKER, "one"),
        (describe.LOGGER, ""),
        (describe.LOGGER, "7"),
        (describe.CLIENT_METRICS, ""),
        (describe.CLIENT_METRICS, "x"),
    ]
    twins.agree(ApiKey.DESCRIBE_CONFIGS, 4, **describing(*resources))
    twins.agree(ApiKey.DESCRIBE_CONFIGS, 4, **describing((99, "x"), (describe.BROKER, "")))


def changed(api, version, kind, name, *settings):
    incremental = api == ApiKey.INCREMENTAL_ALTER_CONFIGS
    alterable = tuple(
        part_of(api, version, "AlterableConfig", config_operation=operation, name=key, value=value)
        if incremental
        else part_of(api, version, "AlterableConfig", name=key, value=value)
        for operation, key, value in settings
    )
    return part_of(
        api, version, "AlterConfigsResource", resource_type=kind, resource_name=name, configs=alterable
    )


TOPIC_CHANGES = [
    [(alter.SET, "segment.bytes", "600000")],
    [
        (alter.SET, "cleanup.policy", "compact"),
        (alter.APPEND, "leader.replication.throttled.replicas", "0:1"),
    ],
    [(alter.APPEND, "cleanup.policy", "delete")],
    [(alter.SUBTRACT, "cleanup.policy", "compact")],
    *(
        [(alter.APPEND, "cleanup.policy", text)]
        for text in ("", ",", "compact,,", ",delete", "delete,compact")
    ),
    *([(alter.SUBTRACT, "cleanup.policy", text)] for text in ("", ",", "compact,", "delete,delete")),
    [(alter.SET, "cleanup.policy", "delete")],
    [(alter.DELETE, "segment.bytes", None), (alter.DELETE, "no.such", None)],
    [(alter.SET, "no.such", "1")],
    [(alter.SET, "retention.ms", "soon")],
    [(alter.SET, "retention.ms", None)],
    [(alter.SET, "retention.ms", "1"), (alter.SET, "retention.ms", "2")],
    [(alter.APPEND, "retention.ms", "1")],
    [(alter.APPEND, "no.such", "1")],
    [(alter.SUBTRACT, "no.such", "1")],
    [(alter.SET, "min.compaction.lag.ms", "2"), (alter.SET, "max.compaction.lag.ms", "1")],
    [(alter.SET, "message.timestamp.before.max.ms", "7")],
]
BROKER_CHANGES = [
    [(alter.SET, "log.segment.bytes", "700000"), (alter.SET, "own.other", "y")],
    [(alter.SET, "log.retention.ms", "5000")],
    [(alter.SET, "leader.replication.throttled.rate", "1000")],
    [(alter.SET, "log.cleanup.policy", "compact"), (alter.SET, "num.io.threads", "8")],
    [(alter.APPEND, "log.cleanup.policy", "delete")],
    [(alter.SET, "num.partitions", "3")],
    [(alter.SET, "log.segment.bytes", "much")],
    [(alter.SET, "log.segment.bytes", "1")],
    [(alter.SET, "num.io.threads", "100")],
    [(alter.SET, "log.cleaner.threads", "7")],
    [(alter.SET, "ssl.keystore.location", "x")],
    [(alter.SET, "ssl.client.auth", "required"), (alter.SET, "ssl.enabled.protocols", "TLSv1.2")],
    [(alter.SET, "advertised.listeners", "nonsense")],
    [(alter.SET, "advertised.listeners", "SSL://localhost:1")],
    [(alter.SET, "listeners", "OUTER://127.0.0.1:0")],
    [(alter.SET, "num.network.threads", "7")],
    [(alter.SET, "background.threads", "21")],
    [(alter.SET, "num.recovery.threads.per.data.dir", "2")],
    [(alter.SET, "listener.name.plaintext.num.network.threads", "11")],
    [(alter.SET, "max.connections", "1000"), (alter.SET, "max.connection.creation.rate", "900")],
    [(alter.SET, "listener.name.plaintext.max.connections", "500")],
    [(alter.SET, "max.connections.per.ip", "400")],
    [(alter.SET, "max.connections.per.ip.overrides", "here")],
    [(alter.SET, "max.connections.per.ip.overrides", "127.0.0.1:300")],
    [(alter.SET, "listener.name.plaintext.ssl.key.password", "secret")],
    [
        (alter.SET, "listener.name.plaintext.ssl.truststore.certificates", "x"),
        (alter.SET, "num.io.threads", "5"),
    ],
    [(alter.SET, "listener.name.plaintext.ssl.key.password", "another"), (alter.SET, "own.other", "z")],
    [(alter.SET, "own.sasl.jaas.config", "secret")],
    [(alter.SET, "ssl.keystore.key", "secret")],
    [(alter.SET, "password.encoder.secret", "secret")],
    [(alter.DELETE, "listener.name.plaintext.ssl.key.password", None)],
    [(alter.SET, "follower.replication.throttled.rate", "-1")],
    [(alter.APPEND, "log.segment.bytes", "1")],
    [(alter.APPEND, "no.such", "1")],
    [(alter.DELETE, "log.segment.bytes", None), (alter.DELETE, "num.partitions", None)],
]
# With them Kafka closes the connection of whoever asks, some time later, and its controller's.
LIMITS_OF_NOBODY = [
    "max.connections",
    "max.connection.creation.rate",
    "max.connections.per.ip",
    "listener.name.plaintext.max.connections",
]


@pytest.mark.parametrize("settings", TOPIC_CHANGES, ids=lambda each: each[0][1])
def test_topic_configs_are_changed_alike(twins, settings) -> None:
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted("changed", 1, 1)))
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    resource = changed(api, 1, alter.TOPIC, "changed", *settings)
    kafka, klog = twins.ask(api, 1, resources=(resource,), validate_only=False)
    assert comparable(klog) == comparable(kafka)
    twins.agree(ApiKey.DESCRIBE_CONFIGS, 4, **describing((alter.TOPIC, "changed")))


@pytest.mark.parametrize("name", [str(ME), ""])
@pytest.mark.parametrize("settings", BROKER_CHANGES, ids=lambda each: each[0][1])
def test_broker_configs_are_changed_alike(twins, name, settings) -> None:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    resource = changed(api, 1, alter.BROKER, name, *settings)
    kafka, klog = twins.ask(api, 1, resources=(resource,), validate_only=False)
    assert comparable(klog) == comparable(kafka)
    for described in ((alter.BROKER, str(ME)), (alter.BROKER, ""), (alter.TOPIC, "described")):
        twins.agree(ApiKey.DESCRIBE_CONFIGS, 4, **describing(described))


@pytest.mark.parametrize("name", [str(ME), ""])
@pytest.mark.parametrize("key", LIMITS_OF_NOBODY)
def test_limits_that_let_nobody_in_are_checked_alike(twins, name, key) -> None:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    resource = changed(api, 1, alter.BROKER, name, (alter.SET, key, "0"))
    kafka, klog = twins.ask(api, 1, resources=(resource,), validate_only=True)
    assert comparable(klog) == comparable(kafka)


def test_configs_are_replaced_alike(twins) -> None:
    api = ApiKey.ALTER_CONFIGS
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted("replaced", 1, 1)))
    for resources in (
        [(alter.TOPIC, "replaced", (0, "retention.ms", "5"))],
        [(alter.TOPIC, "replaced", (0, "no.such", "5"))],
        [(alter.TOPIC, "replaced", (0, "retention.ms", "x"))],
        [(alter.TOPIC, "replaced", (0, "retention.ms", None))],
        [(alter.TOPIC, "gone", (0, "retention.ms", "5"))],
        [(alter.TOPIC, "", (0, "retention.ms", "5"))],
        [(alter.BROKER, "7", (0, "log.segment.bytes", "5000"))],
        [(alter.BROKER, "one", (0, "log.segment.bytes", "5000"))],
        [(alter.BROKER, str(ME), (0, "log.segment.bytes", "x"))],
        [(alter.LOGGER, str(ME), (0, "root", "INFO"))],
        [(99, "x", (0, "root", "INFO"))],
        [(alter.BROKER, str(ME)), (alter.BROKER, ""), (alter.TOPIC, "replaced")],
    ):
        parts = tuple(changed(api, 2, kind, name, *settings) for kind, name, *settings in resources)
        kafka, klog = twins.ask(api, 2, resources=parts, validate_only=False)
        assert comparable(klog) == comparable(kafka), resources


@pytest.mark.parametrize("version", range(3))
def test_elections_are_answered_alike(twins, version) -> None:
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted("elects", 2, 1)))
    for kind in (0, 1, 7):
        for partitions in ((0, 1), (0, 9)):
            asked = part_of(
                ApiKey.ELECT_LEADERS, version, "TopicPartitions", topic="elects", partitions=partitions
            )
            twins.agree(
                ApiKey.ELECT_LEADERS,
                version,
                topic_partitions=(asked,),
                election_type=kind,
                timeout=timedelta(seconds=60),
            )


def test_reassignments_are_answered_alike(twins) -> None:
    """Also the messages, which `kafka-reassign-partitions` prints."""
    twins.ask(ApiKey.CREATE_TOPICS, 7, **create.values(create.wanted("moves", 2, 1)))
    alter_api, list_api = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
    for target in ((), (1, 1), (1, -1), (1, 9), None, (1,)):
        kafka, klog = twins.ask(
            alter_api, 0, **moves.values({"moves": {0: target}, "gone": {3: target}, "": {0: (1,)}})
        )
        assert moves.results(klog) == moves.results(kafka), target
        assert (klog.error_code, klog.error_message) == (kafka.error_code, kafka.error_message)
    for asked in (None, {"moves": (0, 5), "gone": (0,)}, {}):
        kafka, klog = twins.ask(list_api, 0, **moves.asking(asked))
        assert klog == kafka
