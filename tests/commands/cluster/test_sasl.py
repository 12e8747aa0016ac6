"""Every client command works over SASL and TLS of real Kafka, by properties, by profiles and by options."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from klog.admin import connect
from klog.admin.settings import settings_of
from klog.protocol.errors import AuthenticationFailedError
from tests.commands.running import Run, runner
from tests.peers import ZooKeeperBroker
from tests.peers.broker import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

STORES = Path(__file__).parents[2] / "config" / "stores"
_LISTENER = "listener.name.secured."
_LOGIN = "org.apache.kafka.common.security"


class Addresses(NamedTuple):
    sasl: str
    tls: str


def knows_itself(address: str, **settings: str) -> bool:
    """Whether the broker can create topics, and who asks may log in."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    try:
        with connect.cluster(settings_of(given, bootstrap=address)) as cluster:
            return bool(cluster.metadata(()).brokers)
    except AuthenticationFailedError:
        return False


@pytest.fixture(scope="module")
def secured(kafka3, tmp_path_factory):
    """A broker with a listener that wants SASL; gives the address of that listener."""
    from kafka.admin import KafkaAdminClient, NewTopic, UserScramCredentialUpsertion

    plain, port, tls = free_port(), free_port(), free_port()
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port},TLS://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,TLS:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(STORES / "key.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "storepw",
        "ssl.truststore.location": str(STORES / "trust.jks"),
        "ssl.truststore.password": "storepw",
        f"{_LISTENER}plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required user_alice="pencil";'
        ),
        f"{_LISTENER}scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{_LISTENER}oauthbearer.sasl.jaas.config": (
            f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    with ZooKeeperBroker(tmp_path_factory.mktemp("secured"), config, peer=kafka3):
        eventually(lambda: knows_itself(f"127.0.0.1:{plain}"))
        admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{plain}")
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", password="pencil", iterations=4096)]
        )
        admin.create_topics([NewTopic("there", 1, 1)])  # a list of no topics is noted
        admin.close()
        # The broker learns of the password after its answer.
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_jaas_config": 'x.LoginModule required username="bob" password="pencil";',
        }
        eventually(lambda: knows_itself(f"127.0.0.1:{port}", **login))
        yield Addresses(f"127.0.0.1:{port}", f"127.0.0.1:{tls}")


@pytest.fixture
def klog(secured, capfd, monkeypatch) -> Run:
    monkeypatch.setenv("KLOG_BOOTSTRAP_SERVER", secured.sasl)
    return runner(capfd, monkeypatch)


@pytest.fixture
def klog_alone(capfd, monkeypatch, tmp_path) -> Run:
    """The command with settings of its own, and no broker in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return runner(capfd, monkeypatch)


def properties(directory: Path, mechanism: str, user: str, password: str) -> Path:
    path = directory / "client.properties"
    login = f'x.LoginModule required username="{user}" password="{password}";'
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"
    )
    path.chmod(0o600)
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


def test_an_unsecured_token_authenticates(klog, tmp_path):
    path = tmp_path / "client.properties"
    login = "x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice;"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={login}\n"
    )
    listed = klog("topics", "list", "--command-config", path)
    assert (listed.code, listed.err) == (0, "")


def test_a_token_that_the_broker_refuses_is_one_line(klog, tmp_path):
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("not.a.token")
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    refused = klog("topics", "list", *(part for pair in given.items() for part in ("-X", "=".join(pair))))
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "invalid_token" in refused.err


@pytest.mark.parametrize(
    ("key_store", "trust_store"),
    [("key.jks", "trust.jks"), ("key.jks", "trust.p12"), ("key.p12", "trust.p12")],
)
def test_stores_of_java_open_tls_and_prove_who_the_client_is(klog_alone, secured, key_store, trust_store):
    types = {"jks": "JKS", "p12": "PKCS12"}
    given = {
        "security.protocol": "SSL",
        "ssl.keystore.location": STORES / key_store,
        "ssl.keystore.type": types[key_store[-3:]],
        "ssl.keystore.password": "storepw",
        "ssl.truststore.location": STORES / trust_store,
        "ssl.truststore.type": types[trust_store[-3:]],
        "ssl.truststore.password": "storepw",
    }
    if key_store == "key.jks":
        given["ssl.key.password"] = "keypw123"
    options = [part for name, value in given.items() for part in ("-X", f"{name}={value}")]
    listed = klog_alone("topics", "list", "--bootstrap-server", secured.tls, *options)
    assert listed.code == 0, listed.err


def test_a_profile_says_who_and_where(klog_alone, secured, monkeypatch, tmp_path):
    password = tmp_path / "password"
    password.write_text("pencil\n")
    added = klog_alone(
        *("profile", "add", "bob", "--bootstrap-server", secured.sasl, "--sasl", "scram-sha-512"),
        *("--user", "bob", "--password-file", password),
    )
    assert added.code == 0, added.err
    monkeypatch.setenv("KLOG_PASSWORD", "wrong")
    at = ("--bootstrap-server", secured.sasl, "--sasl", "PLAIN", "--user", "alice")
    assert klog_alone("profile", "add", "alice", *at).code == 0
    assert klog_alone("topics", "list").code == 0  # by the current profile, the first one
    refused = klog_alone("topics", "list", "--profile", "alice")
    assert (refused.code, "Authentication failed" in refused.err) == (1, True)
    monkeypatch.setenv("KLOG_PROFILE", "alice")
    assert klog_alone("topics", "list").code == 1
    monkeypatch.delenv("KLOG_PROFILE")
    assert klog_alone("profile", "use", "alice").code == 0
    assert klog_alone("topics", "list").code == 1


def test_the_current_profiles_password_does_not_go_to_another_cluster(klog_alone, secured, monkeypatch):
    monkeypatch.setenv("KLOG_PASSWORD", "pencil")
    added = klog_alone(
        *(
            "profile",
            "add",
            "alice",
            "--bootstrap-server",
            "127.0.0.1:1",
            "--sasl",
            "PLAIN",
            "--user",
            "alice",
        )
    )
    assert added.code == 0
    unauthenticated = klog_alone("topics", "list", "--bootstrap-server", secured.sasl, "--timeout-ms", 5000)
    assert unauthenticated.code == 1
    named = klog_alone("topics", "list", "--bootstrap-server", secured.sasl, "--profile", "alice")
    assert named.code == 0, named.err


def test_files_with_secrets_that_others_can_read_are_warned_of(klog, tmp_path):
    path = properties(tmp_path, "PLAIN", "alice", "pencil")
    path.chmod(0o644)
    warned = klog("topics", "list", "--command-config", path)
    assert warned.code == 0
    assert f"{path} holds secrets" in warned.err
    path.chmod(0o600)
    assert klog("topics", "list", "--command-config", path).err == ""
