"""Runs tasks that keep a core busy in worker processes, each worker one task at a time.

A worker receives its tasks through a pipe and reports its progress and its results through it. If a worker
dies (mostly because the kernel is out of memory), that is an error that names its task; a worker without a
task may die without consequences. Workers ignore Ctrl-C: the parent alone handles it and terminates them. A
terminated worker leaves its task with SystemExit, so that the task removes its temporary files. If the parent
dies, its workers end immediately.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Final, Generic, TypeVar

from klog.formats.errors import ChecksumCodeError, KlogError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

Work = Callable[[TaskT, Callable[[int], None]], ResultT]
"""Does a task and reports how many bytes it has done since its last report. Picklable. Raises `KlogError`.

Reports are passed on in large steps. A report of 0 bytes is passed on at once.
"""

_STOP_SECONDS: Final = 10.0
_REPORT_BYTES: Final = 4 << 20
"""A worker reports its progress in such steps, since each report takes time of both processes."""
_TERMINATED_STATUS: Final = 128 + signal.SIGTERM


class WorkerDiedError(KlogError):
    """A worker process ended in the middle of a task."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """A task has done this many bytes more."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Done(Generic[ResultT]):
    """A task is done."""

    result: ResultT


@dataclass(frozen=True, slots=True)
class _Failed:
    """A task raised an error; None: it ran out of memory."""

    error: KlogError | ChecksumCodeError | None


_Event = Advanced | Done[ResultT] | _Failed


def map_in_order(
    work: Work[TaskT, ResultT],
    tasks: Sequence[TaskT],
    processes: int,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Iterator[ResultT]:
    """Yield the results of `work` in the order of the tasks, from at most that many processes.

    `on_bytes` receives what the tasks report while they run.
    The processes start like this one's other children: by a fork on Linux, which costs little. Raises what
    `run_tasks` raises.
    """
    numbered = list(enumerate(tasks))
    results: dict[int, ResultT] = {}
    following = 0
    for event in run_tasks(
        partial(_numbered, work),
        numbered,
        processes,
        describe=lambda task: str(task[1]),
        cure="run it again, with more memory or fewer processes",
        start_method=None,
    ):
        if isinstance(event, Done):
            number, result = event.result
            results[number] = result
        else:
            on_bytes(event.size_bytes)
        while following in results:
            yield results.pop(following)
            following += 1


def _numbered(
    work: Work[TaskT, ResultT], task: tuple[int, TaskT], advance: Callable[[int], None]
) -> tuple[int, ResultT]:
    return task[0], work(task[1], advance)


def run_tasks(
    work: Work[TaskT, ResultT],
    tasks: Sequence[TaskT],
    processes: int,
    *,
    cure: str,
    describe: Callable[[TaskT], str] = str,
    start_method: str | None = "spawn",
) -> Iterator[Advanced | Done[ResultT]]:
    """Do all tasks in at most that many processes; results come as soon as they are ready.

    `start_method` is that of `multiprocessing` (None: the platform's default). A spawned process is a fresh
    interpreter that inherits neither locks nor threads. If a task raises a `KlogError`, it is raised here and
    the other tasks are abandoned. Raises `WorkerDiedError`, and a `KlogError` for a task that ran out of
    memory; both name the task by `describe` and have this `cure`.
    """
    waiting = iter(tasks)
    context = multiprocessing.get_context(start_method)
    workers: list[_Worker[TaskT, ResultT]] = []
    try:
        for _ in range(min(processes, len(tasks))):
            with _interrupts_held(context):
                workers.append(_Worker(context, work))
        for worker in workers:
            worker.give(next(waiting))
        busy = list(workers)
        while busy:
            for worker in _ready(busy):
                event = _event(worker, describe, cure)
                if isinstance(event, Done):
                    task = next(waiting, None)
                    if task is None:
                        busy.remove(worker)
                    else:
                        worker.give(task)
                    yield event
                elif isinstance(event, _Failed):
                    raise event.error or KlogError(
                        f"not enough memory for {worker.task_text(describe)}", cure=cure
                    )
                else:
                    yield event
    finally:
        _stop(workers)


class _Worker(Generic[TaskT, ResultT]):
    """A process and the parent's end of its pipe. To be made while Ctrl-C is held."""

    def __init__(self, context: BaseContext, work: Work[TaskT, ResultT]) -> None:
        self.connection, child_connection = context.Pipe()
        self.task: TaskT | None = None
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(child_connection, work), daemon=True
        )
        self.process.start()
        child_connection.close()

    def give(self, task: TaskT) -> None:
        """Send the worker a task."""
        self.task = task
        with suppress(OSError):  # it has died: its sentinel shows that
            self.connection.send(task)

    def task_text(self, describe: Callable[[TaskT], str]) -> str:
        """The worker's task, for messages."""
        return "nothing" if self.task is None else describe(self.task)


