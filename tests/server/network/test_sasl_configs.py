"""SASL configs of listeners are understood as Kafka's, or stop the start with a reason and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.client.sasl import Sasl
from klog.client.sasl_oauth import OAuthBearer
from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.server.network.listeners import Listeners, open_to_everybody, read_listeners

LOGIN = "org.apache.kafka.common.security"
PLAIN = f"{LOGIN}.plain.PlainLoginModule"
SCRAM = f"{LOGIN}.scram.ScramLoginModule"
SECRET = "hunter2-S3CR3T"
BESIDE = {
    "listeners": "PLAINTEXT://127.0.0.1:0,EXT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SASL_PLAINTEXT",
}
BETWEEN = {
    "listeners": "EXT://127.0.0.1:0",
    "listener.security.protocol.map": "EXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "EXT",
}
PLAIN_CONFIG = "listener.name.ext.plain.sasl.jaas.config"


def read(configs: dict[str, str], base: dict[str, str] = BESIDE) -> Listeners:
    return read_listeners(BrokerConfig(base | configs), authentication=lambda name: lambda: name)  # type: ignore[arg-type,return-value]


def test_users_of_plain_are_options_of_its_login_module() -> None:
    entry = f'{PLAIN} required username="x" password="y" user_alice="{SECRET}" user_bob="b";'
    found = read({"sasl.enabled.mechanisms": "PLAIN", PLAIN_CONFIG: entry}).sasl["EXT"]
    assert found.mechanisms["PLAIN"].passwords == {"alice": SECRET, "bob": "b"}
    assert SECRET not in repr(found)


def test_a_listener_s_own_mechanisms_go_before_the_general_ones() -> None:
    found = read({
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.ext.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "connections.max.reauth.ms": "7",
        "listener.name.ext.scram-sha-256.connections.max.reauth.ms": "9",
        "listener.name.ext.sasl.server.max.receive.size": "4096",
    })  # fmt: skip
    mechanisms = found.sasl["EXT"].mechanisms
    assert {name: each.max_reauth_ms for name, each in mechanisms.items()} == {
        "SCRAM-SHA-512": 7,
        "SCRAM-SHA-256": 9,
    }
    assert found.sasl["EXT"].max_receive_bytes == 4096
    assert found.bound[0].authentication is None
    assert found.bound[1].authentication is not None


def test_users_of_plain_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# people\nalice=wonder\nbob = b=c\n")
    found = read({"sasl.enabled.mechanisms": "PLAIN", "klog.sasl.users.file": str(file)})
    assert found.sasl["EXT"].mechanisms["PLAIN"].passwords == {"alice": "wonder", "bob": "b=c"}


def test_a_jaas_file_has_a_section_of_the_listener_or_of_all(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f'KafkaServer {{ {SCRAM} required; {PLAIN} required user_all="x"; }};')
    configs = {"sasl.enabled.mechanisms": "PLAIN", "java.security.auth.login.config": str(file)}
    assert read(configs).sasl["EXT"].mechanisms["PLAIN"].passwords == {"all": "x"}
    file.write_text(file.read_text() + f'ext.KafkaServer {{ {PLAIN} required user_own="y"; }};')
    assert read(configs).sasl["EXT"].mechanisms["PLAIN"].passwords == {"own": "y"}


@pytest.mark.parametrize(
    "configs",
    [
        {
            "sasl.enabled.mechanisms": "PLAIN",
            PLAIN_CONFIG: f'{PLAIN} required username="admin" password="{SECRET}";',
        },
        {
            "sasl.enabled.mechanisms": "PLAIN",
            PLAIN_CONFIG: f'{PLAIN} required user_admin="{SECRET}";',
            "klog.sasl.username": "admin",
            "klog.sasl.password": SECRET,
        },
    ],
)
def test_this_broker_logs_in_at_others_by_the_entry_of_the_listener(configs: dict[str, str]) -> None:
    between = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    assert read(configs | between, BETWEEN).login == Sasl("PLAIN", "admin", SECRET)


@pytest.mark.parametrize(
    ("configs", "key", "why"),
    [
        ({}, "sasl.enabled.mechanisms", "GSSAPI.*klog does not serve it"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "needs a mechanism"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, PLAIN_CONFIG, "has no users"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", PLAIN_CONFIG: f'{PLAIN} required user_a="{SECRET}"'},
            PLAIN_CONFIG,
            "semicolon",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", PLAIN_CONFIG: f'x.MyModule required user_a="{SECRET}";'},
            PLAIN_CONFIG,
            "x.MyModule is no login module of PLAIN",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", PLAIN_CONFIG: f'{PLAIN} required usr_a="{SECRET}";'},
            PLAIN_CONFIG,
            "does not know these options.*usr_a",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "listener.name.ext.scram-sha-256.sasl.server.callback.handler.class": "com.acme.Own",
            },
            "listener.name.ext.scram-sha-256.sasl.server.callback.handler.class",
            "cannot load Java classes",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "klog.sasl.users.file": "/nowhere"},
            "klog.sasl.users.file",
            "No such file",
        ),
    ],
)
def test_what_is_not_understood_stops_the_start(configs: dict[str, str], key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read(configs)
    assert refused.value.key == key
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("configs", "key"),
    [
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, "sasl.mechanism.inter.broker.protocol"),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            },
            "listener.name.ext.scram-sha-512.sasl.jaas.config",
        ),
    ],
)
def test_a_broker_that_could_not_log_in_at_others_does_not_start(configs: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(configs, BETWEEN)
    assert refused.value.key == key


TOKEN = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule"
ENTRY, ENDPOINT = "listener.name.ext.oauthbearer.sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"
NO_TRUST = 'ssl.truststore.location="/nowhere"'
LOGIN_HANDLER = "listener.name.ext.oauthbearer.sasl.login.callback.handler.class"


def by_token(work: Path, configs: dict[str, str]) -> Listeners:
    keys = work / "keys.json"
    keys.write_text('{"keys": []}')
    oauth = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        LOGIN_HANDLER: f"{LOGIN}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }
    return read(oauth | configs, BETWEEN)


def test_this_broker_logs_in_at_others_by_the_token_of_a_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c\n")
    entry = f'{TOKEN} required extension_id="7";'
    login = by_token(tmp_path, {ENDPOINT: token.as_uri(), ENTRY: entry}).login
    assert isinstance(login, OAuthBearer)
    assert (login.token(), login.extensions) == ("a.b.c", {"id": "7"})
    token.write_text("d.e.f")
    assert login.token() == "d.e.f"


@pytest.mark.parametrize(
    ("configs", "key", "why"),
    [
        ({}, ENDPOINT, "OAUTHBEARER needs"),
        ({ENDPOINT: "https://login.example/token"}, ENDPOINT, "no clientId and clientSecret"),
        ({ENDPOINT: "ftp://login.example"}, ENDPOINT, "no address of http, https or file"),
        ({ENDPOINT: "file:///nowhere/token"}, ENDPOINT, "/nowhere/token cannot be read"),
        ({LOGIN_HANDLER: "com.acme.Own"}, LOGIN_HANDLER, "cannot load Java classes"),
        (
            {
                ENDPOINT: "https://login.example/token",
                ENTRY: f'{TOKEN} required clientId="b" clientSecret="{SECRET}" {NO_TRUST};',
            },
            ENDPOINT,
            "/nowhere cannot be used",
        ),
    ],
)
def test_a_broker_that_would_have_no_token_for_others_does_not_start(
    configs: dict[str, str], key: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        by_token(tmp_path, configs)
    assert refused.value.key == key
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("listener", "configs", "is_open"),
    [
        ("PLAINTEXT://127.0.0.1:9092", {}, False),
        ("PLAINTEXT://localhost:9092", {}, False),
        ("PLAINTEXT://[::1]:9092", {}, False),
        ("PLAINTEXT://:9092", {}, True),
        ("PLAINTEXT://0.0.0.0:9092", {}, True),
        ("PLAINTEXT://broker1:9092", {}, True),
        ("SSL://broker1:9092", {}, True),
        ("SSL://broker1:9092", {"ssl.client.auth": "requested"}, True),
        ("SSL://broker1:9092", {"ssl.client.auth": "required"}, False),
        ("SASL_PLAINTEXT://broker1:9092", {}, False),
        ("SASL_SSL://broker1:9092", {}, False),
    ],
)
def test_a_listener_that_lets_everybody_in_from_elsewhere_is_named(
    listener: str, configs: dict[str, str], is_open: bool
) -> None:
    assert bool(open_to_everybody(BrokerConfig({"listeners": listener} | configs))) == is_open
