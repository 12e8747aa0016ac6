"""One log of a Kafka broker kept open and told what to do: appended to, cut, read, closed, opened again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.peers.java_server import JavaServer
from tests.peers.kafka import KafkaPeer


class Answer(NamedTuple):
    """What came of a step: what it told, or the error code with the indexes of bad records (KIP-467)."""

    told: str = ""
    error: str = ""
    bad_records: str = ""


class LogServer(JavaServer):
    """A context manager around one JVM. What Kafka logs goes to `log_file`."""

    def __init__(self, peer: KafkaPeer, log_file: Path) -> None:
        super().__init__(peer.command("LogServer"), log_file=log_file)

    def step(self, now_ms: int, verb: str, *fields: object) -> Answer:
        """Do one thing at a time of the wall clock; `java/LogServer.java` says what there is.

        Raises EOFError when the JVM has died, TimeoutError when it does not answer.
        """
        kind, what, *rest = self.ask(now_ms, verb, *fields)
        return Answer(what) if kind == "ok" else Answer(error=what, bad_records=rest[-1])
