"""Runs Kafka's command line tools in one JVM, for tests that need many of them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import NamedTuple

from tests.peers.java_server import JavaServer
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer

_FLAGS = (*QUICK_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class Ended(NamedTuple):
    """The exit status of a tool, and what it wrote."""

    status: int
    out: str
    err: str


class ToolServer(JavaServer):
    """A context manager around one JVM."""

    def __init__(self, peer: KafkaPeer) -> None:
        super().__init__(peer.command("ToolServer", jvm_flags=_FLAGS))

    def run(self, main_class: str, *words: object, stdin: bytes = b"") -> Ended:
        """Runs a tool to its end. Raises EOFError and TimeoutError as `ask` does."""
        status, *texts = self.ask(main_class, b64encode(stdin).decode(), *words)
        return Ended(int(status), *(b64decode(each).decode() for each in texts))
