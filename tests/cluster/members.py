"""One broker of a cluster, run by klog or by Kafka 3.9.1 in turns, on the same files and ports."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from tests.peers.broker import BROKER, JavaService, free_port, properties_text
from tests.peers.kafka import KafkaPeer
from tests.swap.clocks import settable
from tests.swap.klog_process import READY, Config, KlogBroker

# Far more than a start takes, because several JVMs may start at once on a busy machine.
START_TIMEOUT_S: Final = 120

_KAFKA_FLAGS: Final = (
    "-Xms96M",
    "-Xmx256M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dlog4j.configuration=service-log4j.properties",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


class Kind(Enum):
    """Which program a broker is."""

    KLOG = "klog"
    KAFKA = "kafka"


class Member:
    """A broker with its directory, ports and configs. `kind` may change between two starts.

    Brokers connect to `inside_port`, clients to `clients_port`. `before` is Python code that a klog process
    runs first. `set_clock` moves the wall clock of a klog process.
    """

    def __init__(
        self, broker_id: int, work: Path, kind: Kind, peer: KafkaPeer | None, config: Config
    ) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.broker_id = broker_id
        self.kind = kind
        self.work = work
        self.inside_port = free_port()
        self.clients_port = free_port()
        self.config: dict[str, str | int] = {
            "broker.id": broker_id,
            "listeners": f"INSIDE://127.0.0.1:{self.inside_port},CLIENTS://127.0.0.1:{self.clients_port}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENTS:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "log.dirs": str(work / "logs"),
            **config,
        }
        self.before = ""
        self._clock = work / "clock"
        self.set_clock(0)
        self._peer = peer
        self.is_paused = False
        self._klog: KlogBroker | None = None
        self._kafka: JavaService | None = None

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.broker_id}>"

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.clients_port}"

    @property
    def log_directories(self) -> Sequence[Path]:
        return [Path(each) for each in str(self.config["log.dirs"]).split(",")]

    @property
    def log_text(self) -> str:
        """What the program logged since its last start."""
        if self._klog is not None:
            return self._klog.log_text
        return self._kafka_log.read_bytes()[self._kafka_log_starts_at :].decode("utf-8", "replace")

    @property
    def klog_log(self) -> str:
        """What klog logged in all its starts."""
        path = self.work / "klog.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    @property
    def runs(self) -> bool:
        return self._klog is not None or self._kafka is not None

    @property
    def answers(self) -> bool:
        """Whether it runs and is not suspended."""
        return self.runs and not self.is_paused

    @property
    def pid(self) -> int:
        if self._klog is not None:
            return self._klog.process.pid
        assert self._kafka is not None, f"{self} does not run"
        return self._kafka.pid

    # -- starting and stopping -------------------------------------------------------------------------------

    def start(self, kind: Kind | None = None, **changes: str | int) -> None:
        """Starts it, as another program if `kind` says so, and waits until it serves.

        `changes` replace configs from now on (`_` in a name stands for `.`).
        """
        assert not self.runs, f"{self} runs already"
        self.kind = kind or self.kind
        self.config.update({name.replace("_", "."): value for name, value in changes.items()})
        if self.kind is Kind.KLOG:
            before = settable(self._clock) + self.before
            self._klog = KlogBroker(self.work, self.config, before=before).spawn()
            self._klog.wait_for(READY, START_TIMEOUT_S)
        else:
            self._start_kafka()

    @property
    def _kafka_log(self) -> Path:
        return self.work / "kafka.log"

    def _start_kafka(self) -> None:
        path = self.work / "kafka.properties"
        path.write_text(properties_text(self.config))
        self._kafka_log_starts_at = self._kafka_log.stat().st_size if self._kafka_log.exists() else 0
        flags = (*_KAFKA_FLAGS, *self._peer.class_flags)
        command = self._peer.command(BROKER, str(path), jvm_flags=flags)
        self._kafka = JavaService(command, self._kafka_log, "started (kafka.server.KafkaServer)")

    def stop(self) -> None:
        """Stops it cleanly. Fails if klog's exit status is not 0."""
        klog, kafka = self._klog, self._kafka
        self._klog = self._kafka = None
        if klog is not None:
            klog.stop()
        elif kafka is not None:
            kafka.stop()

    def kill(self) -> None:
        """Sends SIGKILL. Does nothing if it does not run."""
        klog, kafka = self._klog, self._kafka
        self._klog = self._kafka = None
        if klog is not None:
            klog.kill()
        elif kafka is not None:
            kafka.kill()

    def set_clock(self, offset_s: int) -> None:
        """Sets the wall clock of klog, now and after starts, to so many seconds from the system's."""
        part = self.work / "clock.part"
        part.write_text(str(offset_s))
        part.rename(self._clock)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False
