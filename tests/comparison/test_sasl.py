"""klog answers raw SASL exchanges byte for byte as Kafka 3.9.1, and closes connections where it does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from tests.peers.broker import ZooKeeperBroker, free_port
from tests.swap.klog_process import KlogBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 20
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
GOOD, WRONG = b"\0alice\0wonder", b"\0alice\0guess"


def config_of(plain: int, sasl: int) -> dict[str, str | int]:
    own = "listener.name.sasl_plaintext."
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN,SCRAM-SHA-512",
        f"{own}plain.sasl.jaas.config": f'{_PLAIN} required user_alice="wonder";',
        f"{own}scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        f"{own}scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "sasl.server.max.receive.size": 4096,
    }


@pytest.fixture(scope="module")
def ports(kafka3, tmp_path_factory) -> Iterator[tuple[int, int]]:
    """The ports of the SASL listeners of Kafka and klog."""
    kafka, klog = (config_of(free_port(), free_port()) for _ in range(2))
    work = tmp_path_factory.mktemp("sasl")
    with ZooKeeperBroker(work / "kafka", kafka, kafka3), KlogBroker(work / "klog", klog) as ours:
        ours.start()
        yield tuple(int(str(each["listeners"]).rpartition(":")[2]) for each in (kafka, klog))


def request(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 7, -1) + b"\0" * flexible + body


def handshake(mechanism: bytes = b"PLAIN", version: int = 1) -> bytes:
    return request(17, version, struct.pack(">h", len(mechanism)) + mechanism)


def message(content: bytes, version: int = 1) -> bytes:
    if version == 2:
        return request(36, 2, bytes((len(content) + 1,)) + content + b"\0", flexible=True)
    return request(36, version, struct.pack(">i", len(content)) + content)


METADATA = request(3, 1, struct.pack(">i", 0))

EXCHANGES = {
    **{f"good {n}": (handshake(), message(GOOD, n)) for n in range(3)},
    **{f"wrong {n}": (handshake(), message(WRONG, n)) for n in range(3)},
    "one token": (handshake(), message(b"alice")),
    "no user": (handshake(), message(b"\0\0x")),
    "other authorization id": (handshake(), message(b"bob" + GOOD)),
    "bare good": (handshake(version=0), GOOD),
    "bare wrong": (handshake(version=0), WRONG),
    "other mechanism": (handshake(b"GSSAPI"),),
    "other mechanism 0": (handshake(b"X", 0),),
    "handshake twice": (handshake(), handshake()),
    "metadata first": (METADATA,),
    "metadata instead": (handshake(), METADATA),
    "handshake 2": (handshake(version=2),),
    "authenticate 3": (handshake(), message(GOOD, 3)),
    "authenticate first": (message(GOOD),),
    "garbage": (b"\x60\x82\x01",),
    "scram: unknown user": (handshake(b"SCRAM-SHA-256"), message(b"n,,n=nobody,r=abc")),
    "scram: malformed": (handshake(b"SCRAM-SHA-512"), message(b"n,,n=no=body,r=abc")),
    "scram: channel binding": (handshake(b"SCRAM-SHA-512"), message(b"y,,n=nobody,r=abc")),
    "afterwards: handshake": (handshake(), message(GOOD), handshake()),
    "afterwards: authenticate": (handshake(), message(GOOD), message(GOOD), message(GOOD, 2)),
}


def answers(port: int, frames: tuple[bytes, ...]) -> list[bytes | None]:
    """The answer to each frame; None once the connection is closed."""
    found: list[bytes | None] = []
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock, sock.makefile("rb") as reader:
        for frame in frames:
            try:
                sock.sendall(struct.pack(">i", len(frame)) + frame)
                size = reader.read(4)
                found.append(reader.read(struct.unpack(">i", size)[0]) if len(size) == 4 else None)
            except ConnectionError:
                found.append(None)
    return found


@pytest.mark.parametrize("name", EXCHANGES)
def test_an_exchange_is_answered_as_by_kafka(ports: tuple[int, int], name: str) -> None:
    kafka, klog = (answers(port, EXCHANGES[name]) for port in ports)
    assert klog == kafka


@pytest.mark.parametrize("size", [4097, 2**31 - 1, -1])
def test_a_frame_that_is_too_large_is_not_answered(ports: tuple[int, int], size: int) -> None:
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
            sock.sendall(struct.pack(">i", size))
            assert sock.recv(1) == b""
