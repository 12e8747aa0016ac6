"""What TLS and ACLs cost a broker: its CPU by megabyte over TLS beside Kafka, and by request with ACLs.

Over TLS a client in this process sends ready-made requests and reads the answers, one after the other on each
connection; the CPU is the broker's. With ACLs the C client of `broker-requests` puts its loads on two brokers
of klog: one has an authoriser with a thousand ACLs and checks each request, the other has none.
"""

from __future__ import annotations

import ssl
import statistics
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.broker_requests import in_memory
from benchmarks.brokers import RunningBroker, start_kafka, start_klog
from benchmarks.measure import MIB, judge
from benchmarks.request_frames import Admin, WrongAnswerError
from benchmarks.request_loads import LOADS, Load, Prepared, Programs, prepared
from benchmarks.rows import Rows
from klog.admin import connect
from klog.admin.requests.acls import create_acls
from klog.admin.settings import ClientSettings, parse_bootstrap
from klog.protocol.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from tests.peers.broker import free_port
from tests.peers.zookeeper import ZooKeeperServer

TLS_CPU_AIM: Final = 0.5
ACL_CPU_AIM: Final = 1.1
_TLS_LOADS: Final = (
    Load("tls-produce-16k", "Produce 16 KiB over TLS", "produce", 16 * 1024, 4, 1),
    Load("tls-produce-1m", "Produce 1 MB over TLS", "produce", 1_000_000, 2, 1),
    Load("tls-fetch-1m", "Fetch 1 MiB over TLS", "fetch", MIB, 2, 1),
)
_ACL_LOADS: Final = ("produce-200-8x1", "produce-200-8x5", "produce-16k-8x5", "fetch-256k-8")
_TLS_SECONDS: Final = 2.0
_ACL_SECONDS: Final = 1.5
_WARM_UP_TIMES: Final = 3
_TLS_FILES: Final = Path(__file__).parents[1] / "tests" / "server" / "network" / "tls"
_ACLS: Final = 1000
_CONFIG: Final[Mapping[str, str | int]] = {"log.segment.delete.delay.ms": 100}


class _Used(NamedTuple):
    """CPU of the broker for each megabyte (10^6 bytes), and how many megabytes a second passed."""

    cpu_ms: float
    mb_per_s: float


# TLS.


def tls(scratch: Path, rounds: int, figures: Rows) -> str:
    """The broker's CPU by megabyte over TLS, klog beside Kafka."""
    with in_memory(scratch) as work, _secured_brokers(work) as brokers:
        lines = [f"over TLS 1.3, logs in {work.parent} (medians of {rounds})"]
        for load in _TLS_LOADS:
            taken: list[list[_Used]] = [[] for _ in brokers]
            for number in range(rounds + 1):
                seconds = _TLS_SECONDS if number else _WARM_UP_TIMES * _TLS_SECONDS
                for (broker, port), found in zip(brokers, taken, strict=True):
                    with prepared(broker.port, load, f"bench-{load.name}-{number}", work) as ready:
                        used = _over_tls(load, ready, broker, port, seconds)
                    if number:
                        found.append(used)
            lines += _described(load, taken, figures)
    return "\n".join(lines)


