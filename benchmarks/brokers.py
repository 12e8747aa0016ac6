"""Starts klog and Kafka 3.9.1 (with ZooKeeper), each as a process, on the same disk.

Kafka has the JVM flags of its kafka-server-start script. The CPU and memory of ZooKeeper do not count. Both
brokers have their default configs except for ids, addresses and directories.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.contestants import KAFKA
from benchmarks.measure import MIB, BenchmarkError
from benchmarks.package import CHECKOUT, packaged_klog, require_compiled
from benchmarks.processes import tree_cpu_s, tree_rss_bytes
from tests.peers import STOCK_TOOL_FLAGS
from tests.peers.broker import free_port, properties_text
from tests.peers.kafka import java_environment
from tests.peers.zookeeper import ZooKeeperServer

KLOG_PROGRAM = ("-m", "klog")
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 120
# The heap of kafka-server-start.sh, then the flags that kafka-run-class.sh gives to every program. The log of
# garbage collections follows in `start_kafka`.
_SERVER_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    *(flag for flag in STOCK_TOOL_FLAGS if not flag.startswith("-Xmx")),
    "-Dlog4j.configuration=service-log4j.properties",
)
_API_VERSIONS_0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class RunningBroker:
    """A broker process; `stop` ends it cleanly."""

    replicas: Sequence[int] = ()
    """Of what is created on it: none in particular."""

    def __init__(self, name: str, command: Sequence[str], port: int, work: Path, env: Mapping[str, str]):
        self.name = name
        self.port = port
        self.work = work
        started_s = time.perf_counter()
        with (work / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work, env=env
            )
        self._await_answer()
        self.start_s = time.perf_counter() - started_s

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def logs(self) -> Path:
        return self.work / "logs"

    def _await_answer(self) -> None:
        """Waits for the first ApiVersions answer."""
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise BenchmarkError(f"{self.name} did not start, see {self.work / 'broker.log'}")
            time.sleep(0.002)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), _START_TIMEOUT_S) as sock:
                sock.sendall(_API_VERSIONS_0)
                return bool(sock.recv(1))
        except (ConnectionRefusedError, ConnectionResetError):
            return False

    def cpu_s(self) -> float:
        """CPU time so far, worker processes included."""
        return tree_cpu_s(self.pid)

    def rss_bytes(self) -> int:
        """Resident memory now, worker processes included."""
        return tree_rss_bytes(self.pid)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_klog(
    work: Path,
    config: Mapping[str, str | int] | None = None,
    *,
    checkout: bool = False,
    program: Sequence[str] = KLOG_PROGRAM,
) -> RunningBroker:
    """Starts the package that is built from the checkout, or (`checkout`) its modules, not compiled.

    `program` are the options of Python that run klog.
    """
    work.mkdir(parents=True, exist_ok=True)
    port = free_port()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = str(CHECKOUT if checkout else packaged_klog())
    env["PYTHONPYCACHEPREFIX"] = str(work.parent / "pycache")
    klog = [sys.executable, "-P", *program]
    require_compiled([*klog, "--version"], env, broker=not checkout)
    command = [*klog, "serve", "--config", "server.properties"]
    return RunningBroker("klog", command, _configured(work, port, config or {}), work, env)


def start_kafka(work: Path, zookeeper: str, config: Mapping[str, str | int] | None = None) -> RunningBroker:
    work.mkdir(parents=True, exist_ok=True)
    port = _configured(work, free_port(), {"zookeeper.connect": zookeeper, **(config or {})})
    flags = (*_SERVER_FLAGS, "-Xlog:gc*:file=gc.log:time,tags:filecount=10,filesize=100M")
    command = KAFKA.command("kafka.Kafka", "server.properties", jvm_flags=flags)
    return RunningBroker("Kafka", command, port, work, java_environment())


def _configured(work: Path, port: int, config: Mapping[str, str | int]) -> int:
    settings = {
        "broker.id": 0,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(work / "logs"),
        "offsets.topic.replication.factor": 1,
        **config,
    }
    # A config that replaces the listener names the port so.
    settings["listeners"] = str(settings["listeners"]).replace("{port}", str(port))
    (work / "server.properties").write_text(properties_text(settings))
    return port


@contextmanager
def both(scratch: Path, config: Mapping[str, str | int] | None = None) -> Iterator[list[RunningBroker]]:
    """klog and Kafka, started on empty directories; stopped, and their directories removed, at the end."""
    work = scratch / "brokers"
    shutil.rmtree(work, ignore_errors=True)
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, work, ignore_errors=True)
        zookeeper = closing.enter_context(ZooKeeperServer(work / "zookeeper"))
        ours = start_klog(work / "klog", config)
        closing.callback(ours.stop)
        peer = start_kafka(work / "kafka", zookeeper.hosts, config)
        closing.callback(peer.stop)
        yield [ours, peer]


@contextmanager
def klog_alone(
    scratch: Path, config: Mapping[str, str | int] | None = None, *, checkout: bool = False
) -> Iterator[list[RunningBroker]]:
    """klog without Kafka, started on an empty directory; stopped, and the directory removed, at the end."""
    work = scratch / "brokers"
    shutil.rmtree(work, ignore_errors=True)
    with ExitStack() as closing:
        closing.callback(shutil.rmtree, work, ignore_errors=True)
        ours = start_klog(work / "klog", config, checkout=checkout)
        closing.callback(ours.stop)
        yield [ours]


def mib(size_bytes: float) -> str:
    return f"{size_bytes / MIB:.0f} MiB"