@contextmanager
def _interrupts_held(context: BaseContext) -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block.

    A process that is started in the block inherits that Ctrl-C is blocked; only its parent handles it. But
    another thread of the parent may receive it, and then the parent would leave a child behind.
    """
    if context.get_start_method() != "fork":
        # multiprocessing starts this helper process for the other methods; that would unblock Ctrl-C again.
        resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.getsignal(signal.SIGINT)
    received: list[int] = []
    # Only the main thread runs handlers, and only it may change them.
    is_handled = callable(handler) and threading.current_thread() is threading.main_thread()
    if is_handled:
        signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        if is_handled:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if received:
            signal.raise_signal(signal.SIGINT)


def _ready(busy: list[_Worker[TaskT, ResultT]]) -> list[_Worker[TaskT, ResultT]]:
    """The workers that have sent an event, or have died."""
    handles: dict[Any, _Worker[TaskT, ResultT]] = {worker.connection: worker for worker in busy}
    handles |= {worker.process.sentinel: worker for worker in busy}
    ready = [handles[handle] for handle in wait(list(handles))]
    return list(dict.fromkeys(ready))


def _event(worker: _Worker[TaskT, ResultT], describe: Callable[[TaskT], str], cure: str) -> _Event[ResultT]:
    """The worker's next event. Raises `WorkerDiedError` if it has died and sent no other."""
    try:
        if worker.connection.poll():
            event: _Event[ResultT] = worker.connection.recv()
            return event
    except (EOFError, ConnectionResetError):
        pass
    worker.process.join(_STOP_SECONDS)
    end = _end(worker.process.exitcode)
    raise WorkerDiedError(f"a process {end} while it was at {worker.task_text(describe)}", cure=cure)


def _end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with status {code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (" (often the kernel, out of memory)" if name == "SIGKILL" else "")


def _stop(workers: Sequence[_Worker[TaskT, ResultT]]) -> None:
    """Terminate the processes, and kill those that do not end in time."""
    for worker in workers:
        worker.connection.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(_STOP_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()


class _Termination:
    """What SIGTERM does to a worker process.

    In a task it raises SystemExit, so that the task removes its temporary files; a second signal does not
    interrupt that. Between tasks it ends the process immediately.
    """

    def __init__(self) -> None:
        self._received = False
        self._in_task = False

    def install(self) -> None:
        """Handle SIGTERM in this process."""
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        if not self._in_task:
            os._exit(_TERMINATED_STATUS)
        if not self._received:
            self._received = True
            sys.exit(_TERMINATED_STATUS)

    @contextmanager
    def task(self) -> Iterator[None]:
        """The block is a task."""
        self._in_task = True
        try:
            yield
        finally:
            self._in_task = False


class _Progress:
    """Reports a task's progress to the parent, in large steps."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unreported_bytes = 0

    def advance(self, size_bytes: int) -> None:
        """So many bytes more are done. A 0 only shows that the task is alive, at once."""
        self._unreported_bytes += size_bytes
        if not size_bytes or self._unreported_bytes >= _REPORT_BYTES:
            self._report()

    def end(self) -> None:
        """Report what is not reported yet."""
        if self._unreported_bytes:
            self._report()

    def _report(self) -> None:
        self._connection.send(Advanced(self._unreported_bytes))
        self._unreported_bytes = 0


def _serve(connection: Connection, work: Work[TaskT, ResultT]) -> None:
    """Run a worker process: receive tasks and send events until the pipe is closed."""
    termination = _Termination()
    termination.install()
    _end_with_parent()
    gc.freeze()  # what is inherited lives on: collections need not look at it, nor copy its pages
    with suppress(EOFError, OSError):  # the other end is closed
        while True:
            task = connection.recv()
            progress = _Progress(connection)
            with termination.task():
                event = _do(work, task, progress.advance)
            progress.end()
            connection.send(event)


def _do(work: Work[TaskT, ResultT], task: TaskT, advance: Callable[[int], None]) -> Done[ResultT] | _Failed:
    try:
        return Done(work(task, advance))
    except (KlogError, ChecksumCodeError) as error:
        return _Failed(error)
    except MemoryError:
        return _Failed(None)


def _end_with_parent() -> None:
    """End this process as soon as its parent has died, so that it does not work beside a repeated job."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