@contextmanager
def _secured_brokers(work: Path) -> Iterator[Sequence[tuple[RunningBroker, int]]]:
    """klog and Kafka, and the ports of their TLS listeners."""
    keystore = work / "keystore.pem"
    keystore.write_text((_TLS_FILES / "key.pem").read_text() + (_TLS_FILES / "certificate.pem").read_text())

    def config(port: int) -> dict[str, str | int]:
        return {
            **_CONFIG,
            "listeners": f"PLAINTEXT://127.0.0.1:{{port}},SSL://127.0.0.1:{port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }

    ports = free_port(), free_port()
    with ExitStack() as closing:
        zookeeper = closing.enter_context(ZooKeeperServer(work / "zookeeper"))
        klog = start_klog(work / "klog", config(ports[0]))
        closing.callback(klog.stop)
        kafka = start_kafka(work / "kafka", zookeeper.hosts, config(ports[1]))
        closing.callback(kafka.stop)
        yield list(zip((klog, kafka), ports, strict=True))


def _over_tls(load: Load, ready: Prepared, broker: RunningBroker, port: int, seconds: float) -> _Used:
    """Asks on each connection in turns, for a time. Every answer is checked."""
    context = ssl.create_default_context(cafile=str(_TLS_FILES / "certificate.pem"))
    frames = _frames_of(ready.frames)
    with ExitStack() as closing:
        clients = [Admin(port, context) for _ in range(load.connections)]
        for client in clients:
            closing.callback(client.close)
        begin_cpu_s, begin_s = broker.cpu_s(), time.perf_counter()
        moved_bytes = count = 0
        while time.perf_counter() - begin_s < seconds:
            frame = frames[count % len(frames)]
            for client in clients:
                client.post(frame)
            for client in clients:
                answer, errors = client.receive(ready.expected)
                if any(errors):
                    raise WrongAnswerError(f"{load.title} is answered with error code {errors}")
                moved_bytes += len(frame) + len(answer)
            count += 1
        took_s = time.perf_counter() - begin_s
        moved_mb = moved_bytes / 1e6
        return _Used((broker.cpu_s() - begin_cpu_s) * 1000 / moved_mb, moved_mb / took_s)


def _frames_of(path: Path) -> list[bytes]:
    data, frames, at = path.read_bytes(), [], 0
    while at < len(data):
        end = at + 4 + int(struct.unpack_from(">i", data, at)[0])
        frames.append(data[at:end])
        at = end
    return frames


def _described(load: Load, taken: Sequence[Sequence[_Used]], figures: Rows) -> list[str]:
    ours, theirs = (_Used(*(statistics.median(each) for each in zip(*found, strict=True))) for found in taken)
    ratio = ours.cpu_ms / theirs.cpu_ms
    verdict = judge(ratio, TLS_CPU_AIM)
    figures.add(f"{load.name}, broker CPU ms a MB", ours.cpu_ms, theirs.cpu_ms)
    figures.add(f"{load.name}, MB/s", ours.mb_per_s, theirs.mb_per_s)
    return [
        f"  {load.title}, {load.connections} connections",
        f"    broker CPU ms a MB: klog {ours.cpu_ms:.2f}, Kafka {theirs.cpu_ms:.2f}: {ratio:.2f} {verdict}",
        f"    MB/s: klog {ours.mb_per_s:.0f}, Kafka {theirs.mb_per_s:.0f}",
    ]


# ACLs.


def acls(scratch: Path, rounds: int, figures: Rows, *, checkout: bool = False) -> str:
    """The broker's CPU by request with ACLs and without, of klog."""
    with in_memory(scratch) as work, ExitStack() as closing:
        programs = Programs(work)
        secured: dict[str, str | int] = {
            **_CONFIG,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
        brokers = []
        for name, config in (("with", secured), ("without", _CONFIG)):
            brokers.append(start_klog(work / name, config, checkout=checkout))
            closing.callback(brokers[-1].stop)
        _add_acls(brokers[0])
        lines = [f"{_ACLS} ACLs or no authoriser, logs in {work.parent} (medians of {rounds})"]
        for load in (each for each in LOADS if each.name in _ACL_LOADS):
            taken: list[list[float]] = [[] for _ in brokers]
            for number in range(rounds + 1):
                for broker, found in zip(brokers, taken, strict=True):
                    with prepared(broker.port, load, f"bench-{load.name}-{number}", work) as ready:
                        run = programs.run_client(load, ready, seconds=_ACL_SECONDS, cpu_s=broker.cpu_s)
                    if number:
                        found.append(run.cpu_us)
            with_us, without_us = map(statistics.median, taken)
            ratio = with_us / without_us
            figures.add(f"{load.name}, broker CPU us with ACLs beside without", with_us, without_us)
            verdict = judge(ratio, ACL_CPU_AIM)
            lines += [
                f"  {load.title}",
                f"    broker CPU us: {with_us:.2f} with, {without_us:.2f} without: {ratio:.3f} {verdict}",
            ]
    return "\n".join(lines)


def _add_acls(broker: RunningBroker) -> None:
    """Lets everybody do everything with the topics of the loads, by their prefix; other ACLs do not match."""
    ours = _allowed("bench-", PatternType.PREFIXED, "User:ANONYMOUS", AclOperation.ALL)
    others = [
        _allowed(f"other-{number}", PatternType.LITERAL, f"User:somebody-{number}", AclOperation.WRITE)
        for number in range(_ACLS - 1)
    ]
    with connect.cluster(ClientSettings(parse_bootstrap(broker.bootstrap))) as cluster:
        for refused in create_acls(cluster, [ours, *others]):
            if refused is not None:
                raise refused


def _allowed(topic: str, kind: PatternType, principal: str, operation: AclOperation) -> Acl:
    pattern = ResourcePattern(AclResourceType.TOPIC, topic, kind)
    return Acl(pattern, principal, "*", operation, Permission.ALLOW)
