"""Real Kafka starts with translated files, and knows the configs that the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from klog.config.broker import KEYS_BY_NAME
from klog.config.keys import text_of
from klog.config.kraft_names import ADDED, DEFAULTS, GONE, reason_in
from klog.config.kraft_properties import KRaftNode, to_kraft
from klog.config.zookeeper_properties import to_zookeeper
from klog.formats.java_properties import build, parse_text
from tests.peers import KafkaPeer, KRaftBroker, ZooKeeperBroker
from tests.peers.broker import Config, properties_text

pytestmark = pytest.mark.kafka
TIMEOUT_S = 60
RENAMED = {
    "auto.include.jmx.reporter",
    "delegation.token.master.key",
    "log.message.timestamp.difference.max.ms",
}


def all_defaults() -> dict[str, str]:
    """Each config of Kafka 3.9 that has a default, set to it."""
    found = {
        name: text_of(key.default) for name, key in KEYS_BY_NAME.items() if not key.internal and key.default
    }
    return {name: text for name, text in found.items() if text and name not in ("node.id", "broker.id")}


class Translated(KRaftBroker):
    """Kafka 4.1 with the translated file of a broker with ZooKeeper that sets all configs."""

    def _write_config(self, config: Config) -> Path:
        of_kraft = ("process.roles", "controller.", "node.id", "listener.security", "listeners")
        kept = {name: value for name, value in config.items() if not name.startswith(of_kraft)}
        before = {
            **all_defaults(),
            **kept,
            "broker.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": "127.0.0.1:2181",
            "log.message.timestamp.difference.max.ms": 5000,
            "log.segment.bytes": 14,
        }
        del before["log.message.timestamp.before.max.ms"], before["log.message.timestamp.after.max.ms"]
        node = KRaftNode(("broker", "controller"), voters=str(config["controller.quorum.voters"]))
        found = to_kraft(parse_text(properties_text(before)), node)
        assert found.is_complete
        path = self.work / "server.properties"
        path.write_bytes(build(found.lines))
        return path


class TranslatedBack(ZooKeeperBroker):
    """Kafka 3.9 with a file that was translated to KRaft and back."""

    def _write_config(self, config: Config) -> Path:
        node = KRaftNode(("broker", "controller"), voters="0@127.0.0.1:1")
        there = to_kraft(parse_text(properties_text(config)), node)
        found = to_zookeeper(there.lines, str(config["zookeeper.connect"]))
        assert found.is_complete
        path = self.work / "server.properties"
        path.write_bytes(build(found.lines))
        return path


def described(bootstrap: str, broker_id: int) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: each.value for name, each in found.items()}


def test_kafka_4_starts_with_all_configs_of_kafka_3_and_has_what_the_tables_say(
    kafka4: KafkaPeer, tmp_path: Path
) -> None:
    with Translated(tmp_path, peer=kafka4) as broker:
        found = described(broker.bootstrap, 1)
    assert found["log.segment.bytes"] == str(1 << 20)
    assert found["log.message.timestamp.before.max.ms"] == "5000"
    assert found["log.message.timestamp.after.max.ms"] == "5000"
    before = {name for name, key in KEYS_BY_NAME.items() if not key.internal} - RENAMED
    known = {name for name in found if not name.startswith("internal.")}
    gone = {name for name in before if reason_in(GONE, name) is not None}
    assert before - known == gone
    assert {name for name in known - KEYS_BY_NAME.keys() if reason_in(ADDED, name) is None} == set()


def test_kafka_4_has_the_defaults_that_the_table_says(kafka4: KafkaPeer, tmp_path: Path) -> None:
    with KRaftBroker(tmp_path, peer=kafka4) as broker:
        found = described(broker.bootstrap, 1)
    assert {name: found[name] for name in DEFAULTS} == {name: each.after for name, each in DEFAULTS.items()}
    now = {name: text_of(KEYS_BY_NAME[name].default) for name in DEFAULTS}
    assert now == {name: each.before for name, each in DEFAULTS.items()}


def test_kafka_3_starts_with_a_file_that_was_translated_there_and_back(
    kafka3: KafkaPeer, tmp_path: Path
) -> None:
    more: Config = {"log.segment.bytes": 2 << 20, "num.partitions": 3}
    with TranslatedBack(tmp_path, more, peer=kafka3) as broker:
        found = described(broker.bootstrap, 0)
    assert (found["log.segment.bytes"], found["num.partitions"]) == (str(2 << 20), "3")
