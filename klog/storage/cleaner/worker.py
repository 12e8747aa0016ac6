"""Runs a cleaning in its own process, so that its work does not block the broker's process.

The process gets its task on stdin and answers on stdout, both pickled. After each report it waits for
permission to continue: in this way a cleaning is throttled and aborted, and waits for the swap. It ends
with its task, or when its parent has ended. `run` is the main function of the process. `clean_in_worker` runs
in the parent and does what `cleaning.clean` does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, Final

from klog.formats.errors import ChecksumCodeError, KlogError
from klog.storage.cleaner.cleaning import OnBytes, OnGroup, clean
from klog.storage.cleaner.task import CleanedGroup, CleaningAbortedError, CleanResult, CleanTask

_NICENESS: Final = 5
_GO: Final = b"go\n"
_ABORT: Final = b"abort\n"
_ENDED: Final = (EOFError, pickle.UnpicklingError)  # there is nothing more, or a part of it only


class WorkerDiedError(KlogError):
    """The process ended without a message."""


# In the worker


def run(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Carry out the one task that `requests` brings; do nothing if the parent ends before it has sent one."""
    try:
        task: CleanTask = pickle.load(requests)  # noqa: S301 (the parent's)
    except _ENDED:
        return
    talk = _Talk(requests, answers, task.settings.report_bytes)
    what: CleanResult | tuple[Exception, OSError | None]
    try:
        what = clean(task, talk.on_group, talk.on_bytes)
    except CleaningAbortedError:
        return  # the parent knows that, or has ended
    except (ChecksumCodeError, KlogError) as error:
        # Pickled errors have no cause.
        what = error, error.__cause__ if isinstance(error.__cause__, OSError) else None
    with contextlib.suppress(CleaningAbortedError):
        talk.say(what)


class _Talk:
    def __init__(self, requests: IO[bytes], answers: IO[bytes], report_bytes: int) -> None:
        self._requests = requests
        self._answers = answers
        self._report_bytes = report_bytes
        self._unreported_bytes = 0

    def say(self, what: object) -> None:
        """Raises CleaningAbortedError if the parent has ended."""
        try:
            pickle.dump(what, self._answers)
        except BrokenPipeError as error:
            raise CleaningAbortedError("the broker is gone") from error

    def on_bytes(self, advanced_bytes: int) -> None:
        self._unreported_bytes += advanced_bytes
        if self._unreported_bytes >= self._report_bytes:
            self._ask(self._unreported_bytes)
            self._unreported_bytes = 0

    def on_group(self, group: CleanedGroup) -> None:
        self._ask(group)

    def _ask(self, what: object) -> None:
        self.say(what)
        if self._requests.readline() != _GO:
            raise CleaningAbortedError("cleaning was aborted")


# Beside it


def clean_in_worker(task: CleanTask, on_group: OnGroup, on_bytes: OnBytes = lambda _: None) -> CleanResult:
    """Carry out `task` in a new process. The callbacks run in this process, while the new one waits.

    Raises what `clean` raises, and `WorkerDiedError`. When this returns or raises, the process has ended.
    """
    command = [sys.executable, "-m", "klog.storage.cleaner.worker"]
    with subprocess.Popen(  # noqa: S603 (ourselves)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C on a terminal is for the broker, which ends its workers
    ) as process:
        try:
            return _follow(process, task, on_group, on_bytes)
        finally:
            # A closed stdin aborts the cleaning, which removes its files.
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()


def _follow(
    process: subprocess.Popen[bytes], task: CleanTask, on_group: OnGroup, on_bytes: OnBytes
) -> CleanResult:
    _send(process, pickle.dumps(task))
    for answer in _answers(process):
        try:
            match answer:
                case CleanResult():
                    return answer
                case CleanedGroup():
                    on_group(answer)
                case int():
                    on_bytes(answer)
                case error, cause:
                    raise error from cause
        except BaseException:
            _send(process, _ABORT)
            raise
        _send(process, _GO)
    raise WorkerDiedError(f"the cleaner's process ended with status {process.wait()}", file=task.directory)


def _answers(process: subprocess.Popen[bytes]) -> Iterator[Any]:
    with contextlib.suppress(*_ENDED):
        while process.stdout is not None:
            yield pickle.load(process.stdout)  # noqa: S301 (our process's)


def _send(process: subprocess.Popen[bytes], data: bytes) -> None:
    if process.stdin is not None:
        # If the process died, reading its answer shows that.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(data)
            process.stdin.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    # Unbuffered, so that an answer that a dead broker did not read is not written again at the end.
    with open(1, "wb", buffering=0, closefd=False) as stdout:
        run(sys.stdin.buffer, stdout)
