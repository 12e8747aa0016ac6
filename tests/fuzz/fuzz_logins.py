"""Fuzzing of logins, on a broker and on the exchange of one connection.

    python -m tests.fuzz.fuzz_logins --seconds 3600 --seed 1

It plays rounds until the time is over, or until it finds something: a login without the password, another
error than a KlogError, a client that is disturbed, or a broker that keeps memory, connections or threads, or
that logs an error. Then it says so, with the round's seed, and exits with 1. The last line counts what was
done.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from klog.admin import connect
from klog.admin.requests.scram_users import ScramMechanism, alter_users, salted
from klog.admin.settings import ClientSettings, parse_bootstrap
from klog.client.sasl import Sasl, plain
from klog.formats.errors import KlogError
from klog.security.authentication.exchange import (
    ApiVersionsAnswer,
    ExchangeSettings,
    MechanismSettings,
    SaslExchange,
)
from klog.security.authentication.oauth_bearer import OAuthBearerServer
from klog.security.authentication.plain import Plain
from klog.security.authentication.scram import Scram
from klog.security.authentication.scram_credentials import HASHES, credential_of_password
from klog.security.authentication.signed_tokens import SignedTokens, parse_key_set
from klog.security.principal import KafkaPrincipal
from klog.storage.log.scheduler import monotonic_ms
from tests.fuzz import login_attacks as attacks
from tests.peers.broker import free_port
from tests.server.network.servers import TLS_FILES
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

EXCHANGES_IN_A_ROUND: Final = 1000
CONNECTIONS_IN_A_ROUND: Final = 60
HALF_OPEN: Final = 100
WAIT_S: Final = 0.02
WITNESS_S: Final = 60
MOST_GROWTH_BYTES: Final = 150 << 20
PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
# No damage makes this of another request, whose answer may come late and be taken for that of this one.
_METADATA_ID: Final = 0x5EC4E7A1
_METADATA: Final = struct.pack(">hhih", 3, 0, _METADATA_ID, -1) + struct.pack(">i", 0)
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class FoundError(AssertionError):
    """What the fuzzer looks for."""


# The exchange of one connection, in this process.


def exchange_settings() -> ExchangeSettings:
    """All mechanisms, with alice, as a broker has them."""
    credentials = {name: credential_of_password(name, attacks.PASSWORD, b"salt", 4096) for name in HASHES}
    keys = parse_key_set(attacks.key_set().encode())
    validator = SignedTokens(lambda: keys, lambda: time.time_ns() // 1_000_000)
    nonces = random.Random(1)

    def scram(name: str) -> Scram:
        return Scram(
            name,
            lambda user: credentials[name] if user == attacks.USER else None,
            partial(attacks.nonce, nonces),
        )

    begin = {
        "PLAIN": lambda: Plain({attacks.USER: attacks.PASSWORD}),
        "OAUTHBEARER": lambda: OAuthBearerServer(validator),
        **{name: partial(scram, name) for name in HASHES},
    }
    return ExchangeSettings(
        {name: MechanismSettings(each, 60_000) for name, each in begin.items()},  # type: ignore[arg-type]
        524_288,
        lambda version, body: ApiVersionsAnswer(b"", accepted=version <= 3),
        lambda: time.time_ns() // 1_000_000,
        monotonic_ms,
    )


def play_on_exchange(settings: ExchangeSettings, chance: random.Random, counts: Counter[str]) -> None:
    """Plays one attack without a socket. Raises FoundError, or what the exchange raises."""
    made = attacks.attack(chance)
    exchange = SaslExchange(lambda: settings)
    principals: list[KafkaPrincipal] = []

    def send(frame: bytes) -> bytes | None:
        if len(frame) > exchange.max_frame_bytes:
            return None
        try:
            step = exchange.take_frame(bytearray(frame))
        except KlogError:
            return None
        if step.failed:
            return None
        if step.principal is not None:
            principals.append(step.principal)
            return None
        return step.answer[4:]

    attacks.play(send, chance, made)
    counts["exchanges"] += 1
    counts["logins"] += len(principals)
    if principals and (not made.knows or principals != [KafkaPrincipal("User", attacks.USER)]):
        raise FoundError(f"{principals} logged in by {made}")


# A broker.


@contextmanager
def secured_broker(work: Path) -> Iterator[KlogBroker]:
    """A broker with a listener of each protocol; clients of SSL need a certificate."""
    keystore = work / "keystore.pem"
    keystore.write_text((TLS_FILES / "key.pem").read_text() + (TLS_FILES / "certificate.pem").read_text())
    keys = work / "keys.json"
    keys.write_text(attacks.key_set())
    between = free_port()
    listeners = ",".join(f"{name}://127.0.0.1:{free_port()}" for name in PROTOCOLS)
    config: dict[str, str | int] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{between},{listeners}",
        "sasl.enabled.mechanisms": ",".join(attacks.MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(TLS_FILES / "certificate.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "connections.max.reauth.ms": 3_600_000,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        entry = f'{_PLAIN_MODULE} required user_{attacks.USER}="{attacks.PASSWORD}";'
        config[f"listener.name.{name}.plain.sasl.jaas.config"] = entry
    with KlogBroker(work, config) as broker:
        broker.port = between
        broker.start()
        with connect.cluster(ClientSettings(parse_bootstrap(f"127.0.0.1:{between}"))) as cluster:
            for mechanism in ScramMechanism:
                alter_users(cluster, [salted(attacks.USER, attacks.PASSWORD, mechanism, b"s" * 16)])
        yield broker


def ports(broker: KlogBroker) -> Mapping[str, int]:
    """By listener."""
    found = (each.split("://") for each in str(broker.config["listeners"]).split(","))
    return {name: int(address.rpartition(":")[2]) for name, address in found}


def client_context(certificate: str | None = None) -> ssl.SSLContext:
    """`certificate` names a file with a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(TLS_FILES / certificate, TLS_FILES / "key.pem")
    return context


