"""Processes that a test starts: none outlives a test that fails, and none is waited for then."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """`subprocess.Popen`, whose end is waited for, but which is killed where the block raises."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def kill_session(leader: int) -> None:
    """SIGKILL to all processes of the session that `leader` began, those of other process groups too (PySpark
    gives its workers one), until none of them runs.
    """
    while members := [pid for pid, session, state in _processes() if session == leader and state != "Z"]:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, int, str]]:
    """(process id, session, state) of each."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name before it may hold anything.
            state, _, _, session = status.read_text().rpartition(")")[2].split()[:4]
            yield int(status.parent.name), int(session), state
