"""Processes that work through tasks, for work that keeps a core busy: one task at a time each, in order.

Each process is a fresh interpreter (spawn): nothing is inherited, no lock, no thread. It is told its tasks
through a pipe and tells back how far it is. A process that dies (the kernel's out-of-memory killer) is an
error that says so; one whose parent dies ends at once, and so do all when the parent gives up (Ctrl-C, an
error of one): what a task leaves half done then is for the caller to clear away.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic, TypeVar

from klog.formats.errors import KlogError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

Work = Callable[[TaskT, Callable[[int], None]], ResultT]
"""Does a task, and says how many bytes it has done since it last said so. Picklable."""

_STOP_SECONDS: Final = 10.0


class WorkerDiedError(KlogError):
    """A process ended in the middle of a task."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """So many bytes more are done."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Done(Generic[ResultT]):
    """A task is done."""

    result: ResultT


@dataclass(frozen=True, slots=True)
class _Failed:
    error: KlogError


class _Worker(Generic[TaskT, ResultT]):
    """A process and our end of its pipe."""

    def __init__(self, work: Work[TaskT, ResultT]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.task: TaskT | None = None
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, work), daemon=True)
        with _no_interrupt():
            self.process.start()
        theirs.close()

    def give(self, task: TaskT) -> None:
        self.task = task
        with suppress(OSError):  # it has died: its sentinel tells
            self.connection.send(task)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Hold Ctrl-C back. A process started here inherits that for good: only its parent heeds the terminal."""
    resource_tracker.ensure_running()  # multiprocessing's own; starting it would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(
    work: Work[TaskT, ResultT],
    tasks: Sequence[TaskT],
    processes: int,
    *,
    describe: Callable[[TaskT], str] = str,
) -> Iterator[Advanced | Done[ResultT]]:
    """Do all tasks, in at most so many processes; results come as they are ready.

    What a task raises is raised here, and the other tasks at hand are given up. Raises `WorkerDiedError`.
    """
    waiting = iter(tasks)
    workers: list[_Worker[TaskT, ResultT]] = []
    try:
        workers.extend(_Worker(work) for _ in range(min(processes, len(tasks))))
        for worker in workers:
            worker.give(next(waiting))
        busy = list(workers)
        while busy:
            for worker in _ready(busy):
                event = _event(worker, describe)
                if isinstance(event, Done):
                    yield event
                    task = next(waiting, None)
                    if task is None:
                        busy.remove(worker)
                    else:
                        worker.give(task)
                elif isinstance(event, _Failed):
                    raise event.error
                else:
                    yield event
    finally:
        _stop(workers)


def _ready(busy: list[_Worker[TaskT, ResultT]]) -> list[_Worker[TaskT, ResultT]]:
    """The workers that have something to say, or have died."""
    handles: dict[Any, _Worker[TaskT, ResultT]] = {worker.connection: worker for worker in busy}
    handles |= {worker.process.sentinel: worker for worker in busy}
    ready = [handles[handle] for handle in wait(list(handles))]
    return list(dict.fromkeys(ready))


def _event(
    worker: _Worker[TaskT, ResultT], describe: Callable[[TaskT], str]
) -> Advanced | Done[ResultT] | _Failed:
    """What the worker says next. Raises `WorkerDiedError` where it can say nothing any more."""
    try:
        if worker.connection.poll():
            event: Advanced | Done[ResultT] | _Failed = worker.connection.recv()
            return event
    except (EOFError, ConnectionResetError):
        pass
    worker.process.join(_STOP_SECONDS)
    task = "nothing" if worker.task is None else describe(worker.task)
    raise WorkerDiedError(f"a process {_end(worker.process.exitcode)} while it was at {task}", cure=_CURE)


_CURE: Final = "what is done is kept: run again with --resume, and with fewer --jobs if memory was short"


def _end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with status {code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (" (often the kernel, out of memory)" if name == "SIGKILL" else "")


def _stop(workers: Sequence[_Worker[TaskT, ResultT]]) -> None:
    """End the processes, whatever they are at."""
    for worker in workers:
        worker.connection.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(_STOP_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def _serve(connection: Connection, work: Work[TaskT, ResultT]) -> None:
    """The life of a process: tasks in, events out, until the pipe is closed."""
    _end_with_parent()
    with suppress(EOFError, OSError):  # the other end is closed: nothing more is wanted
        while True:
            task = connection.recv()
            connection.send(_done(work, task, lambda size_bytes: connection.send(Advanced(size_bytes))))


def _done(work: Work[TaskT, ResultT], task: TaskT, advance: Callable[[int], None]) -> Done[ResultT] | _Failed:
    try:
        return Done(work(task, advance))
    except KlogError as error:
        return _Failed(error)
    except MemoryError:
        return _Failed(KlogError("not enough memory for a split", cure="run with fewer --jobs, --resume"))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            # Nobody is left to tell anything to, and whoever resumes the job must not meet us at work.
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
