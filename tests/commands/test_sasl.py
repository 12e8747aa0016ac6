"""Every client command works over SASL of real Kafka: PLAIN and SCRAM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import Run, runner
from tests.peers import ZooKeeperBroker
from tests.peers.broker import free_port

pytestmark = pytest.mark.kafka

_LISTENER = "listener.name.secured."
_LOGIN = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def secured(kafka3, tmp_path_factory):
    """A broker with a listener that wants SASL; gives the address of that listener."""
    from kafka.admin import KafkaAdminClient, UserScramCredentialUpsertion

    plain, port = free_port(), free_port()
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{_LISTENER}plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required user_alice="pencil";'
        ),
        f"{_LISTENER}scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    }
    with ZooKeeperBroker(tmp_path_factory.mktemp("secured"), config, peer=kafka3):
        admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{plain}")
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", password="pencil", iterations=4096)]
        )
        admin.close()
        yield f"127.0.0.1:{port}"


@pytest.fixture
def klog(secured, capfd, monkeypatch) -> Run:
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", secured)
    return runner(capfd, monkeypatch)


def properties(directory: Path, mechanism: str, user: str, password: str) -> Path:
    path = directory / "client.properties"
    login = f'x.LoginModule required username="{user}" password="{password}";'
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"
    )
    return path


@pytest.mark.parametrize(("mechanism", "user"), [("PLAIN", "alice"), ("SCRAM-SHA-512", "bob")])
def test_all_client_commands_authenticate(klog, tmp_path, mechanism, user):
    config = ("--command-config", properties(tmp_path, mechanism, user, "pencil"))
    topic = f"of-{user}"
    created = klog("topics", "create", topic, "--partitions", 2, *config)
    assert created.code == 0, created.err
    assert klog("configs", "alter", "--topic", topic, "--set", "retention.ms=-1", *config).code == 0
    assert klog("produce", topic, "x", *config).code == 0
    assert klog("consume", topic, *config).out == "x\n"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("command", [("topics", "list"), ("produce", "t", "x")])
def test_a_wrong_password_is_one_line_at_once(klog, tmp_path, mechanism, command):
    refused = klog(*command, "--command-config", properties(tmp_path, mechanism, "alice", "wrong"))
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "check sasl.mechanism and sasl.jaas.config" in refused.err


def test_a_mechanism_that_is_not_enabled_is_named(klog, tmp_path):
    refused = klog("topics", "list", "--command-config", properties(tmp_path, "SCRAM-SHA-256", "bob", "x"))
    assert "does not accept sasl.mechanism=SCRAM-SHA-256" in refused.err
