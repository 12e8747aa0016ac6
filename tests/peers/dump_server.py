"""Runs Kafka's dump tool many times in one JVM, so that a test pays for one JVM start only."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peers.java_server import JavaServer
from tests.peers.kafka import STOCK_TOOL_FLAGS, KafkaPeer

_INT = struct.Struct(">i")

# A JVM that has run long throws some exceptions without their message, which the tool prints.
KEEP_MESSAGES = "-XX:-OmitStackTraceInFastThrow"


@dataclass(frozen=True)
class DumpResult:
    """The result of one run of the tool. `thrown` is the exception that ended it, `""` if there was none."""

    status: int
    stdout: bytes
    stderr: bytes
    thrown: str

    @property
    def text(self) -> bytes:
        """stdout, then the exception as in the dump texts of the fixtures: a last line `!! exception`."""
        return self.stdout + (f"!! {self.thrown}\n".encode() if self.thrown else b"")


class DumpServer(JavaServer):
    """A context manager around one JVM.

    Relative file arguments start at `cwd`. Kafka prints them as they were given.
    """

    def __init__(self, peer: KafkaPeer, cwd: Path | None = None) -> None:
        flags = (*STOCK_TOOL_FLAGS, KEEP_MESSAGES)
        super().__init__(peer.command("DumpServer", jvm_flags=flags), cwd=cwd)

    def dump(self, files: Sequence[Path | str], *flags: str) -> DumpResult:
        """`kafka-dump-log --files ... flags`."""
        return self.run([*flags, "--files", ",".join(map(str, files))])

    def run(self, args: Sequence[str]) -> DumpResult:
        """Runs the tool with exactly these arguments.

        Raises EOFError if the JVM has ended, TimeoutError if it does not answer.
        """
        encoded = [arg.encode() for arg in args]
        self.send(_INT.pack(len(args)) + b"".join(_INT.pack(len(arg)) + arg for arg in encoded))
        (status,) = _INT.unpack(self.read(_INT.size))
        stdout, stderr, thrown = self._read_block(), self._read_block(), self._read_block()
        return DumpResult(status, stdout, stderr, thrown.decode())

    def _read_block(self) -> bytes:
        (size_bytes,) = _INT.unpack(self.read(_INT.size))
        return self.read(size_bytes)
