"""klog's tables of configs equal those of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from klog.config import broker, topic
from klog.config.broker import ALLOW_UNENFORCED, BrokerConfig
from klog.config.broker_checks import check_together
from klog.config.broker_protection import unenforced
from klog.config.keys import ConfigError, Dynamic, Type, text_of
from klog.server.network.listeners import read_listeners
from klog.server.startup.settings import log_directories, network_settings
from tests.peers.kafka import KafkaPeer

pytestmark = pytest.mark.kafka


def words(text: str) -> Sequence[str]:
    return text.split()


NUMBERS: Final = (
    *words("-9223372036854775809 -2147483649 -32769 -131073 -131072 -2 -1 0 1 3 4 9 10 13 14 17 18 22 23"),
    *words("1000 1001 32768 65536 1048576 2147483647 2147483648 9223372036854775807 9223372036854775808"),
    *("", " 7 ", "+7", "1.5", "abc", "1_0", "0x10", "1e3", "7L"),
)
VALUES: Final[Mapping[Type, Sequence[str]]] = {
    Type.INT: NUMBERS,
    Type.SHORT: NUMBERS,
    Type.LONG: NUMBERS,
    Type.DOUBLE: (
        *words("-1 -0.1 0 0.5 1 1.0001 1e3 NaN Infinity inf nan 1_0 1d 1f .5 5. 1e400 abc"),
        *("", " 0.5 "),
    ),
    Type.BOOLEAN: ("true", "TRUE", " true ", "false", "yes", "1", "", "tru e"),
    Type.STRING: (
        *("", " ", " gzip ", "abc", "*", "1:2", "a:b", "127.0.0.1:5", "127.0.0.1:x", "a b:5", "host:-1"),
        *words("PLAINTEXT SSL plaintext none producer gzip GZIP snappy lz4 zstd uncompressed required"),
        *words("CreateTime LogAppendTime createtime 0.8 0.8.2 0.8.2-IV0 0.9.0.0 0.10.0-IV1 0.11 1.0 2.8"),
        *words(
            "2.8-IV1 2.8-IV9 3.0 3.0.1 3.9 3.9-IV0 3.9.1 3.10 4.0-IV0 4.0 9.9 HTTPS https PEM TLS TLSv1.3"
        ),
    ),
    Type.LIST: ("", "compact", "delete", "delete , compact", "compact,", "x", "classic,consumer", "TLSv1.2"),
}
# Configs of KRaft, which klog does not use, and lists of Java classes.
OTHERS: Final = (
    "controller.",
    "early.start.listeners",
    "group.consumer.assignors",
    "group.coordinator.rebalance.protocols",
    "process.roles",
    "replica.selector.class",
    "zookeeper.metadata.migration.enable",
)
NAMED: Final = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"
TOGETHER: Final = (
    "broker.id=5 node.id=5",
    "broker.id=5 node.id=6",
    "node.id=7",
    "node.id=1001",
    "broker.id=-1 broker.id.generation.enable=false",
    "broker.id=1001",
    "broker.id=2000 reserved.broker.max.id=3000",
    "broker.id=1001 broker.id.generation.enable=false",
    "listeners=PLAINTEXT://0.0.0.0:9092",
    "listeners=PLAINTEXT://0.0.0.0:9092 advertised.listeners=PLAINTEXT://h:9092",
    "listeners=PLAINTEXT://a:1 advertised.listeners=PLAINTEXT://0.0.0.0:1",
    "listeners=PLAINTEXT://a:1 advertised.listeners=",
    "listeners=PLAINTEXT://a:1 advertised.listeners=PLAINTEXT://b:1,EXT://c:1",
    "listeners=PLAINTEXT://[::]:9092",
    "listeners=PLAINTEXT://a:1,PLAINTEXT://b:2",
    "listeners=PLAINTEXT://a:1,",
    "listeners=PLAINTEXT://a",
    "listeners=PLAIN-TEXT://a:1",
    "listeners=PLAINTEXT://a:1 security.inter.broker.protocol=SSL",
    "listeners=PLAINTEXT://a:1 control.plane.listener.name=CP",
    "listeners=PLAINTEXT://a:1 control.plane.listener.name=PLAINTEXT",
    f"listeners=A://a:1,B://b:2 inter.broker.listener.name=A {NAMED}",
    f"listeners=A://a:1,B://b:2 inter.broker.listener.name=A control.plane.listener.name=B {NAMED}",
    f"listeners=a://a:1 inter.broker.listener.name=a {NAMED}",
    f"listeners=A://a:1 {NAMED}",
    f"listeners=A://a:1 security.inter.broker.protocol=PLAINTEXT {NAMED}",
    f"listeners=A://a:1 inter.broker.listener.name=A security.inter.broker.protocol=PLAINTEXT {NAMED}",
    f"listeners=A://a:1,B://a:1 inter.broker.listener.name=A {NAMED}",
    f"listeners=A://:1,B://b:1 inter.broker.listener.name=A {NAMED}",
    f"listeners=A://a:0,B://a:0 inter.broker.listener.name=A {NAMED}",
    f"listeners=A://127.0.0.1:1,B://[::1]:1 inter.broker.listener.name=A {NAMED}",
    f"listeners=A://127.0.0.1:1,B://127.0.0.2:1 inter.broker.listener.name=A {NAMED}",
    f"listeners=A://127.0.0.1:1,B://[::1]:1,C://c:1 inter.broker.listener.name=A {NAMED}",
    "log.cleaner.threads=2 log.cleaner.dedupe.buffer.size=2097152",
    "log.cleaner.threads=2 log.cleaner.dedupe.buffer.size=2097154",
    "replica.fetch.wait.max.ms=31000",
    "replica.fetch.wait.max.ms=30001 replica.socket.timeout.ms=40000",
    "log.retention.minutes=-1 log.retention.hours=0",
    "log.retention.minutes=0 log.retention.hours=1",
    "log.retention.ms=-1 log.retention.hours=0",
    "log.roll.ms=0 log.roll.hours=1",
    "connections.max.idle.ms=100",
    "connections.max.idle.ms=101",
    "connections.max.idle.ms=-1",
    "connection.failed.authentication.delay.ms=700000",
    "max.connections.per.ip=0",
    "max.connections.per.ip=0 max.connections.per.ip.overrides=127.0.0.1:5",
    "queued.max.request.bytes=104857599",
    "log.message.format.version=3.0 inter.broker.protocol.version=0.9.0",
    "log.message.format.version=0.10.0 inter.broker.protocol.version=0.9.0",
    "log.message.format.version=0.8.2 inter.broker.protocol.version=0.9.0",
    "group.consumer.session.timeout.ms=10000000",
    "group.consumer.min.session.timeout.ms=46000",
    "offsets.commit.required.acks=2 offsets.topic.replication.factor=2",
    "log.dirs=",
    "log.dirs= log.dir=/x",
    "log.dirs=/a,,/b",
)


def ours(configs: Mapping[str, str]) -> str:
    """`ok`, or klog's error for these configs."""
    try:
        # Kafka has what these configs ask for; klog would refuse to start without it.
        allowed = ",".join(unenforced(BrokerConfig(configs)))
        config = BrokerConfig({**configs, ALLOW_UNENFORCED: allowed})
        check_together(config)
        network_settings(config, read_listeners(config))
        log_directories(config)
    except ConfigError as error:
        return str(error)
    return "ok"


