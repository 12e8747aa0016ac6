"""Kafka's dump tool kept running: hundreds of dumps for the price of one JVM start."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.kafka import STOCK_TOOL_FLAGS, KafkaPeer, java_environment

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


class DumpServer:
    """A context manager around one JVM.

    File arguments are seen from `cwd`, and Kafka prints them as they were given.
    """

    def __init__(self, peer: KafkaPeer, cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            peer.command("DumpServer", jvm_flags=(*STOCK_TOOL_FLAGS, KEEP_MESSAGES)),
            cwd=cwd,
            env=java_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def dump(self, files: Sequence[Path | str], *flags: str) -> DumpResult:
        """`kafka-dump-log --files ... flags`."""
        return self.run([*flags, "--files", ",".join(map(str, files))])

    def run(self, args: Sequence[str]) -> DumpResult:
        """The tool with exactly these arguments. Raises EOFError when the JVM has died."""
        stdin = self._process.stdin
        assert stdin is not None
        request = _INT.pack(len(args)) + b"".join(
            _INT.pack(len(encoded)) + encoded for encoded in (arg.encode() for arg in args)
        )
        stdin.write(request)
        stdin.flush()
        (status,) = _INT.unpack(self._read(_INT.size))
        stdout, stderr, thrown = self._read_block(), self._read_block(), self._read_block()
        return DumpResult(status, stdout, stderr, thrown.decode())

    def _read_block(self) -> bytes:
        (size_bytes,) = _INT.unpack(self._read(_INT.size))
        return self._read(size_bytes)

    def _read(self, size_bytes: int) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        block = stdout.read(size_bytes)
        if len(block) < size_bytes:
            raise EOFError(f"the dump server's JVM ended with status {self._process.wait()}")
        return block

    def close(self) -> None:
        """Ends the JVM by closing its stdin."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
