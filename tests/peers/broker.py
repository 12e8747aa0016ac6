"""Starts real Kafka brokers on 127.0.0.1 for tests in which Kafka opens, writes or recovers a log directory.

`ZooKeeperBroker` is Kafka 3.9 with the ZooKeeper server from Kafka's dependencies. `KRaftBroker` is Kafka
4.x, broker and controller in one process. Both choose free ports and log into their work directory. The
process that starts them also stops them.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.kafka import KAFKA_3, KAFKA_4, KafkaPeer, java_environment
from tests.waiting import eventually

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60

# Linux assigns ports from 32768 on to connections, and to programs that ask for any port.
_PORTS = range(20_000, 32_000)

# The main class of Kafka's brokers.
BROKER = "kafka.Kafka"

# A broker in a test needs little heap and a quick start. None of these flags changes what it writes.
BROKER_FLAGS = (
    "-Xms256M",
    "-Xmx512M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)

Config = Mapping[str, str | int]

# One broker has every internal topic, and no record is deleted because of its age.
SINGLE_BROKER: Config = {
    "num.partitions": 1,
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
}


# A session of ZooKeeper lasts at least two ticks. With short ticks, tests see sessions expire soon.
TICK_MS = 200


class BrokerFailedError(Exception):
    """A broker or ZooKeeper ended before it was ready, or was not ready in time. Has the end of its log."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now.

    Linux does not assign it by itself. Otherwise any connection on this machine could get it while the JVM
    starts.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise BrokerFailedError("none of 100 ports is free")


def properties_text(config: Config) -> str:
    """Java properties, one `key=value` per line. No value may need escaping (paths and numbers do not)."""
    return "".join(f"{key}={value}\n" for key, value in config.items())


