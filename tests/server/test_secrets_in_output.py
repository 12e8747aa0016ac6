"""Passwords and keys of a broker's configs are in none of its outputs: log, answers, metrics, title."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.peers.broker import free_port
from tests.server.network.servers import TLS_FILES
from tests.swap.klog_process import KlogBroker

TIMEOUT_S = 60
SECRET = "hunter2-S3CR3T"
KEY_STORE = "listener.name.ssl.ssl.keystore"
INVALID_KEY = f"-----BEGIN PRIVATE KEY----- {SECRET} -----END PRIVATE KEY-----"
# All that the modules could log is logged.
DEBUG = """
import logging
set_level = logging.Logger.setLevel
logging.Logger.setLevel = lambda self, level: set_level(self, logging.DEBUG)
"""


def pem(file: str) -> dict[str, str]:
    """The key and the certificate of a PEM file, each on one line, as in a properties file."""
    text = (TLS_FILES / file).read_text().replace("\n", " ")
    start = text.index("-----BEGIN CERTIFICATE")
    return {f"{KEY_STORE}.key": text[:start], f"{KEY_STORE}.certificate.chain": text[start:]}


def key_in(file: str) -> str:
    """The first line of a key's base64."""
    return (TLS_FILES / file).read_text().splitlines()[1]


SECRETS = (SECRET, key_in("fewer_names.pem"), key_in("renewed.pem"))


def config_of() -> dict[str, str | int]:
    plain, secure, sasl = free_port(), free_port(), free_port()
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}"
        f",SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' username="u" password="{SECRET}" user_alice="{SECRET}";'
        ),
        "klog.sasl.password": SECRET,
        "ssl.keystore.type": "PEM",
        "password.encoder.secret": SECRET,
        "sasl.jaas.config": f'Login required username="u" password="{SECRET}";',
        "zookeeper.ssl.keystore.password": SECRET,
        **pem("fewer_names.pem"),
    }


@pytest.fixture
def klog(tmp_path: Path) -> Iterator[KlogBroker]:
    config = config_of()
    with KlogBroker(tmp_path, config, before=DEBUG) as started:
        started.port = int(str(config["listeners"]).split(",")[0].rpartition(":")[2])
        yield started


def alter(klog: KlogBroker, configs: Mapping[str, str]) -> str:
    """The error of a change of configs; empty if there is none."""
    entries = [
        ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in configs.items()
    ]
    client = AdminClient({"bootstrap.servers": klog.bootstrap})
    (future,) = client.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)]
    ).values()
    try:
        future.result(TIMEOUT_S)
    except KafkaException as error:
        return str(error)
    return ""


def described(klog: KlogBroker) -> str:
    client = AdminClient({"bootstrap.servers": klog.bootstrap})
    (future,) = client.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
    return "\n".join(f"{name}={entry.value}" for name, entry in future.result(TIMEOUT_S).items())


def logs_in(klog: KlogBroker, password: str) -> bool:
    """Whether alice can ask what topics there are."""
    client = AdminClient(
        {
            "bootstrap.servers": str(klog.config["listeners"]).rpartition("://")[2],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
        }
    )
    try:
        client.list_topics(timeout=3)
    except KafkaException:
        return False
    return True


def require_no_secret(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


def test_no_secret_leaves_the_broker(klog: KlogBroker) -> None:
    metrics_port = free_port()
    klog._launch = klog._launch.replace("main()", f"sys.argv += ['--metrics-port', '{metrics_port}']; main()")
    klog.start()
    assert alter(klog, pem("renewed.pem")) == ""
    refused = [
        alter(klog, {f"{KEY_STORE}.key": INVALID_KEY}),
        alter(klog, {f"{KEY_STORE}.password": SECRET}),
        alter(klog, {"listener.name.ssl.ssl.truststore.location": "/none"} | {f"{KEY_STORE}.key": SECRET}),
    ]
    assert all(refused)
    require_no_secret("\n".join(refused))
    configs = described(klog)
    assert f"{KEY_STORE}.key=None" in configs
    require_no_secret(configs)
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=TIMEOUT_S) as page:
        require_no_secret(page.read().decode())
    require_no_secret(Path(f"/proc/{klog.process.pid}/cmdline").read_bytes().decode())
    assert logs_in(klog, SECRET)
    assert not logs_in(klog, f"{SECRET}-guess")
    klog.stop()
    require_no_secret(klog.log_text)
    # What the broker has stored of them is encrypted.
    for path in klog.log_directories()[0].rglob("*"):
        if path.is_file():
            require_no_secret(path.read_bytes().decode("latin-1"))


@pytest.mark.parametrize(
    "invalid",
    [
        {f"{KEY_STORE}.key": INVALID_KEY},
        {f"{KEY_STORE}.password": SECRET},
        {"ssl.keystore.type": "JKS", "ssl.keystore.location": "/etc/passwd", "ssl.keystore.password": SECRET},
    ],
    ids=lambda invalid: next(iter(invalid)),
)
def test_a_start_that_fails_shows_no_secret(klog: KlogBroker, invalid: dict[str, str]) -> None:
    klog.config.update(invalid)
    klog.spawn()
    assert klog.ended() != 0
    assert klog.log_text
    require_no_secret(klog.log_text)
