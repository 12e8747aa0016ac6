"""Clients use a TLS listener of a broker that also has a plaintext listener."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, KafkaException, NewTopic

import klog.testing
from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.server.network.listeners import read_listeners
from klog.testing import BrokerProcess
from tests.clients.python_clients import AioKafka, ConfluentKafka, KafkaPython, Sent
from tests.server.network.servers import TLS_FILES
from tests.waiting import eventually

CERTIFICATE = TLS_FILES / "certificate.pem"


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory) -> Iterator[BrokerProcess]:
    keystore = tmp_path_factory.mktemp("tls") / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + CERTIFICATE.read_text())
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
    }
    with klog.testing.broker(config) as process:
        yield process


def over_tls(name: str, address: str):
    if name == "confluent-kafka":
        config = {"security.protocol": "ssl", "ssl.ca.location": str(CERTIFICATE)}
        return ConfluentKafka(address, **config)
    if name == "kafka-python":
        return KafkaPython(address, security_protocol="SSL", ssl_cafile=str(CERTIFICATE))
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    return AioKafka(address, security_protocol="SSL", ssl_context=context)


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_what_is_written_over_tls_is_read_over_tls_and_without(tls_broker, name):
    tls_broker.create_topic(name)
    records = [Sent(b"value %d" % n + b"x" * 1000, b"key") for n in range(500)]
    client = over_tls(name, tls_broker.endpoints["SSL"])
    assert client.write(name, records, codec="lz4") == list(range(500))
    plain = ConfluentKafka(tls_broker.endpoints["PLAINTEXT"])
    for reader in (client, plain):
        assert [record.value for record in reader.read(name)] == [record.value for record in records]


def test_a_plain_client_on_the_tls_listener_gets_nothing_and_disturbs_nobody(tls_broker):
    tls_broker.create_topic("unharmed")
    plain = ConfluentKafka(tls_broker.endpoints["SSL"])
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT|_ALL_BROKERS_DOWN"):
        AdminClient(plain.config).list_topics(timeout=1)
    assert ConfluentKafka(tls_broker.endpoints["PLAINTEXT"]).write("unharmed", [Sent(b"v")]) == [0]


def test_a_client_cannot_ask_for_another_handshake_on_its_connection(tls_broker):
    address = tls_broker.endpoints["SSL"]
    command = ["openssl", "s_client", "-connect", address, "-tls1_2", "-servername", "localhost"]
    # The letter at the start of what it sends is a command of s_client.
    said = subprocess.run(command, input="R\n", stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
    assert "RENEGOTIATING" in said.stdout
    assert "no renegotiation" in said.stdout


def test_the_context_of_a_listener_refuses_renegotiation_whatever_openssl_would_do(tmp_path):
    (listener,) = read_listeners(BrokerConfig(only_tls(tmp_path, CERTIFICATE))).bound
    assert listener.tls.options & ssl.OP_NO_RENEGOTIATION


def client_of(process: BrokerProcess) -> ConfluentKafka:
    """A client with a certificate."""
    return ConfluentKafka(
        process.endpoints["SSL"],
        **{
            "security.protocol": "ssl",
            "ssl.ca.location": str(CERTIFICATE),
            "ssl.certificate.location": str(CERTIFICATE),
            "ssl.key.location": str(TLS_FILES / "key.pem"),
        },
    )


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_broker_with_only_tls_listeners_gets_requests_of_its_own_controller(tmp_path, client_auth):
    config = only_tls(tmp_path, CERTIFICATE) | {"ssl.client.auth": client_auth}
    with klog.testing.broker(config) as process:
        client = client_of(process)
        admin = AdminClient(client.config)
        admin.create_topics([NewTopic("led", 1, 1)])["led"].result(60)
        assert client.write("led", [Sent(b"v")]) == [0]
        assert [record.value for record in client.read("led")] == [b"v"]


def test_markers_of_transactions_go_over_tls_where_brokers_use_it(tmp_path):
    config = only_tls(tmp_path, CERTIFICATE) | {"ssl.client.auth": "required"}
    with klog.testing.broker(config) as process:
        client = client_of(process)
        admin = AdminClient(client.config)
        admin.create_topics([NewTopic("led", 1, 1)])["led"].result(60)
        producer = Producer({**client.config, "transactional.id": "payments"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("led", b"v")
        producer.commit_transaction(60)

        def committed() -> list[bytes | None]:
            return [record.value for record in client.read("led", isolation="read_committed")]

        eventually(lambda: committed() == [b"v"])


def test_a_broker_that_would_not_trust_other_brokers_does_not_start(tmp_path):
    config = only_tls(tmp_path, TLS_FILES / "other_holder.pem")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        read_listeners(BrokerConfig(config))
    beside = {
        "listeners": "SSL://localhost:0,PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "PLAINTEXT",
    }
    assert read_listeners(BrokerConfig(config | beside)).inter_broker == "PLAINTEXT"


def only_tls(work: Path, truststore: Path) -> dict[str, str]:
    keystore = work / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + CERTIFICATE.read_text())
    return {
        "listeners": "SSL://localhost:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(truststore),
    }


STORES = Path(__file__).parents[1] / "config" / "stores"


@pytest.mark.parametrize(
    ("key_store", "trust_store", "key_password"),
    [
        ("key.jks", "trust.jks", "keypw123"),
        ("key.p12", "trust.p12", None),
        ("key.jks", "trust.p12", "keypw123"),
    ],
)
def test_java_s_stores_open_tls_in_both_directions(
    key_store: str, trust_store: str, key_password: str | None
) -> None:
    config = {
        "listeners": "SSL://localhost:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(STORES / key_store),
        "ssl.keystore.password": "storepw",
        "ssl.keystore.type": "PKCS12" if key_store.endswith("p12") else "JKS",
        "ssl.truststore.location": str(STORES / trust_store),
        "ssl.truststore.type": "PKCS12" if trust_store.endswith("p12") else "JKS",
        "ssl.truststore.password": "storepw",
    }
    if key_password is not None:
        config["ssl.key.password"] = key_password
    # The broker makes a handshake with itself, since brokers connect to each other there.
    assert read_listeners(BrokerConfig(config)).bound[0].tls is not None
    for wrong in (
        {"ssl.keystore.password": "wrong"},
        {"ssl.truststore.password": "wrong"},
        {"ssl.keystore.password": ""},
    ):
        with pytest.raises(ConfigError) as refused:
            read_listeners(BrokerConfig(config | wrong))
        assert "storepw" not in str(refused.value)
