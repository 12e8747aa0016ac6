"""Kafka's log loading kept running: what a broker does to a partition directory at its start."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.kafka import KafkaPeer, java_environment


@dataclass(frozen=True)
class LoadResult:
    """Where the loaded log starts and ends (-1 where it did not load), and the exception that refused it."""

    log_start_offset: int
    log_end_offset: int
    refusal: str


class LoadServer:
    """A context manager around one JVM. What Kafka logs goes to `log_file`."""

    def __init__(self, peer: KafkaPeer, log_file: Path) -> None:
        self._log = log_file.open("wb")
        self._process = subprocess.Popen(
            peer.command("LoadServer"),
            env=java_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def load(
        self,
        directory: Path,
        *,
        index_interval_bytes: int = 4096,
        segment_index_bytes: int = 10_485_760,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
    ) -> LoadResult:
        """Loads one partition directory, recovering it unless `clean`, and closes it again.

        Raises EOFError when the JVM has died.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        fields = (directory, index_interval_bytes, segment_index_bytes, recovery_point, log_start_offset)
        stdin.write("\t".join(map(str, fields)) + ("\ttrue\n" if clean else "\tfalse\n"))
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise EOFError(f"the load server's JVM ended with status {self._process.wait()}")
        kind, *rest = answer.rstrip("\n").split("\t")
        if kind == "ok":
            return LoadResult(int(rest[0]), int(rest[1]), "")
        return LoadResult(-1, -1, rest[0])

    def close(self) -> None:
        """Ends the JVM by closing its stdin."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=30)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
