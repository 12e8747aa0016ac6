"""Runs Kafka's log cleaner on partition directories, as of a given time, in a JVM that keeps running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.java_server import JavaServer
from tests.peers.kafka import KafkaPeer


@dataclass(frozen=True)
class CleanOutcome:
    """What Kafka could clean, and the offset up to which it did (-1: not at all). `refusal`: its error."""

    first_dirty_offset: int = -1
    first_uncleanable_offset: int = -1
    clean_bytes: int = -1
    cleanable_bytes: int = -1
    end_offset: int = -1
    clean_ns: int = 0
    refusal: str = ""


class CleanServer(JavaServer):
    """A context manager around one JVM. What Kafka logs goes to `log_file`."""

    def __init__(self, peer: KafkaPeer, log_file: Path, jvm_flags: tuple[str, ...] = ("-Xmx1g",)) -> None:
        super().__init__(peer.command("CleanServer", jvm_flags=jvm_flags), log_file=log_file)

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
        """Cleans one partition directory. If `io_buffer_bytes` is 0 it only says what could be cleaned.

        Replaced files stay as `.deleted`. Raises EOFError if the JVM has ended, TimeoutError if it does not
        answer.
        """
        kind, *rest = self.ask(
            directory,
            now_ms,
            -1 if checkpoint is None else checkpoint,
            -1 if last_stable_offset is None else last_stable_offset,
            dedupe_buffer_bytes,
            io_buffer_bytes,
            ";".join(f"{name}={value}" for name, value in (config or {}).items()),
        )
        if kind != "ok":
            return CleanOutcome(refusal=rest[0])
        numbers: tuple[Any, ...] = tuple(map(int, rest))
        return CleanOutcome(*numbers)
