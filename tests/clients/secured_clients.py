"""Clients that log in, write a record to a topic and read the first one: in Python, Java and Go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
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
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.peers.golang import go_program
from tests.peers.java_server import JavaServer
from tests.peers.kafka import KAFKA_3, QUICK_FLAGS, KafkaPeer
from tests.server.network.servers import TLS_FILES

TIMEOUT_S = 30
PASSWORD = "wonder, land"
CERTIFICATE = TLS_FILES / "certificate.pem"
SESSION_MS = 2200
"""How long a login at SASL_PLAINTEXT is good for. franz-go renews it 1 s before its end, and in its first
second it may not be renewed.
"""
_SECURITY = "org.apache.kafka.common.security"


class Access(NamedTuple):
    """Where and how to log in."""

    bootstrap: str
    protocol: str
    mechanism: str
    password: str = PASSWORD

    @property
    def pause_ms(self) -> int:
        """The time between two records, after which a client must have logged in again."""
        return SESSION_MS + 100 if self.protocol == "SASL_PLAINTEXT" else 0


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
    time.sleep(access.pause_ms / 1000)
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


Fields = Callable[[Access, str, Path], list[str]]
"""The line that a program reads, for a topic and a directory for files."""


class Program:
    """A client in another language: a process that runs all its cases, one after the other."""

    def __init__(
        self, command: list[str], fields: Callable[[Access, str, Path], list[str]], work: Path
    ) -> None:
        self._process = JavaServer(command)
        self._fields = fields
        self._work = work

    def __call__(self, access: Access, topic: str) -> bytes | None:
        kind, value = self._process.ask(*self._fields(access, topic, self._work))
        if kind == "refused":
            assert "uthentication" in value, value
            return None
        return value.encode()

    def close(self) -> None:
        self._process.close()


def java(work: Path) -> Program:
    """Kafka's own client. Raises PeerUnavailableError."""
    flags = (*QUICK_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    return Program(KafkaPeer(KAFKA_3).command("SecuredClient", jvm_flags=flags), _java_fields, work)


def franz_go(work: Path) -> Program:
    """Raises PeerUnavailableError."""
    return Program([str(go_program("secured_client"))], _go_fields, work)


def _go_fields(access: Access, topic: str, _: Path) -> list[str]:
    secret = token_of(access) if access.mechanism == "OAUTHBEARER" else access.password
    login = [access.bootstrap, access.protocol, access.mechanism, "alice", secret]
    return [*login, str(CERTIFICATE), topic, str(access.pause_ms)]


def _java_fields(access: Access, topic: str, work: Path) -> list[str]:
    configs = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(CERTIFICATE),
    }
    if access.protocol.startswith("SASL"):
        configs |= {"sasl.mechanism": access.mechanism, **_java_login(access, work)}
    return [topic, str(access.pause_ms), *(f"{name}={value}" for name, value in configs.items())]


def _java_login(access: Access, work: Path) -> dict[str, str]:
    if access.mechanism == "OAUTHBEARER":
        token = work / "token"
        token.write_text(token_of(access))
        module = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
        return {
            "sasl.jaas.config": f"{module} required;",
            "sasl.login.callback.handler.class": (
                f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
    module = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'{_SECURITY}.{module} required username="alice" password="{access.password}";'
    return {"sasl.jaas.config": login}


Client = Callable[[Access, str], bytes | None]
"""Writes a record to a topic and reads the first one; None if it could not log in."""

PYTHON_CLIENTS: dict[str, Client] = {
    "librdkafka": of_librdkafka,
    "kafka-python": of_kafka_python,
    "aiokafka": of_aiokafka,
}
PROGRAMS: dict[str, Callable[[Path], Program]] = {"Java": java, "franz-go": franz_go}
