"""Keeps a log of a Kafka broker open in a JVM, to append to it, truncate it, read it, close and open it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.peers.java_server import JavaServer
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer


class Answer(NamedTuple):
    """The result of a step: its output, or an error code and the indexes of bad records (KIP-467)."""

    told: str = ""
    error: str = ""
    bad_records: str = ""


class LogServer(JavaServer):
    """A context manager around one JVM. What Kafka logs goes to `log_file`."""

    def __init__(self, peer: KafkaPeer, log_file: Path) -> None:
        super().__init__(peer.command("LogServer", jvm_flags=QUICK_FLAGS), log_file=log_file)

    def step(self, now_ms: int, verb: str, *fields: object) -> Answer:
        """Does one thing at a given time of the wall clock. `java/LogServer.java` lists the verbs.

        Raises EOFError if the JVM has ended, TimeoutError if it does not answer.
        """
        kind, what, *rest = self.ask(now_ms, verb, *fields)
        return Answer(what) if kind == "ok" else Answer(error=what, bad_records=rest[-1])