def client_hello() -> bytes:
    """A good ClientHello in its record."""
    out = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        client_context().wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


class Wire:
    """A connection that sends frames, in pieces of random sizes, and reads answers."""

    def __init__(self, sock: socket.socket, chance: random.Random) -> None:
        self._socket = sock
        self._chance = chance

    def send(self, frame: bytes) -> bytes | None:
        """The answer; empty if none comes soon, None if the connection is closed."""
        raw = struct.pack(">i", len(frame)) + frame
        try:
            if self._chance.random() < 0.1:
                cut = self._chance.randrange(len(raw))
                self._socket.sendall(raw[:cut])
                raw = raw[cut:]
            self._socket.sendall(raw)
            return self.receive()
        except TimeoutError:
            return b""
        except OSError:
            return None

    def receive(self) -> bytes | None:
        """The next answer. Raises OSError, TimeoutError."""
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("closed")
            found += piece
        return bytes(found)


class Witness:
    """A client that has logged in, and is served all the time."""

    def __init__(self, broker: KlogBroker, listener: str, closing: ExitStack) -> None:
        sock = socket.create_connection(("127.0.0.1", ports(broker)[listener]), WITNESS_S)
        if listener.endswith("SSL"):
            sock = client_context("certificate.pem").wrap_socket(sock)
        closing.callback(sock.close)
        self._listener = listener
        self._wire = Wire(sock, random.Random(0))
        if listener.startswith("SASL"):
            good = attacks.Attack("PLAIN", True, plain(Sasl("PLAIN", attacks.USER, attacks.PASSWORD)))
            attacks.play(self._wire.send, _Undamaged(), good)

    def look(self) -> float:
        """Asks for metadata. Returns for how many seconds it waited. Raises FoundError."""
        begin_s = time.monotonic()
        answer = self._wire.send(_METADATA)
        if not answer or answer[:4] != struct.pack(">i", _METADATA_ID):
            raise FoundError(f"the client of {self._listener} got {answer!r}")
        return time.monotonic() - begin_s


class _Undamaged(random.Random):
    """Changes nothing: it takes the first of all choices."""

    def choice(self, seq: object) -> object:  # type: ignore[override]
        return seq[-1] if seq == (0, 1, 1, 1) else seq[0]  # type: ignore[index]


