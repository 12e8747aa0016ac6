"""Worker processes for long work on many segments, which end quietly when the user interrupts it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from types import FrameType
from typing import ParamSpec, TypeVar

INTERRUPTED_STATUS = 128 + signal.SIGINT
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Pool(ProcessPoolExecutor):
    """Its tasks can be interrupted, its workers between two tasks cannot: see `_Interruption`."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        # This starts the workers. A signal waits until one has its own handlers, which lift the block.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            return super().submit(_run, fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_processes(count: int) -> ProcessPoolExecutor:
    """A pool of `count` processes. At Ctrl-C, which reaches them all, each tidies up and says nothing."""
    return _Pool(count, initializer=_expect_signals)


class _Interruption:
    """What a signal does to a worker process.

    In a task it raises SystemExit: not the default's KeyboardInterrupt, which each process would print with
    a traceback, and no sudden death, which would leave a half-written file behind. Between tasks it is only
    remembered, and the next task is not begun: a worker that went away by itself would have the pool
    terminate the others, in the midst of their tidying. A worker that is terminated (one of the others was
    killed) tidies up in the same way, and goes.
    """

    def __init__(self) -> None:
        self._received = 0
        self._in_task = False

    def expect(self) -> None:
        """From now on signals are ours: a worker's first act."""
        for number in _SIGNALS:
            signal.signal(number, self._receive)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        first, self._received = not self._received, max(number, self._received)
        if self._in_task:
            if first:  # a second signal must not cut the tidying short
                sys.exit(INTERRUPTED_STATUS)
        elif number == signal.SIGTERM:
            os._exit(128 + number)

    def run(self, task: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The task's result. Raises SystemExit where a signal came before its end."""
        self._in_task = True
        try:
            if self._received:
                sys.exit(INTERRUPTED_STATUS)
            return task(*args, **kwargs)
        finally:
            self._in_task = False
            if self._received == signal.SIGTERM:
                os._exit(128 + signal.SIGTERM)


_interruption = _Interruption()  # of this process: signals have no other owner


# Functions of the module, which reach the worker by name: a bound method would take a copy of its object.
def _expect_signals() -> None:
    _interruption.expect()


def _run(task: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return _interruption.run(task, *args, **kwargs)
