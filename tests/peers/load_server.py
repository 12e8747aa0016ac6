"""Loads partition directories with Kafka's code, as a broker does at its start, in one JVM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.peers.java_server import JavaServer
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer


@dataclass(frozen=True)
class LoadResult:
    """Start and end offset of the loaded log (-1 if it did not load), and Kafka's exception if it failed."""

    log_start_offset: int
    log_end_offset: int
    refusal: str


class LoadServer(JavaServer):
    """A context manager around one JVM. What Kafka logs goes to `log_file`."""

    def __init__(self, peer: KafkaPeer, log_file: Path) -> None:
        super().__init__(peer.command("LoadServer", jvm_flags=QUICK_FLAGS), log_file=log_file)

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
        """Loads one partition directory and closes it again. Recovers it first unless `clean`.

        Raises EOFError if the JVM has ended, TimeoutError if it does not answer.
        """
        fields = (directory, index_interval_bytes, segment_index_bytes, recovery_point, log_start_offset)
        kind, *rest = self.ask(*fields, "true" if clean else "false")
        if kind == "ok":
            return LoadResult(int(rest[0]), int(rest[1]), "")
        return LoadResult(-1, -1, rest[0])
