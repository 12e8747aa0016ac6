"""Clients log in at klog by every mechanism, with and without TLS; with a wrong password they do not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import aiokafka.errors
import aiokafka.helpers
import confluent_kafka
import jwt
import kafka
import kafka.net.sasl.oauth
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from klog.admin import connect
from klog.admin.requests.scram_users import ScramMechanism, alter_users, salted
from klog.admin.settings import ClientSettings, parse_bootstrap
from tests.peers.broker import free_port
from tests.server.network.servers import TLS_FILES
from tests.swap.klog_process import KlogBroker

TIMEOUT_S = 30
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
PASSWORD = "wonder, land"
CERTIFICATE = TLS_FILES / "certificate.pem"
SESSION_MS = 1000
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Access(NamedTuple):
    bootstrap: str
    protocol: str
    mechanism: str
    password: str = PASSWORD


class Secured(KlogBroker):
    """A broker with a listener of each protocol; sessions last `SESSION_MS`."""

    def access(self, protocol: str, mechanism: str, password: str = PASSWORD) -> Access:
        listeners = dict(each.split("://") for each in str(self.config["listeners"]).split(","))
        return Access(listeners[protocol], protocol, mechanism, password)


_KEY, _OTHER_KEY = (rsa.generate_private_key(65537, 2048) for _ in range(2))


def key_set(work: Path) -> Path:
    """A file with the key that signs tokens."""
    path = work / "keys.json"
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_KEY.public_key()))
    path.write_text(json.dumps({"keys": [{**key, "kid": "1"}]}))
    return path


def token_of(access: Access) -> str:
    """A token of alice; with a wrong password it is signed by somebody else."""
    now_s = time.time()
    claims = {"sub": "alice", "iat": now_s, "exp": now_s + 300}
    key = _KEY if access.password == PASSWORD else _OTHER_KEY
    return jwt.encode(claims, key, "RS256", {"kid": "1"})


class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    def token(self) -> str:
        return token_of(self._access)


class AsyncTokens(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, access: Access) -> None:
        self._access = access

    async def token(self) -> str:
        return token_of(self._access)


@pytest.fixture(scope="module")
def klog(tmp_path_factory) -> Iterator[Secured]:
    work = tmp_path_factory.mktemp("sasl")
    keystore = work / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + CERTIFICATE.read_text())
    plain = free_port()
    listeners = [
        f"PLAINTEXT://localhost:{plain}",
        *(f"{name}://localhost:{free_port()}" for name in PROTOCOLS),
    ]
    config: dict[str, str | int] = {
        "listeners": ",".join(listeners),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "connections.max.reauth.ms": SESSION_MS,
        "sasl.oauthbearer.jwks.endpoint.url": key_set(work).as_uri(),
    }
    for name in PROTOCOLS:
        entry = f'{_PLAIN} required user_alice="{PASSWORD}";'
        config[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = entry
    with Secured(work, config) as broker:
        broker.port = plain
        broker.start()
        set_password(broker, "alice", PASSWORD)
        yield broker
        assert "Traceback" not in broker.log_text
        assert PASSWORD not in broker.log_text


def set_password(broker: KlogBroker, user: str, password: str) -> None:
    """Through the listener that wants no login."""
    address = parse_bootstrap(f"localhost:{broker.port}")
    with connect.cluster(ClientSettings(address)) as cluster:
        for mechanism in ScramMechanism:
            alter_users(cluster, [salted(user, password, mechanism, b"s" * 16)])


def of_librdkafka(access: Access, topic: str) -> bytes | None:
    settings: dict[str, Any] = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol,
        "sasl.mechanism": access.mechanism,
        "sasl.username": "alice",
        "sasl.password": access.password,
        "ssl.ca.location": str(CERTIFICATE),
    }
    if access.mechanism == "OAUTHBEARER":
        settings |= {"oauth_cb": lambda _: (token_of(access), time.time() + 300)}
    failures: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(settings | {"error_cb": failures.append})
    producer.produce(topic, b"of librdkafka")
    end_s = time.monotonic() + TIMEOUT_S
    while len(producer) and time.monotonic() < end_s:
        producer.poll(0.1)
        if any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in failures):
            producer.purge()
            producer.flush(TIMEOUT_S)
            return None
    time.sleep(1.5 * SESSION_MS / 1000)
    producer.produce(topic, b"in the next session")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        return record.value()
    finally:
        consumer.close()


def of_kafka_python(access: Access, topic: str) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": access.password,
        "ssl_cafile": str(CERTIFICATE),
    }
    if access.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens(access)
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"of kafka-python", partition=0).get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, auto_offset_reset="earliest", group_id=None)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    try:
        found = consumer.poll(TIMEOUT_S * 1000)
        return next(record.value for records in found.values() for record in records)
    finally:
        consumer.close()


def of_aiokafka(access: Access, topic: str) -> bytes | None:
    return asyncio.run(_of_aiokafka(access, topic))


async def _of_aiokafka(access: Access, topic: str) -> bytes | None:
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": access.password,
        "ssl_context": aiokafka.helpers.create_ssl_context(cafile=str(CERTIFICATE)),
    }
    if access.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AsyncTokens(access)
    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        await producer.start()
    except aiokafka.errors.KafkaError:
        await producer.stop()
        return None
    await producer.send_and_wait(topic, b"of aiokafka", partition=0)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(**settings, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        return (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value
    finally:
        await consumer.stop()


CLIENTS: dict[str, Callable[[Access, str], bytes | None]] = {
    "librdkafka": of_librdkafka,
    "kafka-python": of_kafka_python,
    "aiokafka": of_aiokafka,
}
"""Each writes a record to a topic and reads the first one; None if it could not log in."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_logs_in_writes_and_reads(klog: Secured, client: str, protocol: str, mechanism: str) -> None:
    topic = f"{client}-{protocol}-{mechanism}"
    assert CLIENTS[client](klog.access(protocol, mechanism), topic) == f"of {client}".encode()


# kafka-python tries again for 30 s. aiokafka takes the refusal of a token for a success.
TOLD = [
    *(("librdkafka", mechanism) for mechanism in MECHANISMS),
    *(("aiokafka", mechanism) for mechanism in MECHANISMS if mechanism != "OAUTHBEARER"),
]


@pytest.mark.parametrize(("client", "mechanism"), TOLD)
def test_a_client_with_a_wrong_password_is_told_at_once(klog: Secured, client: str, mechanism: str) -> None:
    assert CLIENTS[client](klog.access("SASL_PLAINTEXT", mechanism, "guess"), "t") is None
    assert "Failed authentication with" in klog.log_text
