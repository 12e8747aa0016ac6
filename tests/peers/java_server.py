"""Keeps one of our Java programs running, sends requests to its stdin and reads answers from its stdout.

Subclasses define the meaning of the bytes. If the JVM does not answer in time, it is killed and the request
fails.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.peers.kafka import java_environment

ANSWER_TIMEOUT_S: Final = 240.0
"""Limit of an answer, including the JVM's start. It is below that of a test, so a test says what hung."""

_END_TIMEOUT_S: Final = 30.0
_PIECE_BYTES: Final = 1 << 16


class JavaServer:
    """A context manager around one JVM. Its stderr goes to `log_file` if there is one."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        log_file: Path | None = None,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._answer_timeout_s = answer_timeout_s
        self._deadline_s = 0.0
        self._unread = bytearray()
        with ExitStack() as stack:
            log = None if log_file is None else stack.enter_context(log_file.open("wb"))
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=java_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def send(self, request: bytes) -> None:
        """Sends a request. The time for its answer starts now. Raises EOFError if the JVM has ended."""
        self._deadline_s = time.monotonic() + self._answer_timeout_s
        stdin = _pipe(self._process.stdin)
        try:
            stdin.write(request)
            stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def ask(self, *fields: object) -> list[str]:
        """Sends a line of fields with tabs between them; returns the fields of the line that answers.

        Raises EOFError if the JVM has ended, TimeoutError if it does not answer.
        """
        self.send("\t".join(map(str, fields)).encode() + b"\n")
        while b"\n" not in self._unread:
            self._read_more()
        return self._take(self._unread.index(b"\n") + 1).decode().rstrip("\n").split("\t")

    def read(self, size_bytes: int) -> bytes:
        """The next `size_bytes` of the answer. Raises EOFError and TimeoutError as `ask` does."""
        while len(self._unread) < size_bytes:
            self._read_more()
        return self._take(size_bytes)

    def _take(self, size_bytes: int) -> bytes:
        taken = bytes(self._unread[:size_bytes])
        del self._unread[:size_bytes]
        return taken

    def _read_more(self) -> None:
        stdout = _pipe(self._process.stdout).fileno()
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        if not poll.poll(max(0.0, self._deadline_s - time.monotonic()) * 1000):
            self._process.kill()
            raise TimeoutError(f"{type(self).__name__}: no answer within {self._answer_timeout_s:.0f} s")
        piece = os.read(stdout, _PIECE_BYTES)
        if not piece:
            raise self._ended()
        self._unread += piece

    def _ended(self) -> EOFError:
        status = self._process.wait(_END_TIMEOUT_S)
        return EOFError(f"{type(self).__name__}: the JVM ended with status {status}")

    def close(self) -> None:
        """Ends the JVM by closing its stdin. Kills a JVM that does not end, and raises TimeoutExpired."""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_TIMEOUT_S)
            raise
        finally:
            _pipe(self._process.stdout).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