def assert_same_verdicts(kafka3: KafkaPeer, cases: Sequence[Mapping[str, str]]) -> None:
    """Kafka accepts and rejects the same configs as klog."""
    whole = [{"zookeeper.connect": "x", "log.dirs": "/x", **case} for case in cases]
    asked = "\n".join("\t".join(f"{name}={text}" for name, text in each.items()) for each in whole)
    theirs = kafka3.java("ConfigCheck", stdin=asked.encode()).stdout.decode().splitlines()
    assert len(theirs) == len(cases)
    judged = [(case, ours(each), said) for case, each, said in zip(cases, whole, theirs, strict=True)]
    assert [each for each in judged if (each[1] == "ok") != (each[2] == "ok")] == []


@pytest.fixture(scope="module")
def kafka_says(kafka3: KafkaPeer) -> dict[str, dict[str, tuple[str, str, bool]]]:
    """kind -> config name -> (type, default, dynamic)."""
    listed: dict[str, dict[str, tuple[str, str, bool]]] = {"broker": {}, "topic": {}}
    for line in kafka3.java("ConfigList").stdout.decode().splitlines():
        kind, name, type_, default, dynamic = line.split("\t")
        listed[kind][name] = (type_, default, dynamic == "true")
    return listed


def test_broker_configs_have_kafkas_names_types_defaults_and_mutability(kafka_says) -> None:
    ours = {
        key.name: (key.type.name, text_of(key.default) or "", key.dynamic is not Dynamic.READ_ONLY)
        for key in broker.KEYS_BY_NAME.values()
    }
    assert len(ours) > 300
    assert ours == kafka_says["broker"]


def test_topic_configs_have_kafkas_names_types_and_defaults(kafka_says) -> None:
    ours = {key.name: (key.type.name, text_of(key.default) or "") for key in topic.KEYS_BY_NAME.values()}
    assert ours == {name: (type_, default) for name, (type_, default, _) in kafka_says["topic"].items()}


def test_each_broker_config_accepts_the_values_that_kafka_accepts(kafka3: KafkaPeer) -> None:
    keys = [key for key in broker.KEYS_BY_NAME.values() if not key.name.startswith(OTHERS)]
    cases = [{key.name: text} for key in keys for text in VALUES.get(key.type, ())]
    assert len(cases) > 5000
    assert_same_verdicts(kafka3, cases)


def test_broker_configs_are_checked_together_as_in_kafka(kafka3: KafkaPeer) -> None:
    cases = [dict(each.split("=", 1) for each in case.split(" ")) for case in TOGETHER]
    assert_same_verdicts(kafka3, cases)
