"""Runs `klog serve` as a process with any configs, stops it, kills it and reads its state.

All its starts log to the same file, as Kafka's in `tests.peers.broker`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.peers.broker import free_port, properties_text
from tests.waiting import eventually

START_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60
READY: Final = "Ctrl-C stops it"
REPOSITORY: Final = Path(__file__).resolve().parents[2]
_LAUNCH: Final = "import sys; from klog.commands.main import main; sys.argv[0] = 'klog'; main()"

Config = Mapping[str, str | int]


class KlogBroker:
    """A broker on a port of 127.0.0.1, which it keeps over its starts. Its data is below `work`.

    `before` is Python code that the process runs first. Tests use it to make the disk fail, for instance.
    """

    def __init__(
        self,
        work: Path,
        config: Config | None = None,
        *,
        before: str = "",
    ) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.work = work
        self.port = free_port()
        self.config: dict[str, str | int] = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": f"{work / 'logs'}",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            **(config or {}),
        }
        self.log_path = work / "klog.log"
        self._launch = f"{before}\n{_LAUNCH}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_starts_at = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def log_text(self) -> str:
        """Its log since its last start."""
        return self.log_path.read_bytes()[self._log_starts_at :].decode("utf-8", "replace")

    @property
    def complaints(self) -> list[str]:
        """The lines of its log since its last start that are worse than INFO."""
        return [
            line for line in self.log_text.splitlines() if line.split()[1:2] not in (["INFO"], ["DEBUG"], [])
        ]

    # -- starting and stopping -------------------------------------------------------------------------------

    def spawn(self, **changes: str | int) -> Self:
        """Starts it without waiting. `changes` replace configs from now on (`_` in a name stands for `.`)."""
        self.config.update({name.replace("_", "."): value for name, value in changes.items()})
        path = self.work / "klog.properties"
        path.write_text(properties_text(self.config))
        with self.log_path.open("ab") as output:
            self._log_starts_at = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._launch, "serve", "--config", str(path)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self

    def start(self, **changes: str | int) -> Self:
        """Starts it and waits until it serves."""
        self.spawn(**changes)
        self.wait_for(READY, START_TIMEOUT_S)
        return self

    def wait_for(self, text: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until the log since the last start contains `text`. Fails if the process ends before."""

        def is_logged() -> bool:
            ended = self.process.poll()
            found = text in self.log_text
            assert found or ended is None, f"klog ended with {ended}, not logging {text!r}:\n{self.log_text}"
            return found

        eventually(is_logged, timeout_s, lambda: f"{self.log_text}\nno {text!r}")

    def ended(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Waits until it has ended by itself. Returns its exit status."""
        return self.process.wait(timeout_s)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stops it cleanly. Fails if its exit status is not 0."""
        self.process.send_signal(number)
        status = self.ended()
        assert status == 0, f"klog ended with {status}:\n{self.log_text}"

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    # -- its state -------------------------------------------------------------------------------------------

    def rss_bytes(self) -> int:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """The number of its open descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def log_directories(self) -> Sequence[Path]:
        return [Path(each) for each in str(self.config["log.dirs"]).split(",")]
