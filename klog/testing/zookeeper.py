"""Starts, stops, kills and pauses a ZooKeeper server for tests, from the jars that come with PySpark."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from klog.formats.errors import KlogError
from klog.server.startup.zookeeper_runner import ZooKeeperLaunch, find_jars, find_java, prepare

_HOST: Final = "127.0.0.1"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02
_TICK_MS: Final = 500  # sessions of 1 to 10 s
_LOG_TAIL_CHARS: Final = 4000
# Its input ends when the process that started it ends, for whatever reason.
_GUARD: Final = 'cat >/dev/null; kill -9 "$1"; rm -rf -- "$2"'


class ZooKeeperFailedError(KlogError):
    """The server did not start, or does not run. The message has the end of its log."""


class ZooKeeperProcess:
    """A ZooKeeper server in a process of its own. It keeps its port and its data over restarts."""

    def __init__(self, work: Path, port: int, hold: Callable[[bool], None]) -> None:
        """`work` is its directory. If this process ends without stopping the server, both are removed.

        `hold` lets connections of clients wait (True) from the start of the process until the server answers.
        """
        self._work = work
        self._hold = hold
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = port
        """The port on 127.0.0.1."""

    @property
    def connect(self) -> str:
        """The server's own address, past all proxies."""
        return f"{_HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The id of the process, None while it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        """The file of the server's log; restarts append to it."""
        return self._work / "zookeeper.log"

    def launch(self) -> None:
        """Start the server unless it runs, and do not wait. Raises `KlogError` without Java or jars."""
        if self._process is not None:
            return
        self._work.mkdir(parents=True, exist_ok=True)
        launch = ZooKeeperLaunch(str(self._work), self.port, tick_ms=_TICK_MS, is_synced=False)
        command = prepare(launch, find_jars(), find_java())
        self._hold(True)
        with self.log_path.open("ab") as log:
            # Ctrl-C must only reach the test run.
            self._process = subprocess.Popen(  # noqa: S603 (the command is our own)
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._guard = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _GUARD, "sh", str(self._process.pid), str(self._work)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def await_serving(self) -> None:
        """Wait until the server answers. Raises ZooKeeperFailedError."""
        try:
            self._await_serving()
        finally:
            self._hold(False)

    def _await_serving(self) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not self._serves():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                log = self.log_path.read_text("utf-8", "replace")[-_LOG_TAIL_CHARS:]
                raise ZooKeeperFailedError(f"ZooKeeper did not start; its log:\n{log}")
            time.sleep(_POLL_S)

    def start(self) -> None:
        """Start the server unless it runs, and wait until it answers. Raises `KlogError`."""
        self.launch()
        self.await_serving()

    def stop(self) -> None:
        """Stop the server with SIGTERM. Its sessions go on if it is started again soon enough."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (SIGKILL). It keeps what it has acknowledged."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP): its connections stay open, and it does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise ZooKeeperFailedError("ZooKeeper does not run")
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, guard = self._process, self._guard
        self._process = self._guard = None
        if guard is not None:
            guard.kill()
            guard.communicate()
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _serves(self) -> bool:
        try:
            # While it starts, the server accepts connections that it never answers.
            with socket.create_connection((_HOST, self.port), 2) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    return b"Mode: standalone" in answer.read()
        except OSError:
            return False
