"""klog and Kafka read each other's encrypted configs from ZooKeeper.

A certificate and its key are set while one broker runs, and the other serves with them when it takes over.
This also works after klog has encrypted them with another secret.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kazoo.client import KazooClient

from tests.peers.broker import SINGLE_BROKER, Config, ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.network.servers import TLS_FILES
from tests.swap.clients import TIMEOUT_S
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PREFIX = "listener.name.ssl.ssl.keystore"


def inline(file: str) -> dict[str, str]:
    """The key and the certificate of a PEM file, each on one line, as in a properties file."""
    text = (TLS_FILES / file).read_text().replace("\n", " ")
    start = text.index("-----BEGIN CERTIFICATE")
    return {f"{PREFIX}.key": text[:start], f"{PREFIX}.certificate.chain": text[start:]}


def certificate(file: str) -> str:
    text = (TLS_FILES / file).read_text()
    return text[text.index("-----BEGIN CERTIFICATE") :]


def set_configs(bootstrap: str, configs: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in configs.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "7", incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)


def stored(hosts: str) -> dict[str, str]:
    client = KazooClient(hosts)
    client.start(60)
    try:
        configs: dict[str, str] = json.loads(client.get("/config/brokers/7")[0])["config"]
        return configs
    finally:
        client.stop()
        client.close()


def test_each_reads_the_secrets_of_the_other_and_encrypts_them_anew(
    tmp_path: Path, kafka3: KafkaPeer
) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper:
        plain, secure = free_port(), free_port()
        config: Config = {
            **SINGLE_BROKER,
            "broker.id": 7,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}",
            "log.dirs": str(tmp_path / "logs"),
            "zookeeper.connect": zookeeper.hosts,
            "ssl.keystore.type": "PEM",
            **inline("fewer_names.pem"),
        }
        first: Config = {"password.encoder.secret": "first"}
        # Kafka 3.9.1 itself starts with both secrets only if another broker is the controller already.
        both: Config = {"password.encoder.secret": "second", "password.encoder.old.secret": "first"}

        def shown() -> str:
            return ssl.get_server_certificate(("127.0.0.1", secure), timeout=TIMEOUT_S)

        with KlogBroker(tmp_path / "klog", {**config, **first}) as klog:
            klog.start()
            assert shown() == certificate("fewer_names.pem")
            set_configs(f"127.0.0.1:{plain}", inline("first.pem"))
            eventually(lambda: shown() == certificate("first.pem"))
            klog.stop()
        with ZooKeeperBroker(tmp_path / "kafka", {**config, **first}, kafka3):
            assert shown() == certificate("first.pem")
            set_configs(f"127.0.0.1:{plain}", inline("renewed.pem"))
            eventually(lambda: shown() == certificate("renewed.pem"))
            by_kafka = stored(zookeeper.hosts)
        with KlogBroker(tmp_path / "klog", {**config, **both}) as klog:
            klog.start()
            assert shown() == certificate("renewed.pem")
            assert "cannot be read" not in klog.log_text
            by_klog = stored(zookeeper.hosts)
            assert by_klog.keys() == by_kafka.keys() == inline("first.pem").keys()
            assert all(by_klog[name] != by_kafka[name] for name in by_klog)
            klog.stop()
        with ZooKeeperBroker(tmp_path / "kafka", {**config, "password.encoder.secret": "second"}, kafka3):
            assert shown() == certificate("renewed.pem")
