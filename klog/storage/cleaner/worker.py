"""Runs a cleaning in its own process, so that its work does not block the broker's process.

The process gets its task on stdin and answers on stdout, one JSON object a line. After each report it waits
for permission to continue: in this way a cleaning is throttled and aborted, and waits for the swap. It ends
with its task, or when its parent has ended. `run` is the main function of the process. `clean_in_worker` runs
in the parent and does what `cleaning.clean` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
from typing import IO, Any, Final

from klog.formats import errors
from klog.formats.errors import ChecksumCodeError, KlogError
from klog.storage.cleaner.cleaning import OnBytes, OnGroup, clean
from klog.storage.cleaner.task import (
    CleanedGroup,
    CleaningAbortedError,
    CleanResult,
    CleanStats,
    CleanTask,
    SegmentOverflowError,
)

_NICENESS: Final = 5
_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        errors.CompressionError,
        errors.CorruptRecordError,
        errors.DecompressionLimitError,
        errors.FormatError,
        errors.StorageError,
        errors.UnsupportedFormatError,
        errors.UsageError,
        CleaningAbortedError,
        SegmentOverflowError,
    )
}
_GO: Final = "go\n"
_ABORT: Final = "abort\n"


class WorkerDiedError(KlogError):
    """The process ended without a message."""


# In the worker


def run(requests: IO[str], answers: IO[str]) -> None:
    """Carry out the one task that `requests` brings; do nothing if the parent ends before it has sent one."""
    order = requests.readline()
    if not order.endswith("\n"):
        return
    task = CleanTask.from_json(json.loads(order))
    talk = _Talk(requests, answers, task.settings.report_bytes)
    what: dict[str, Any]
    try:
        result = clean(task, talk.on_group, talk.on_bytes)
    except CleaningAbortedError:
        return  # the parent knows that, or has ended
    except ChecksumCodeError as error:
        what = {"wrong_code": str(error)}
    except KlogError as error:
        what = {"error": _error_to_json(error)}
    else:
        what = {"result": [result.end_offset, dataclasses.asdict(result.stats)]}
    with contextlib.suppress(CleaningAbortedError):
        talk.say(**what)


class _Talk:
    def __init__(self, requests: IO[str], answers: IO[str], report_bytes: int) -> None:
        self._requests = requests
        self._answers = answers
        self._report_bytes = report_bytes
        self._unreported_bytes = 0

    def say(self, **what: Any) -> None:  # noqa: ANN401 (JSON)
        """Raises CleaningAbortedError if the parent has ended."""
        try:
            self._answers.write(json.dumps(what) + "\n")
            self._answers.flush()
        except BrokenPipeError as error:
            raise CleaningAbortedError("the broker is gone") from error

    def on_bytes(self, advanced_bytes: int) -> None:
        self._unreported_bytes += advanced_bytes
        if self._unreported_bytes >= self._report_bytes:
            self._ask(bytes=self._unreported_bytes)
            self._unreported_bytes = 0

    def on_group(self, group: CleanedGroup) -> None:
        self._ask(group=list(group))

    def _ask(self, **what: Any) -> None:  # noqa: ANN401 (JSON)
        self.say(**what)
        if self._requests.readline() != _GO:
            raise CleaningAbortedError("cleaning was aborted")


def _error_to_json(error: KlogError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "file": error.file,
        "position_bytes": error.position_bytes,
        "cure": error.cure,
        "errno": error.__cause__.errno if isinstance(error.__cause__, OSError) else None,
    }


def _error_from_json(values: dict[str, Any]) -> KlogError:
    kind: type[KlogError] = _KINDS.get(values["kind"], KlogError)
    error = kind(
        values["what"],
        file=values["file"],
        position_bytes=values["position_bytes"],
        cure=values["cure"],
    )
    if values["errno"] is not None:
        error.__cause__ = OSError(values["errno"], os.strerror(values["errno"]))
    return error


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
        text=True,
        encoding="utf-8",
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
    process: subprocess.Popen[str], task: CleanTask, on_group: OnGroup, on_bytes: OnBytes
) -> CleanResult:
    _send(process, json.dumps(task.to_json()) + "\n")
    for line in process.stdout or ():
        answer = json.loads(line)
        if "result" in answer:
            end_offset, stats = answer["result"]
            return CleanResult(end_offset, CleanStats(**stats))
        if "wrong_code" in answer:
            raise ChecksumCodeError(answer["wrong_code"])
        if "error" in answer:
            raise _error_from_json(answer["error"])
        try:
            if "group" in answer:
                base_offset, replaces, size_bytes = answer["group"]
                on_group(CleanedGroup(base_offset, tuple(replaces), size_bytes))
            else:
                on_bytes(answer["bytes"])
        except BaseException:
            _send(process, _ABORT)
            raise
        _send(process, _GO)
    raise WorkerDiedError(f"the cleaner's process ended with status {process.wait()}", file=task.directory)


def _send(process: subprocess.Popen[str], line: str) -> None:
    if process.stdin is not None:
        # If the process died, reading its answer shows that.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line)
            process.stdin.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    # Unbuffered, so that an answer that a dead broker did not read is not written again at the end.
    with open(1, "wb", buffering=0, closefd=False) as stdout:
        run(sys.stdin, io.TextIOWrapper(stdout, encoding="utf-8", write_through=True))
