"""Runs a real ZooKeeper server on 127.0.0.1, from the jars of Kafka 3.9.

It keeps its port and data over `kill` and `start`, so that clients can reconnect.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from tests.peers.broker import (
    BrokerFailedError,
    Config,
    JavaService,
    free_port,
    properties_text,
    wait_for_zookeeper,
    zookeeper_config_text,
)
from tests.peers.kafka import KAFKA_3, KafkaPeer

_FLAGS = (
    "-Xmx128M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dlog4j.configuration=service-log4j.properties",
)


class ZooKeeperServer:
    """A standalone server, with more `config` than it needs.

    Raises PeerUnavailableError without Java or Maven, BrokerFailedError if it does not start (its log says
    why).
    """

    def __init__(
        self,
        work: Path,
        peer: KafkaPeer | None = None,
        config: Config = MappingProxyType({}),
        jvm_flags: tuple[str, ...] = (),
    ) -> None:
        self.peer = peer or KafkaPeer(KAFKA_3)
        self.port = free_port()
        self._work = work
        work.mkdir(parents=True, exist_ok=True)
        self._config = work / "zoo.cfg"
        self._config.write_text(zookeeper_config_text(work / "data", self.port) + properties_text(config))
        self._jvm_flags = (*_FLAGS, *jvm_flags)
        self._service: JavaService | None = None
        self.start()

    @property
    def hosts(self) -> str:
        """The value for `zookeeper.connect`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = self.peer.command(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config), jvm_flags=self._jvm_flags
        )
        self._service = JavaService(command, self._work / "zookeeper.log", "binding to port")
        try:
            wait_for_zookeeper(self.port)
        except (BrokerFailedError, AssertionError):
            self.kill()
            raise

    def kill(self) -> None:
        """Kills the server. What it acknowledged is on disk."""
        if self._service is not None:
            self._service.kill()
            self._service = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
