"""Users of SASL with ACLs on klog's broker: real clients do what they may, and are told what they may not."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest

from tests.peers.broker import free_port
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

TIMEOUT_S = 30
TOPIC, HIDDEN, GROUP = "orders", "salaries", "billing"
PASSWORDS = {"admin": "a1", "alice": "a2", "bob": "b3"}


@pytest.fixture(scope="module")
def klog(tmp_path_factory) -> Iterator[str]:
    """The address of a broker whose administrator, who is also the brokers' user, is its only super user."""
    port = free_port()
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    config: dict[str, str | int] = {
        "listeners": f"SASL_PLAINTEXT://localhost:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="{PASSWORDS["admin"]}" {users};'
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    with KlogBroker(tmp_path_factory.mktemp("acls"), config) as broker:
        broker.start()
        address = f"localhost:{port}"
        _prepare(address)
        yield address
        assert "Traceback" not in broker.log_text
        broker.stop()


def login(address: str, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def _prepare(address: str) -> None:
    admin = confluent_kafka.admin.AdminClient(login(address, "admin"))
    new = [confluent_kafka.admin.NewTopic(name, 1, 1) for name in (TOPIC, HIDDEN)]
    for made in admin.create_topics(new).values():
        made.result(TIMEOUT_S)

    def allow(user: str, kind: str, name: str, operation: str) -> confluent_kafka.admin.AclBinding:
        return confluent_kafka.admin.AclBinding(
            confluent_kafka.admin.ResourceType[kind],
            name,
            confluent_kafka.admin.ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            confluent_kafka.admin.AclOperation[operation],
            confluent_kafka.admin.AclPermissionType.ALLOW,
        )

    acls = [
        allow("alice", "TOPIC", TOPIC, "WRITE"),
        allow("bob", "TOPIC", TOPIC, "READ"),
        allow("bob", "GROUP", GROUP, "READ"),
    ]
    for done in admin.create_acls(acls).values():
        done.result(TIMEOUT_S)


def produced(
    address: str, user: str, topic: str, *, idempotent: bool = True
) -> confluent_kafka.KafkaError | None:
    """The error of one record."""
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {**login(address, user), "enable.idempotence": idempotent, "message.timeout.ms": TIMEOUT_S * 1000}
    )
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return errors[0]


def consumed(address: str, user: str, group: str) -> confluent_kafka.Message:
    """The first record or error of a group's consumer."""
    config = {**login(address, user), "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.subscribe([TOPIC])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        return message
    finally:
        consumer.close()


def test_a_producer_writes_only_to_its_topic(klog: str) -> None:
    assert produced(klog, "alice", TOPIC) is None
    error = produced(klog, "alice", HIDDEN)
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    error = produced(klog, "bob", TOPIC, idempotent=False)
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_consumer_reads_only_in_its_group(klog: str) -> None:
    assert produced(klog, "alice", TOPIC) is None
    assert consumed(klog, "bob", GROUP).value() == b"v"
    error = consumed(klog, "bob", "another").error()
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED


def test_kafka_python_is_told_what_it_may_not(klog: str) -> None:
    options = {
        "bootstrap_servers": klog,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }
    producer = kafka.KafkaProducer(**options)
    try:
        producer.send(TOPIC, b"v").get(TIMEOUT_S)
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send(HIDDEN, b"v").get(TIMEOUT_S)
    finally:
        producer.close()


@pytest.mark.parametrize(("user", "seen"), [("admin", {TOPIC, HIDDEN}), ("alice", {TOPIC}), ("bob", {TOPIC})])
def test_users_see_the_topics_that_they_may_use(klog: str, user: str, seen: set[str]) -> None:
    admin = confluent_kafka.admin.AdminClient(login(klog, user))

    def listed() -> set[str]:
        return {name for name in admin.list_topics(timeout=TIMEOUT_S).topics if not name.startswith("__")}

    eventually(lambda: listed() == seen)
