"""Brokers of klog and of Kafka log in at each other, and obey each other's users."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klog.admin import connect
from klog.admin.requests.scram_users import ScramMechanism, alter_users, salted
from klog.admin.settings import settings_of
from tests.commands.running import Run, runner
from tests.peers.broker import SINGLE_BROKER, ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.server.network.servers import TLS_FILES
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

TIMEOUT_S = 60
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
CERTIFICATE = TLS_FILES / "certificate.pem"
SESSION_MS = 2000
USER, PASSWORD = "broker", "between-brokers"


def keystore(work: Path) -> Path:
    path = work / "keystore.pem"
    path.write_text((TLS_FILES / "key.pem").read_text() + CERTIFICATE.read_text())
    return path


def config_of(work: Path, broker_id: int, protocol: str, hosts: str | None = None) -> dict[str, str | int]:
    """A broker with one listener, which wants SCRAM of everybody, brokers included."""
    config: dict[str, str | int] = {
        **SINGLE_BROKER,
        "broker.id": broker_id,
        "log.dirs": str(work / f"logs-{broker_id}"),
        "listeners": f"SECURED://localhost:{free_port()}",
        "listener.security.protocol.map": f"SECURED:{protocol}",
        "inter.broker.listener.name": "SECURED",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.secured.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM} required username="{USER}" password="{PASSWORD}";'
        ),
        "connections.max.reauth.ms": SESSION_MS,
        "auto.create.topics.enable": "false",
    }
    if hosts is not None:
        config["zookeeper.connect"] = hosts
    if protocol == "SASL_SSL":
        config |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore(work)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(CERTIFICATE),
        }
    return config


def address_of(config: dict[str, str | int]) -> str:
    return str(config["listeners"]).removeprefix("SECURED://")


def of_librdkafka(address: str, protocol: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": protocol,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(CERTIFICATE),
    }


def write_and_read(settings: dict[str, str], topic: str, value: bytes, partition: int = 0) -> None:
    producer = Producer(settings | {"acks": "all"})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes | None] = []

        def is_read() -> bool:
            record = consumer.poll(0.2)
            if record is not None and record.error() is None:
                found.append(record.value())
            return value in found

        eventually(is_read, TIMEOUT_S)
    finally:
        consumer.close()


@pytest.fixture
def klog_command(capfd, monkeypatch, tmp_path) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return runner(capfd, monkeypatch)


def set_first_password(run: Run, work: Path, config: dict[str, str | int]) -> None:
    """The user of the brokers, before any of them runs."""
    properties, password = work / "first.properties", work / "password"
    properties.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    done = run(*("users", "set-password", USER, "--password-file", password, "--broker-config", properties))
    assert done.code == 0, done.err


def test_a_broker_that_wants_a_login_of_everybody_starts_with_the_first_user(
    klog_command: Run, tmp_path: Path
) -> None:
    config = config_of(tmp_path, 0, "SASL_SSL")
    set_first_password(klog_command, tmp_path, config)
    with KlogBroker(tmp_path / "klog", config) as broker:
        broker.start()
        settings = of_librdkafka(address_of(config), "SASL_SSL")
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("t", 1)])["t"].result(TIMEOUT_S)
        # The controller's connection to this broker is in its second session then.
        time.sleep(1.5 * SESSION_MS / 1000)
        admin.create_topics([NewTopic("u", 1)])["u"].result(TIMEOUT_S)
        write_and_read(settings, "u", b"v")
        broker.stop()
        assert broker.complaints == []
        assert "session has expired" not in broker.log_text
        assert PASSWORD not in broker.log_text


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("first", ["klog", "kafka"])
def test_klog_and_kafka_replicate_from_each_other(
    kafka3: KafkaPeer, klog_command: Run, tmp_path: Path, protocol: str, first: str
) -> None:
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeperServer(tmp_path / "zookeeper", kafka3))
        klog_config = config_of(tmp_path, 7, protocol, zookeeper.hosts)
        kafka_config = config_of(tmp_path, 8, protocol, zookeeper.hosts)
        if first == "klog":
            set_first_password(klog_command, tmp_path, klog_config)
        else:
            set_by_kafka(kafka3, zookeeper.hosts)

        def start_klog() -> None:
            running.enter_context(KlogBroker(tmp_path / "klog", klog_config)).start()

        def start_kafka() -> None:
            running.enter_context(ZooKeeperBroker(tmp_path / "kafka", kafka_config, kafka3))

        # The first one becomes the controller.
        for start in (start_klog, start_kafka) if first == "klog" else (start_kafka, start_klog):
            start()
        settings = of_librdkafka(address_of(klog_config), protocol)
        admin = AdminClient(settings)
        eventually(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == 2, TIMEOUT_S)
        topic = NewTopic("t", 2, replica_assignment=[[7, 8], [8, 7]])
        admin.create_topics([topic])["t"].result(TIMEOUT_S)
        for partition in (0, 1):
            write_and_read(settings, "t", b"before", partition)
        time.sleep(1.5 * SESSION_MS / 1000)
        for partition in (0, 1):
            write_and_read(settings, "t", b"after", partition)
        eventually(lambda: all_in_sync(admin), TIMEOUT_S)
        check_users_are_shared(klog_config, kafka_config, protocol)


def all_in_sync(admin: AdminClient) -> bool:
    found = admin.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions.values()
    return all(sorted(each.isrs) == [7, 8] for each in found)


def set_by_kafka(kafka3: KafkaPeer, hosts: str) -> None:
    done = kafka3.java(
        "kafka.admin.ConfigCommand",
        *("--zookeeper", hosts, "--alter", "--entity-type", "users", "--entity-name", USER),
        *("--add-config", f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]"),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_users_are_shared(
    klog_config: dict[str, str | int], kafka_config: dict[str, str | int], protocol: str
) -> None:
    """A user that one broker has taken logs in at the other."""
    klog, kafka = (address_of(each) for each in (klog_config, kafka_config))
    for user, asked, other in (("carol", klog, kafka), ("dave", kafka, klog)):
        login = f'x.Login required username="{USER}" password="{PASSWORD}";'
        properties = {
            "security.protocol": protocol,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(CERTIFICATE),
        }
        with connect.cluster(settings_of(properties, bootstrap=asked)) as cluster:
            alter_users(cluster, [salted(user, "pencil", ScramMechanism.SCRAM_SHA_512, b"s" * 16)])
        write_and_read(of_librdkafka(other, protocol, user, "pencil"), "t", user.encode())
