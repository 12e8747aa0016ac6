"""A listener of klog agrees with a client on the suite that Kafka 3.9.1 would take, or on none."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from klog.config.cipher_suites import limit_suites
from tests.peers.broker import ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.server.network.servers import TLS_FILES
from tests.swap.klog_process import KlogBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LISTENERS = {
    "newer": "TLS_AES_128_GCM_SHA256",
    "older": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "both": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_256_GCM_SHA384",
}
CLIENTS = (
    [],
    ["TLS_AES_128_GCM_SHA256"],
    ["TLS_AES_256_GCM_SHA384"],
    ["TLS_CHACHA20_POLY1305_SHA256"],
    ["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"],
    ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"],
    ["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"],
    ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"],
)


def config_of(ports: dict[str, int]) -> dict[str, str | int]:
    plain = free_port()
    return {
        "listeners": ",".join(
            [f"PLAINTEXT://127.0.0.1:{plain}"]
            + [f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()]
        ),
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT", *(f"{name.upper()}:SSL" for name in ports)]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(TLS_FILES / "first.pem"),
        **{f"listener.name.{name}.ssl.cipher.suites": suites for name, suites in LISTENERS.items()},
    }


@pytest.fixture(scope="module")
def ports(kafka3: KafkaPeer, tmp_path_factory) -> Iterator[list[dict[str, int]]]:
    """The ports of the listeners of Kafka and klog."""
    both = [{name: free_port() for name in LISTENERS} for _ in range(2)]
    work = tmp_path_factory.mktemp("suites")
    with (
        ZooKeeperBroker(work / "kafka", config_of(both[0]), kafka3),
        KlogBroker(work / "klog", config_of(both[1])) as ours,
    ):
        ours.start()
        yield both


def agreed(port: int, suites: list[str]) -> tuple[str, ...] | None:
    """The suite and the version that client and listener agree on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if suites:
        limit_suites(context, suites)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 20) as sock,
            context.wrap_socket(sock) as secured,
        ):
            return secured.cipher()[:2]
    except ssl.SSLError:
        return None


@pytest.mark.parametrize("listener", LISTENERS)
def test_suites_are_agreed_on_as_with_kafka(ports: list[dict[str, int]], listener: str) -> None:
    found = [[agreed(each[listener], suites) for suites in CLIENTS] for each in ports]
    assert any(found[0])
    assert None in found[0]
    assert found[1] == found[0]
