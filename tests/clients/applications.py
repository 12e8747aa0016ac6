"""Programs that use a broker for long (Kafka Streams, Connect), and brokers that fail under them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from tests.peers import KafkaPeer, ZooKeeperBroker
from tests.peers.kafka import java_environment
from tests.swap.klog_process import KlogBroker
from tests.waiting import eventually

TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60

_CONFIG = {
    "num.partitions": 2,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
}


class RestartableBroker(Protocol):
    """A broker whose process can be replaced. Kafka, the control, does nothing when it is told to."""

    bootstrap: str

    def restart(self) -> None:
        """Stops it cleanly and starts it."""

    def crash(self) -> None:
        """Sends SIGKILL and starts it."""


class _Klog(KlogBroker):
    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        self.kill()
        self.start()


class _Kafka(ZooKeeperBroker):
    def restart(self) -> None:
        """Kafka needs no proof."""

    def crash(self) -> None:
        """Kafka needs no proof."""


@contextmanager
def klog(work: Path) -> Iterator[RestartableBroker]:
    with _Klog(work, _CONFIG) as broker:
        broker.start()
        yield broker
        broker.stop()
        assert "Traceback" not in broker.log_path.read_text("utf-8", "replace")


def kafka(work: Path, peer: KafkaPeer) -> AbstractContextManager[RestartableBroker]:
    return _Kafka(work, _CONFIG, peer)


class Application:
    """A process that reads stdin to its end and then stops. All its starts log to the same file."""

    def __init__(self, command: Sequence[str], log_path: Path, cwd: Path) -> None:
        self._command = command
        self._log_path = log_path
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=java_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process. Fails with its log if it has ended by itself."""
        assert self._process is not None, "not started"
        assert self._process.poll() is None, f"ended: {self.log_tail()}"
        return self._process

    def log_tail(self) -> str:
        return self._log_path.read_text("utf-8", "replace")[-4000:]

    def stop(self) -> None:
        """Sends SIGTERM, and waits."""
        process = self.running
        process.terminate()
        process.wait(_STOP_TIMEOUT_S)
        self._forget(process)

    def end_input(self) -> None:
        """Ends its stdin, and waits. Fails with its log if its exit status is not 0."""
        process = self.running
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0, self.log_tail()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_S)
            self._forget(self._process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        self._process = None

    def await_that(self, holds: Callable[[], object]) -> None:
        """Waits until it holds. Fails with the log if the program ends before, or if it takes too long."""
        try:
            eventually(lambda: self.running and holds(), TIMEOUT_S)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.log_tail()}") from failed


def rounds() -> Iterator[int]:
    """The number of each round: one round, or rounds for KLOG_APPLICATION_MINUTES if that is set."""
    end_s = time.monotonic() + 60 * float(os.environ.get("KLOG_APPLICATION_MINUTES", "0"))
    number = 0
    while number == 0 or time.monotonic() < end_s:
        yield number
        number += 1
