"""Limits of connections and of new connections: klog and Kafka 3.9.1 serve and close the same ones.

Quotas of a user also hold for one whose name comes from a certificate.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from klog.protocol.apis import ApiKey
from tests.comparison.brokers import CONFIG
from tests.comparison.messages import Ask, Ids
from tests.comparison.pair import Connection, Pair
from tests.comparison.test_quotas import APART, alter, throttle_ms
from tests.peers.broker import ZooKeeperBroker, free_port
from tests.peers.kafka import KafkaPeer
from tests.server.network.servers import TLS_FILES, client_tls
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

PER_IP, OVERRIDDEN = 3, 5
RATE = 4
WINDOWS = 2
TIMEOUT_S = 60
POLL_S = 0.35  # Kafka's network thread looks every 300 ms
_ASK = struct.pack(">ihhihb", 11, 18, 0, 1, 1, ord("c"))


class Ports(NamedTuple):
    """Those of a broker: `between` for brokers and administration, `clients` with a limit of its own, `tls`
    for clients with a certificate.
    """

    between: int
    clients: int
    tls: int


@pytest.fixture(scope="module")
def brokers(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ports, Ports]]:
    work: Path = tmp_path_factory.mktemp("connections")
    keystore = work / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + (TLS_FILES / "certificate.pem").read_text())
    kafka_ports, klog_ports = (Ports(free_port(), free_port(), free_port()) for _ in range(2))

    def config(ports: Ports) -> dict[str, str | int]:
        return {
            **CONFIG,
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}"
                for name, port in zip(("PLAINTEXT", "CLIENTS", "SSL"), ports, strict=True)
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(TLS_FILES / "certificate.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1@TLS/L,DEFAULT",
            "max.connections.per.ip": PER_IP,
            "max.connections.per.ip.overrides": f"127.0.0.2:{OVERRIDDEN},127.0.0.1:1000",
            "listener.name.clients.max.connection.creation.rate": RATE,
            "quota.window.num": WINDOWS,
        }

    with (
        ZooKeeperBroker(work / "kafka", config(kafka_ports), kafka3),
        KlogBroker(work / "klog", config(klog_ports)) as klog,
    ):
        klog.start()
        yield kafka_ports, klog_ports


def connected(port: int, ip: str, closing: ExitStack) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, source_address=(ip, 0))
    return closing.enter_context(sock)


def is_served(sock: socket.socket) -> bool:
    """Whether a request is answered; if not, the broker has closed the connection."""
    try:
        sock.sendall(_ASK)
        return bool(sock.recv(4))
    except ConnectionError:
        return False


def compared(brokers: tuple[Ports, Ports], measure: Callable[[Ports], object]) -> object:
    kafka, klog = (measure(each) for each in brokers)
    assert klog == kafka
    return klog


@pytest.mark.parametrize(("ip", "limit"), [("127.0.0.3", PER_IP), ("127.0.0.2", OVERRIDDEN)])
def test_an_address_has_as_many_connections_as_it_may(
    brokers: tuple[Ports, Ports], ip: str, limit: int
) -> None:
    def served(ports: Ports) -> list[bool]:
        with ExitStack() as opened:
            socks = [connected(ports.between, ip, opened) for _ in range(limit + 3)]
            found = [is_served(each) for each in socks]
            # When one closes another one is served.
            socks[0].close()

            def another() -> bool:
                with ExitStack() as later:
                    return is_served(connected(ports.between, ip, later))

            eventually(another)
            return found

    assert compared(brokers, served) == [True] * limit + [False] * 3


def test_a_listener_accepts_as_many_connections_a_second_as_it_may(brokers: tuple[Ports, Ports]) -> None:
    """Those that are too many wait. Several addresses, since each may have few at the same time."""
    count = 4 * RATE

    def seconds(ports: Ports) -> float:
        with ExitStack() as opened:
            begin_s = time.monotonic()
            socks = [connected(ports.clients, f"127.0.1.{number}", opened) for number in range(count)]
            assert all(map(is_served, socks))
            return time.monotonic() - begin_s

    kafka_s, klog_s = (seconds(each) for each in brokers)
    assert min(kafka_s, klog_s) > 1
    assert abs(klog_s - kafka_s) < APART * max(kafka_s, klog_s) + POLL_S, (klog_s, kafka_s)


@pytest.mark.parametrize(("entity", "ip"), [("127.0.0.7", "127.0.0.7"), (None, "127.0.0.8")])
def test_an_address_makes_as_many_connections_a_second_as_it_may(
    brokers: tuple[Ports, Ports], entity: str | None, ip: str
) -> None:
    """Those that are too many are closed after a while, and not served."""
    limit = 2
    kafka, klog = brokers
    with closing(Pair(kafka.between, klog.between)) as pair:
        pair.ask(alter({"ip": entity}, connection_creation_rate=limit))
        time.sleep(1)  # until Kafka has read its notification
        held: list[float] = []

        def served(ports: Ports) -> list[bool]:
            with ExitStack() as opened:
                socks = [connected(ports.between, ip, opened) for _ in range(limit + 2)]
                begin_s = time.monotonic()
                found = [is_served(each) for each in socks]
                held.append(time.monotonic() - begin_s)
                return found

        assert compared(brokers, served) == [True] * limit + [False] * 2
        assert abs(held[0] - held[1]) < APART * max(held) + POLL_S, held
        pair.ask(alter({"ip": entity}, connection_creation_rate=None))


def test_a_user_s_quota_holds_for_one_who_is_named_by_a_certificate(brokers: tuple[Ports, Ports]) -> None:
    ask = Ask(ApiKey.LIST_GROUPS, 4, {"states_filter": ()})
    tls = client_tls()
    tls.load_cert_chain(TLS_FILES / "certificate.pem", TLS_FILES / "key.pem")

    def throttled_ms(ports: Ports) -> int:
        with closing(Connection(ports.tls, "c", tls)) as connection:
            connection.send(ask, Ids().body(ask))
            answer = None
            while answer is None:
                answer = connection.receive()
            return throttle_ms(answer)

    kafka, klog = brokers
    with closing(Pair(kafka.between, klog.between)) as pair:
        pair.ask(alter({"user": "CN=localhost"}, request_percentage=0.000001))
        time.sleep(1)
        assert compared(brokers, throttled_ms) == 0
        pair.ask(alter({"user": "localhost@tls"}, request_percentage=0.000001))
        time.sleep(1)
        assert compared(brokers, throttled_ms) == 1000
