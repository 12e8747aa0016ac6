"""A producer and a consumer of Kafka's own Java client, in one JVM, and what they did."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.checker.histories import Acknowledged, Partition, RecordId
from tests.checker.players import record_of
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer, java_environment
from tests.waiting import eventually

_END_TIMEOUT_S: Final = 240


class JavaClients:
    """Started at once; `end` ends both. They write to and read from one topic."""

    def __init__(
        self, peer: KafkaPeer, work: Path, bootstrap: str, topic: str, partitions: int, name: str
    ) -> None:
        self._topic = topic
        self._output = work / f"{name}.events"
        command = peer.command(
            *("ClusterClients", bootstrap, topic, str(partitions), name, f"group-of-{name}", "20"),
            jvm_flags=(*QUICK_FLAGS, "-Xmx96M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        )
        with self._output.open("wb") as out, (work / f"{name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env=java_environment(), stdin=subprocess.PIPE, stdout=out, stderr=log
            )

    def _events(self, kind: str) -> Iterator[list[str]]:
        # A line that is being written has no end yet.
        for line in self._output.read_text().split("\n")[:-1]:
            if line.startswith(f"{kind} "):
                yield line.split(" ")[1:]

    @property
    def acknowledged(self) -> list[Acknowledged]:
        return [
            Acknowledged(record_of(value.encode()), (self._topic, int(partition)), int(offset))
            for partition, offset, value in self._events("A")
        ]

    @property
    def read(self) -> dict[Partition, dict[int, RecordId]]:
        found: dict[Partition, dict[int, RecordId]] = {}
        for partition, offset, value in self._events("R"):
            found.setdefault((self._topic, int(partition)), {})[int(offset)] = record_of(value.encode())
        return found

    @property
    def errors(self) -> list[str]:
        """What the application saw as errors."""
        return [" ".join(words) for words in self._events("E")]

    def end_producer(self) -> None:
        """Ends the producer, which waits for its last answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(b".")
        self._process.stdin.flush()
        eventually(lambda: list(self._events("P")), _END_TIMEOUT_S)

    def end(self) -> None:
        """Ends both. Fails if they do not end by themselves."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_END_TIMEOUT_S) == 0
        assert self._output.read_text().endswith("end\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
