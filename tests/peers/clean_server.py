"""Kafka's log cleaner kept running: what it makes of a partition directory at a given time."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.peers.kafka import KafkaPeer, java_environment


@dataclass(frozen=True)
class CleanOutcome:
    """What Kafka found cleanable and how far it cleaned (-1: it did not); `refusal` is its exception."""

    first_dirty_offset: int = -1
    first_uncleanable_offset: int = -1
    clean_bytes: int = -1
    cleanable_bytes: int = -1
    end_offset: int = -1
    clean_ns: int = 0
    refusal: str = ""


class CleanServer:
    """A context manager around one JVM. What Kafka logs goes to `log_file`."""

    def __init__(self, peer: KafkaPeer, log_file: Path, jvm_flags: tuple[str, ...] = ("-Xmx1g",)) -> None:
        self._log = log_file.open("wb")
        self._process = subprocess.Popen(
            peer.command("CleanServer", jvm_flags=jvm_flags),
            env=java_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def clean(
        self,
        directory: Path,
        *,
        now_ms: int,
        checkpoint: int | None = None,
        last_stable_offset: int | None = None,
        dedupe_buffer_bytes: int = 1 << 20,
        io_buffer_bytes: int = 524_288,
        config: Mapping[str, str] | None = None,
    ) -> CleanOutcome:
        """Cleans one partition directory, or only judges it where `io_buffer_bytes` is 0.

        What is replaced stays as `.deleted`. Raises EOFError when the JVM has died.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        fields = (
            directory,
            now_ms,
            -1 if checkpoint is None else checkpoint,
            -1 if last_stable_offset is None else last_stable_offset,
            dedupe_buffer_bytes,
            io_buffer_bytes,
            ";".join(f"{name}={value}" for name, value in (config or {}).items()),
        )
        stdin.write("\t".join(map(str, fields)) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise EOFError(f"the clean server's JVM ended with status {self._process.wait()}")
        kind, *rest = answer.rstrip("\n").split("\t")
        if kind != "ok":
            return CleanOutcome(refusal=rest[0])
        numbers: tuple[Any, ...] = tuple(map(int, rest))
        return CleanOutcome(*numbers)

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
