"""Tasks for `test_processes`, importable by the processes that do them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from klog.formats.errors import StorageError
from klog.jobs.cores import own_cores

STEP_BYTES = 64 << 10
REPORTED_BYTES = 8 << 20


def cores_of_its_own(task: int, advance: Callable[[int], None]) -> int:
    return own_cores()


def square(task: int, advance: Callable[[int], None]) -> int:
    advance(task)
    return task * task


def refuse_three(task: int, advance: Callable[[int], None]) -> int:
    if task == 3:
        raise StorageError("cannot be read", file="three", position_bytes=7, cure="leave it")
    return task


def die_at_three(task: int, advance: Callable[[int], None]) -> int:
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def exit_at_three(task: int, advance: Callable[[int], None]) -> int:
    if task == 3:
        os._exit(4)
    return task


def wait_a_minute(task: int, advance: Callable[[int], None]) -> None:
    advance(REPORTED_BYTES)
    time.sleep(60)


def advance_in_steps(task: int, advance: Callable[[int], None]) -> None:
    for _ in range(task):
        advance(STEP_BYTES)


def advance_in_steps_and_wait(task: int, advance: Callable[[int], None]) -> None:
    advance_in_steps(task, advance)
    advance(0)
    time.sleep(60)


def run_out_of_memory(task: int, advance: Callable[[int], None]) -> int:
    raise MemoryError


def who(task: int, advance: Callable[[int], None]) -> int:
    time.sleep(0.05)
    return os.getpid()


def wait_for(path: str, advance: Callable[[int], None]) -> int:
    """The process id; if a path is given, as soon as there is a file."""
    while path and not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


def square_slowly(task: int, advance: Callable[[int], None]) -> int:
    time.sleep(0.05 if task == 5 else 0)
    advance(task)
    return task * task
