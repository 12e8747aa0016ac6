"""Starts, stops and kills the process of a broker for tests, reads its log, and creates topics.

The process runs `klog.testing.child`, the same broker as `klog serve`. Nothing of the broker is imported
here.
"""

from __future__ import annotations

import json
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from klog.formats.errors import KlogError

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
_LOG_TAIL_CHARS: Final = 4000
_LISTENER: Final = re.compile(r"\s*(\w+)://(.*):0\s*")

ConfigValue = str | int | bool


class BrokerFailedError(KlogError):
    """The broker did not start, ended by itself, or did not stop. The message has the end of its log."""


class BrokerProcess:
    """A broker in a separate process. `broker` gives one that is already serving.

    It can be stopped and started again; it keeps its directory and its ports until `close`.
    """

    def __init__(self, config: Mapping[str, ConfigValue] | None = None, *, log_dir_count: int = 1) -> None:
        """`config` are broker configs. Creates `log_dir_count` directories if they do not name `log.dirs`."""
        self._work = Path(tempfile.mkdtemp(prefix="klog-testing-"))
        self._config = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(str(self._work / f"log-dir-{number}") for number in range(log_dir_count)),
            "log.retention.check.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "5",
            **{key: config_text(value) for key, value in (config or {}).items()},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoints: Mapping[str, str] = {}
        """The address of each listener by name: `{"PLAINTEXT": "127.0.0.1:40123"}`."""
        self.ports: Mapping[str, int] = {}
        """The port of each listener by name; `advertised.listeners` may give clients another one."""
        self.log_dirs: tuple[Path, ...] = ()
        """The paths of the log directories."""
        self.is_paused = False
        """Whether `pause` has stopped the process where it is."""

    # -- addresses and files -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: `host:port` of the first listener."""
        return next(iter(self.endpoints.values()))

    @property
    def pid(self) -> int | None:
        """The id of the process, None while it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        """The file of the broker's log; restarts append to it."""
        return self._work / "broker.log"

    def log_text(self) -> str:
        """What the broker has logged so far."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """The directory of a partition. Raises BrokerFailedError if no log directory has it."""
        name = f"{topic}-{partition}"
        for directory in self.log_dirs:
            if (directory / name).is_dir():
                return directory / name
        raise BrokerFailedError(f"no log directory holds {name}")

    # -- start and stop ------------------------------------------------------------------------------------

    def start(self, *, known_brokers: int = 1) -> None:
        """Start the broker unless it runs, and wait until it serves. Raises BrokerFailedError.

        As a member of a cluster it serves when it knows that many brokers, itself included.
        """
        if self._process is not None:
            return
        options = [f"{key}={value}" for key, value in self._config.items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (this Python, this package)
                [sys.executable, "-m", "klog.testing.child", str(self._work), str(known_brokers), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C must only reach the test run, which stops the broker itself.
                start_new_session=True,
            )
        addresses = json.loads(self._first_line(self._process))
        self.endpoints = addresses["endpoints"]
        self.ports = addresses["ports"]
        self.log_dirs = tuple(map(Path, addresses["log_dirs"]))
        self._config["listeners"] = _with_bound_ports(self._config["listeners"], self.ports)

    def _first_line(self, process: subprocess.Popen[bytes]) -> bytes:
        output = _pipe(process.stdout)
        # poll() accepts descriptors above 1023, select() does not.
        answer = select.poll()
        answer.register(output, select.POLLIN)
        ready = answer.poll(START_TIMEOUT_S * 1000)
        line = output.readline() if ready else b""
        if line:
            return line
        timed_out = not ready
        status = self._end(process, kill=timed_out)
        how = f"did not serve within {START_TIMEOUT_S:.0f} s" if timed_out else f"ended with status {status}"
        raise BrokerFailedError(f"the broker {how} when it started; its log:\n{self._log_tail()}")

    def stop(self, *, hand_over: bool = True) -> None:
        """Stop the broker cleanly (SIGTERM) and wait. Raises BrokerFailedError if it ended in another way.

        Other brokers of a cluster take over what it leads. Without `hand_over` it does not wait for that.
        """
        process = self._process
        if process is None:
            return
        ended_before = process.poll() is not None
        process.send_signal(signal.SIGCONT)  # it may be paused
        process.terminate()
        if not hand_over:
            process.send_signal(signal.SIGINT)  # a second signal; another SIGTERM might become one with it
        status = self._end(process, kill=False)
        if ended_before or status != 0:
            when = ", before it was asked to stop" if ended_before else ""
            raise BrokerFailedError(
                f"the broker ended with status {status}{when}; its log:\n{self._log_tail()}"
            )

    def kill(self) -> None:
        """Kill the broker (SIGKILL)."""
        if self._process is not None:
            self._end(self._process, kill=True)

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP): its connections stay open, and it does not answer."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise BrokerFailedError("the broker does not run")
        self._process.send_signal(number)

    def restart(self) -> None:
        """Stop the broker cleanly and start it again with the same directory and ports."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker and remove its files. Idempotent. Raises BrokerFailedError as `stop` does."""
        try:
            self.stop(hand_over=False)
        finally:
            self.kill()
            shutil.rmtree(self._work, ignore_errors=True)

    def _end(self, process: subprocess.Popen[bytes], *, kill: bool) -> int:
        """The exit status of a process that was asked to end, or that is killed now."""
        if kill:
            process.kill()
        try:
            status = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            what = f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s; its log:\n{self._log_tail()}"
            raise BrokerFailedError(what) from error
        finally:
            self._process = None
            self.is_paused = False
            _pipe(process.stdin).close()
            _pipe(process.stdout).close()
        return status

    def _log_tail(self) -> str:
        return self.log_text()[-_LOG_TAIL_CHARS:]

    # -- topics --------------------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, ConfigValue] | None = None
    ) -> None:
        """Create a topic and wait until it can be written to. Raises KlogError if the broker refuses it."""
        from klog.testing.topics import create_topic

        texts = {key: config_text(value) for key, value in (config or {}).items()}
        create_topic(self.bootstrap_servers, topic, partitions, texts)


@contextmanager
def broker(
    config: Mapping[str, ConfigValue] | None = None, *, log_dir_count: int = 1
) -> Iterator[BrokerProcess]:
    """A broker that serves until the block ends, which also removes its files.

    `config` are Kafka's broker configs (`{"num.partitions": 3}`); `log_dir_count` is the number of log
    directories. Raises BrokerFailedError if the broker does not start, or if it ends before the block does.
    """
    process = BrokerProcess(config, log_dir_count=log_dir_count)
    try:
        process.start()
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        process.close()


def config_text(value: ConfigValue) -> str:
    """A config's value as a broker reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_bound_ports(listeners: str, ports: Mapping[str, int]) -> str:
    """The listeners with the ports that are bound instead of port 0."""
    found = []
    for url in listeners.split(","):
        match = _LISTENER.fullmatch(url)
        found.append(url if match is None else f"{match[1]}://{match[2]}:{ports[match[1].upper()]}")
    return ",".join(found)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise BrokerFailedError("the broker was started without a pipe")
    return stream
