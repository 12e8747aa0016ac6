"""An export in a process of its own, which can be told to die: `python -m tests.export.export_process JSON`.

`die_at` N kills the process at its N-th change of the file system, where a power cut or the kernel might:
unlike an exception, that leaves everything as it stands.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpora import REPOSITORY
from tests.export.export_support import Unwatched, job_of

_CHANGES = ("mkdir", "open", "replace", "fsync", "unlink", "rmdir")


def start(source: Path, output: Path, **how: Any) -> subprocess.Popen[bytes]:
    """Start one; `how`: processes, resume, die_at."""
    request = json.dumps({"source": str(source), "output": str(output), **how})
    return subprocess.Popen(
        [sys.executable, "-m", "tests.export.export_process", request],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _count_changes(die_at: int) -> None:
    left = die_at

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **options)

        return call

    for name in _CHANGES:
        setattr(os, name, counted(getattr(os, name)))


def main() -> None:
    from klog.export.run_export import RunOptions, run_export

    request = json.loads(sys.argv[1])
    job = job_of(Path(request["source"]), request["output"])
    processes = request.get("processes", 0)
    # By itself where it counts its changes, else by so many others.
    small = {"small_bytes": 0} if processes else {}
    options = RunOptions(processes, resume=request.get("resume", False), **small)
    if "die_at" in request:
        _count_changes(request["die_at"])
    run_export(job, options, Unwatched())


if __name__ == "__main__":
    main()
