"""Clients log in at klog by every mechanism, with and without TLS; with a wrong password they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from klog.admin import connect
from klog.admin.requests.scram_users import ScramMechanism, alter_users, salted
from klog.admin.settings import ClientSettings, parse_bootstrap
from tests.clients.conftest import skipping_without
from tests.clients.secured_clients import (
    CERTIFICATE,
    PASSWORD,
    PROGRAMS,
    PYTHON_CLIENTS,
    SESSION_MS,
    Access,
    Client,
    key_set,
)
from tests.peers.broker import free_port
from tests.server.network.servers import TLS_FILES
from tests.swap.klog_process import KlogBroker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
ACCESSES = [
    *((protocol, mechanism) for protocol in PROTOCOLS for mechanism in MECHANISMS),
    # Without a login no mechanism counts.
    *((protocol, MECHANISMS[0]) for protocol in ("PLAINTEXT", "SSL")),
]
JAVA = pytest.mark.kafka
CLIENTS = (*PYTHON_CLIENTS, "franz-go", pytest.param("Java", marks=JAVA))
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured(KlogBroker):
    """A broker with a listener of each protocol."""

    def access(self, protocol: str, mechanism: str, password: str = PASSWORD) -> Access:
        listeners = dict(each.split("://") for each in str(self.config["listeners"]).split(","))
        return Access(listeners[protocol], protocol, mechanism, password)


@pytest.fixture(scope="module")
def klog(tmp_path_factory) -> Iterator[Secured]:
    work = tmp_path_factory.mktemp("sasl")
    keystore = work / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + CERTIFICATE.read_text())
    plain = free_port()
    listeners = [
        f"PLAINTEXT://localhost:{plain}",
        *(f"{name}://localhost:{free_port()}" for name in ("SSL", *PROTOCOLS)),
    ]
    config: dict[str, str | int] = {
        "listeners": ",".join(listeners),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "listener.name.sasl_plaintext.connections.max.reauth.ms": SESSION_MS,
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


@pytest.fixture(scope="module")
def program_of(tmp_path_factory) -> Iterator[Callable[[str], Client]]:
    """Gives a client by its name. A program is started once."""
    started: dict[str, Client] = dict(PYTHON_CLIENTS)
    with ExitStack() as closing:

        def get(name: str) -> Client:
            if name not in started:
                with skipping_without(name):
                    program = PROGRAMS[name](tmp_path_factory.mktemp("program"))
                closing.callback(program.close)
                started[name] = program
            return started[name]

        yield get


@pytest.fixture(params=CLIENTS)
def client(request, program_of: Callable[[str], Client]) -> tuple[str, Client]:
    """Each client in turn, and its name."""
    return request.param, program_of(request.param)


@pytest.mark.parametrize(("protocol", "mechanism"), ACCESSES)
def test_a_client_logs_in_writes_and_reads(
    klog: Secured, client: tuple[str, Client], protocol: str, mechanism: str
) -> None:
    name, use = client
    topic = f"{name}-{protocol}-{mechanism}"
    assert use(klog.access(protocol, mechanism), topic) == f"of {name}".encode()


# kafka-python tries again for 30 s. aiokafka takes the refusal of a token for a success. franz-go goes away
# when it sees the refusal, before it is told that the login has failed.
NOT_TOLD = {
    *(("kafka-python", mechanism) for mechanism in MECHANISMS),
    ("aiokafka", "OAUTHBEARER"),
    ("franz-go", "OAUTHBEARER"),
}
TOLD = [
    pytest.param(name, mechanism, marks=JAVA if name == "Java" else ())
    for name in (*PYTHON_CLIENTS, *PROGRAMS)
    for mechanism in MECHANISMS
    if (name, mechanism) not in NOT_TOLD
]


@pytest.mark.parametrize(("client", "mechanism"), TOLD, indirect=["client"])
def test_a_client_with_a_wrong_password_is_told_at_once(
    klog: Secured, client: tuple[str, Client], mechanism: str
) -> None:
    failures = klog.log_text.count("Failed authentication with")
    assert client[1](klog.access("SASL_PLAINTEXT", mechanism, "guess"), "t") is None
    assert klog.log_text.count("Failed authentication with") > failures
