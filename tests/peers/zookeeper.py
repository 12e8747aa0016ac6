"""A real ZooKeeper server on 127.0.0.1, from the jars that come with Kafka 3.9.

Its port and data stay the same over `kill` and `start`, so that clients see a server go and come back.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.broker import (
    BrokerFailedError,
    JavaService,
    free_port,
    properties_text,
    wait_for_zookeeper,
)
from tests.peers.kafka import KAFKA_3, KafkaPeer

_FLAGS = (
    "-Xmx128M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dlog4j.configuration=service-log4j.properties",
)

# Sessions live at least two ticks; short ones let tests see expiry in a blink.
TICK_MS = 200


class ZooKeeperServer:
    """A standalone server. Raises PeerUnavailableError without Java or Maven, BrokerFailedError when it does
    not start (its log says why)."""

    def __init__(self, work: Path, peer: KafkaPeer | None = None) -> None:
        self.peer = peer or KafkaPeer(KAFKA_3)
        self.port = free_port()
        self._work = work
        work.mkdir(parents=True, exist_ok=True)
        self._config = work / "zoo.cfg"
        self._config.write_text(
            properties_text(
                {
                    "dataDir": f"{work / 'data'}",
                    "clientPort": self.port,
                    "clientPortAddress": "127.0.0.1",
                    "admin.enableServer": "false",
                    "tickTime": TICK_MS,
                    "maxSessionTimeout": 60_000,
                    "maxClientCnxns": 0,
                }
            )
        )
        self._service: JavaService | None = None
        self.start()

    @property
    def hosts(self) -> str:
        """As in `zookeeper.connect`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = self.peer.command(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config), jvm_flags=_FLAGS
        )
        self._service = JavaService(command, self._work / "zookeeper.log", "binding to port")
        try:
            wait_for_zookeeper(self.port)
        except BrokerFailedError:
            self.kill()
            raise

    def kill(self) -> None:
        """The server is gone at once; what it acknowledged is on disk."""
        if self._service is not None:
            self._service.kill()
            self._service = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
