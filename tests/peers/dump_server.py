"""Kafka's dump tool kept running: hundreds of dumps for the price of one JVM start."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peers.java_server import JavaServer
from tests.peers.kafka import STOCK_TOOL_FLAGS, KafkaPeer

_INT = struct.Struct(">i")

# A warm JVM throws its own exceptions without their message, which the tool prints; a fresh one does not.
KEEP_MESSAGES = "-XX:-OmitStackTraceInFastThrow"


@dataclass(frozen=True)
class DumpResult:
    """What one run of the tool left: exit status, both streams, and the exception it died of (`""`: none)."""

    status: int
    stdout: bytes
    stderr: bytes
    thrown: str

    @property
    def text(self) -> bytes:
        """stdout, and the exception as the fixtures' dump texts show it: a last line `!! exception`."""
        return self.stdout + (f"!! {self.thrown}\n".encode() if self.thrown else b"")


class DumpServer(JavaServer):
    """A context manager around one JVM.

    File arguments are seen from `cwd`, and Kafka prints them as they were given.
    """

    def __init__(self, peer: KafkaPeer, cwd: Path | None = None) -> None:
        flags = (*STOCK_TOOL_FLAGS, KEEP_MESSAGES)
        super().__init__(peer.command("DumpServer", jvm_flags=flags), cwd=cwd)

    def dump(self, files: Sequence[Path | str], *flags: str) -> DumpResult:
        """`kafka-dump-log --files ... flags`."""
        return self.run([*flags, "--files", ",".join(map(str, files))])

    def run(self, args: Sequence[str]) -> DumpResult:
        """The tool with exactly these arguments.

        Raises EOFError when the JVM has died, TimeoutError when it does not answer.
        """
        encoded = [arg.encode() for arg in args]
        self.send(_INT.pack(len(args)) + b"".join(_INT.pack(len(arg)) + arg for arg in encoded))
        (status,) = _INT.unpack(self.read(_INT.size))
        stdout, stderr, thrown = self._read_block(), self._read_block(), self._read_block()
        return DumpResult(status, stdout, stderr, thrown.decode())

    def _read_block(self) -> bytes:
        (size_bytes,) = _INT.unpack(self.read(_INT.size))
        return self.read(size_bytes)