class Fuzzer:
    """Plays rounds on a broker."""

    def __init__(self, broker: KlogBroker, closing: ExitStack) -> None:
        self._broker = broker
        self._ports = ports(broker)
        self._settings = exchange_settings()
        self._hello = client_hello()
        self._witnesses = [Witness(broker, name, closing) for name in PROTOCOLS]
        self.counts: Counter[str] = Counter()
        self.longest_s = 0.0
        self._look()
        self._files = broker.open_files()
        self._threads = self._thread_count()
        self._rss_bytes = 0
        self.growth_bytes = 0

    def play_round(self, seed: int) -> None:
        """Plays a round. Raises FoundError, and whatever the exchange raises that it should not."""
        chance = random.Random(seed)
        for _ in range(EXCHANGES_IN_A_ROUND):
            play_on_exchange(self._settings, chance, self.counts)
        for _ in range(CONNECTIONS_IN_A_ROUND):
            chance.choice((self._log_in, self._log_in, self._speak_no_tls, self._show_certificate))(chance)
        (self._stay_half_open, self._fail_at_once, self._go_on_for_long)[seed % 3](chance)
        self._look()
        self._check_broker()
        self.counts["rounds"] += 1

    # Attacks.

    @contextmanager
    def _connected(self, listener: str, context: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._ports[listener]), WITNESS_S) as raw:
            self.counts["connections"] += 1
            sock = raw if context is None else context.wrap_socket(raw)
            sock.settimeout(WAIT_S)
            with sock:
                yield sock

    def _log_in(self, chance: random.Random) -> None:
        """Plays an attack, and asks for metadata as one who has logged in."""
        listener = chance.choice(("SASL_PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"))
        made = attacks.attack(chance)
        with self._connected(listener, client_context() if listener == "SASL_SSL" else None) as sock:
            wire = Wire(sock, chance)
            attacks.play(wire.send, chance, made)
            answer = wire.send(_METADATA)
            if answer and answer[:4] == struct.pack(">i", _METADATA_ID) and not made.knows:
                raise FoundError(f"metadata for {made}: {answer[:100]!r}")
            if made.knows and chance.random() < 0.5:
                attacks.play(wire.send, chance, attacks.attack(chance))

    def _speak_no_tls(self, chance: random.Random) -> None:
        sent = attacks.tls_bytes(chance, self._hello)
        with self._connected(chance.choice(("SSL", "SASL_SSL"))) as sock, suppress(OSError):
            sock.sendall(sent)
            if chance.random() < 0.3:
                sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass

    def _show_certificate(self, chance: random.Random) -> None:
        """No certificate, one of somebody else, or a good one and then noise inside TLS."""
        name = chance.choice((None, "other_holder.pem", "renewed.pem", "certificate.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = chance.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
        if name is not None:
            with suppress(ssl.SSLError):
                context.load_cert_chain(TLS_FILES / name)
        with suppress(OSError), self._connected("SSL", context) as sock:
            sock.sendall(attacks.damaged(chance, struct.pack(">i", len(_METADATA)) + _METADATA))
            sock.recv(1 << 16)

    # Many at once.

    def _stay_half_open(self, chance: random.Random) -> None:
        """Handshakes of TLS that come byte by byte, all at the same time, and are never complete."""
        with ExitStack() as closing:
            socks = [
                closing.enter_context(self._connected(chance.choice(("SSL", "SASL_SSL"))))
                for _ in range(HALF_OPEN)
            ]
            for position in range(chance.randrange(1, 40)):
                for sock in socks:
                    sock.sendall(self._hello[position : position + 1])
            self._look()
        self.counts["half-open handshakes"] += HALF_OPEN

    def _fail_at_once(self, chance: random.Random) -> None:
        """Wrong passwords on many connections; the answers are delayed."""
        with ExitStack() as closing:
            for _ in range(HALF_OPEN):
                sock = closing.enter_context(self._connected("SASL_PLAINTEXT"))
                wrong = Sasl("PLAIN", attacks.USER, attacks.nonce(chance))
                attacks.play(
                    Wire(sock, chance).send, _Undamaged(), attacks.Attack("PLAIN", False, plain(wrong))
                )
            self._look()
        self.counts["failed logins"] += HALF_OPEN

    def _go_on_for_long(self, chance: random.Random) -> None:
        """Thousands of frames in one piece, none of which ends the exchange well."""
        frame = chance.choice(
            (
                struct.pack(">hhih", 18, 99, 1, -1),
                struct.pack(">hhih", 17, 1, 1, -1) + b"\0\5PLAIN",
                struct.pack(">hhih", 36, 0, 1, -1) + struct.pack(">i", 1) + b"\1",
                b"\1",
            )
        )
        with self._connected("SASL_PLAINTEXT") as sock, suppress(OSError):
            sock.sendall((struct.pack(">i", len(frame)) + frame) * 5_000)
            while sock.recv(1 << 16):
                pass

    # What must hold.

    def _look(self) -> None:
        self.longest_s = max(self.longest_s, *(each.look() for each in self._witnesses))

    def _thread_count(self) -> int:
        return len(os.listdir(f"/proc/{self._broker.process.pid}/task"))

    def _check_broker(self) -> None:
        log = self._broker.log_text
        if "Traceback" in log or " ERROR " in log or "FATAL" in log:
            raise FoundError("the broker logged an error")
        if attacks.PASSWORD in log:
            raise FoundError("the broker logged a password")
        if self._broker.process.poll() is not None:
            raise FoundError("the broker has ended")
        eventually(lambda: self._broker.open_files() <= self._files + 5)
        if self._thread_count() > self._threads + 5:
            raise FoundError("the broker has more threads than before")
        self._rss_bytes = self._rss_bytes or self._broker.rss_bytes()
        self.growth_bytes = self._broker.rss_bytes() - self._rss_bytes
        if self.growth_bytes > MOST_GROWTH_BYTES:
            raise FoundError(f"the broker has grown by {self.growth_bytes} bytes")


@contextmanager
def fuzzer(work: Path) -> Iterator[Fuzzer]:
    """A fuzzer with a broker of its own."""
    with secured_broker(work) as broker, ExitStack() as closing:
        yield Fuzzer(broker, closing)


def run(seconds: float, seed: int, work: Path, say: Callable[[str], object]) -> bool:
    """Plays rounds for a time. True if nothing was found."""
    end_s = time.monotonic() + seconds
    with fuzzer(work) as found:
        while time.monotonic() < end_s:
            try:
                found.play_round(seed)
            except Exception as error:
                say(f"FOUND in the round of seed {seed}: {error!r}")
                return False
            seed += 1
            if found.counts["rounds"] % 100 == 0:
                say(_summary(found))
        say(_summary(found))
    return True


def _summary(found: Fuzzer) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    growth_mib = found.growth_bytes >> 20
    return f"{counts}; a client waited {found.longest_s:.2f} s at most; memory grew by {growth_mib} MiB"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        good = run(options.seconds, options.seed, Path(work), _say)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