def read_properties(path: Path, separator: str = "=") -> dict[str, str]:
    """The plain `key=value` (or `key: value`) lines of a file that Kafka wrote."""
    pairs = (line.partition(separator) for line in path.read_text().splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def znodes_for(logs: Path) -> dict[str, str]:
    """The znodes that a cluster with this log directory has.

    They are the cluster id and every partition in the directory, with its topic id. The broker that the
    directory belongs to leads all of them.
    """
    meta = read_properties(logs / "meta.properties")
    znodes = {"/cluster/id": json.dumps({"version": "1", "id": meta["cluster.id"]})}
    partitions: dict[str, list[int]] = {}
    for directory in sorted(logs.glob("*-*/")):
        topic, _, number = directory.name.rpartition("-")
        if number.isdigit():
            partitions.setdefault(topic, []).append(int(number))
    for topic, numbers in partitions.items():
        identity = read_properties(logs / f"{topic}-{numbers[0]}" / "partition.metadata", ":")
        state = {
            "version": 3,
            "topic_id": identity["topic_id"],
            "partitions": {str(number): [int(meta["broker.id"])] for number in numbers},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        znodes[f"/brokers/topics/{topic}"] = json.dumps(state)
    return znodes


class JavaService:
    """A Java process that writes its output to a file. It is ready when a given text appears there."""

    def __init__(self, command: Sequence[str], log: Path, ready_text: str) -> None:
        self.log_path = log
        with log.open("ab") as output:
            start_bytes = output.tell()
            self._process = subprocess.Popen(
                command, env=java_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._wait_until_ready(ready_text.encode(), start_bytes)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait_until_ready(self, ready_text: bytes, start_bytes: int) -> None:
        def is_ready() -> bool:
            ended = self._process.poll()
            if ready_text in self.log_path.read_bytes()[start_bytes:]:
                return True
            if ended is not None:
                raise BrokerFailedError(f"ended with status {ended}: {self._log_tail()}")
            return False

        try:
            eventually(is_ready, START_TIMEOUT_S, lambda: f"{self._log_tail()}\nnot ready")
        except AssertionError:
            self.kill()
            raise

    def _log_tail(self) -> str:
        return f"{self.log_path}\n" + self.log_path.read_text("utf-8", "replace")[-4000:]

    def stop(self) -> None:
        """Sends SIGTERM and waits: a broker flushes, writes its checkpoints and the clean-shutdown marker."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Sends SIGKILL: an unclean stop."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)


def zookeeper_config_text(data: Path, port: int) -> str:
    """The configuration file of a standalone ZooKeeper server on 127.0.0.1."""
    return properties_text(
        {
            "dataDir": f"{data}",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": TICK_MS,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
        }
    )


def wait_for_zookeeper(port: int) -> None:
    """Waits until the server at `port` of 127.0.0.1 answers.

    The port is open before the server serves, on a busy machine long before.
    """
    eventually(
        lambda: _serves_sessions(port), START_TIMEOUT_S, lambda: f"ZooKeeper at port {port} does not answer"
    )


def _serves_sessions(port: int) -> bool:
    try:
        # While it starts, the server accepts connections that it never answers.
        with socket.create_connection(("127.0.0.1", port), 2) as sock:
            sock.sendall(b"srvr")
            with sock.makefile("rb") as answer:
                return b"Mode: standalone" in answer.read()
    except OSError:
        return False


class _Broker:
    """What both kinds of brokers share. As a context manager it stops the broker at the end."""

    def __init__(self, peer: KafkaPeer, work: Path) -> None:
        self.peer = peer
        self.work = work
        self.port = free_port()
        self._services: list[JavaService] = []
        work.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """The broker's own log (log4j output). A restart appends to it."""
        return self.work / "broker.log"

    def _write_config(self, config: Config) -> Path:
        path = self.work / "server.properties"
        path.write_text(properties_text(config))
        return path

    def _run(
        self, main_class: str, *args: str, log: Path, ready_text: str, flags: Sequence[str] = ()
    ) -> None:
        logging = (
            "-Dlog4j.configuration=service-log4j.properties",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
        )
        classes = self.peer.class_flags if main_class == BROKER else ()
        jvm_flags = (*BROKER_FLAGS, *logging, *classes, *flags)
        command = self.peer.command(main_class, *args, jvm_flags=jvm_flags)
        self._services.append(JavaService(command, log, ready_text))

    def stop(self) -> None:
        """Stops all services cleanly, the last one first. Kills those that do not stop in time."""
        try:
            while self._services:
                self._services.pop().stop()
        finally:
            self.kill()

    def kill(self) -> None:
        """Kills all services, the last one first."""
        while self._services:
            self._services.pop().kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()


def ports_of_brokers(port: int) -> list[int]:
    """The ports of all brokers that the broker at `port` knows (Metadata version 1)."""
    with (
        socket.create_connection(("127.0.0.1", port), START_TIMEOUT_S) as sock,
        sock.makefile("rb") as answer,
    ):
        sock.sendall(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0))
        (size,) = struct.unpack(">i", answer.read(4))
        body = answer.read(size)
    (count,) = struct.unpack_from(">i", body, 4)
    at, ports = 8, []
    for _ in range(count):
        (host_bytes,) = struct.unpack_from(">h", body, at + 4)
        port_known, rack_bytes = struct.unpack_from(">ih", body, at + 6 + host_bytes)
        ports.append(port_known)
        at += 12 + host_bytes + max(rack_bytes, 0)
    return ports


class ZooKeeperBroker(_Broker):
    """Kafka 3.9 in ZooKeeper mode. It starts a ZooKeeper unless `config` has `zookeeper.connect`.

    `config` overrides the defaults, key by key; the JVM gets the `flags`, too. Raises BrokerFailedError if
    the broker does not start (its log says why), PeerUnavailableError if there is no Kafka.
    """

    def __init__(
        self,
        work: Path,
        config: Config | None = None,
        peer: KafkaPeer | None = None,
        znodes: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        super().__init__(peer or KafkaPeer(KAFKA_3), work)
        self.zookeeper_port = free_port()
        self.config: Config = {
            **SINGLE_BROKER,
            "broker.id": 0,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            "log.dirs": f"{work / 'logs'}",
            **(config or {}),
        }
        try:
            if not config or "zookeeper.connect" not in config:
                self._run_zookeeper()
            if znodes:
                self._create(znodes)
            self._run(
                BROKER,
                str(self._write_config(self.config)),
                log=self.log_path,
                ready_text="started (kafka.server.KafkaServer)",
                flags=flags,
            )
            self._wait_until_it_knows_itself()
        except (BrokerFailedError, AssertionError):
            self.kill()
            raise

    def _wait_until_it_knows_itself(self) -> None:
        """Waits until the broker is in its own metadata.

        Kafka reports its start before the controller has sent the metadata. Until then it cannot create
        topics, because it knows no broker. It is asked at its plain listener, if it has one.
        """
        plain = re.search(r"\bPLAINTEXT://127\.0\.0\.1:(\d+)", str(self.config["listeners"]))
        if plain is None or "advertised.listeners" in self.config:
            return
        port = int(plain[1])
        eventually(
            lambda: port in ports_of_brokers(port),
            START_TIMEOUT_S,
            lambda: f"{self.log_path}: the broker does not know itself",
        )

    def _run_zookeeper(self) -> None:
        path = self.work / "zoo.cfg"
        path.write_text(zookeeper_config_text(self.work / "zookeeper", self.zookeeper_port))
        self._run(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(path),
            log=self.work / "zookeeper.log",
            ready_text="binding to port",
        )
        wait_for_zookeeper(self.zookeeper_port)

    def _create(self, znodes: Mapping[str, str]) -> None:
        from kazoo.client import KazooClient

        client = KazooClient(f"127.0.0.1:{self.zookeeper_port}")
        client.start(timeout=START_TIMEOUT_S)
        try:
            for path, text in znodes.items():
                client.create(path, text.encode(), makepath=True)
        finally:
            client.stop()
            client.close()

    @classmethod
    def on_log_directory(cls, original: Path, work: Path, config: Config | None = None) -> Self:
        """A broker on a copy (in `work/logs`) of a log directory that another broker or klog wrote.

        ZooKeeper gets the cluster id, the broker id, and every partition of the directory with its topic id;
        this broker is their only replica. Nothing is cleaned or deleted.
        """
        logs = work / "logs"
        shutil.copytree(original, logs)
        znodes = znodes_for(logs)
        broker_id = int(read_properties(logs / "meta.properties")["broker.id"])
        settings = {"broker.id": broker_id, "log.cleaner.enable": "false", **(config or {})}
        return cls(work, settings, znodes=znodes)


def new_cluster_id() -> str:
    """The id of a new cluster. `kafka-storage` would read a leading dash as an option."""
    return "A" + urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()[1:]


class KRaftBroker(_Broker):
    """Kafka 4.x, broker and controller in one process. `kafka-storage format` gets the `features`.

    Nodes of one cluster get the same `cluster_id`. In the work directory of another that was stopped, it goes
    on with its logs and metadata. Raises BrokerFailedError if the broker does not start (its log says why),
    PeerUnavailableError if there is no Kafka.
    """

    def __init__(
        self,
        work: Path,
        config: Config | None = None,
        peer: KafkaPeer | None = None,
        features: Sequence[str] = (),
        cluster_id: str | None = None,
    ) -> None:
        super().__init__(peer or KafkaPeer(KAFKA_4), work)
        self._cluster_id = cluster_id or new_cluster_id()
        controller_port = free_port()
        self.config: Config = {
            **SINGLE_BROKER,
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": f"{work / 'logs'}",
            **(config or {}),
        }
        path = self._write_config(self.config)
        if not Path(str(self.config["log.dirs"]).split(",")[0], "meta.properties").exists():
            self._format(path, features)
        try:
            self._run(BROKER, str(path), log=self.log_path, ready_text="Kafka Server started")
        except (BrokerFailedError, AssertionError):
            self.kill()
            raise

    def _format(self, path: Path, features: Sequence[str]) -> None:
        args = ["format", "--ignore-formatted", "-t", self._cluster_id, "-c", str(path)]
        for feature in features:
            args += ["--feature", feature]
        done = self.peer.java("kafka.tools.StorageTool", *args)
        if done.returncode != 0:
            raise BrokerFailedError(f"kafka-storage format: {(done.stdout + done.stderr).decode()}")
