"""Runs drivers: carries out their steps and gives them what comes back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from klog.drivers.driver import Driver, Effect, Wait
from klog.formats.errors import KlogError
from klog.jobs.worker import Worker

_log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0

Request = TypeVar("Request")
Answer = TypeVar("Answer")
_Result = TypeVar("_Result")

Reply: TypeAlias = Callable[[Answer | Exception], None]
"""Is given the answer, or the error because of which there is none. Called once, from any thread."""

SendRequest: TypeAlias = Callable[[Request, Reply[Answer]], object]
"""Sends a request, and may wait for its answer. What it raises is the answer, too."""


class DriverRun(Generic[Request, Answer]):
    """Runs a driver in the threads that call `run`.

    `lock` is held while the driver is called, and not while a request is sent or effects are carried out. Who
    else calls the driver takes it. Drivers that share a state share a lock. `wake` lets `run` be called soon.

    An answer is given to the driver by the next `run`; with `takes_at_once` by the thread that brings it, and
    then several threads may call `run`. That is for drivers that give several requests at a time.
    """

    def __init__(
        self,
        driver: Driver[Request, Answer],
        send: SendRequest[Request, Answer],
        clock_ms: Callable[[], int],
        wake: Callable[[], object],
        lock: threading.Lock | None = None,
        *,
        takes_at_once: bool = False,
    ) -> None:
        self.driver = driver
        self.lock = threading.Lock() if lock is None else lock
        self.is_stopped = False
        self._send = send
        self._clock_ms = clock_ms
        self._takes_at_once = takes_at_once
        self._replies: deque[tuple[Request, Answer | Exception]] = deque()
        self._runner: int | None = None  # the thread that runs, which need not be woken
        driver.wake = wake

    def stop(self) -> None:
        """Carry out no more steps."""
        self.is_stopped = True

    def run(self) -> float | None:
        """Carry out all steps that are due; the seconds until the next one, None: until `wake`."""
        self._runner = threading.get_ident()
        try:
            return self._carry_out_steps()
        finally:
            self._runner = None

    def _carry_out_steps(self) -> float | None:
        while not self.is_stopped:
            if self._replies:
                self._take(*self._replies.popleft())
                continue
            step = self._call(self.driver.next_step)
            if isinstance(step, Wait):
                until_ms = step.until_ms
                return None if until_ms is None else max(0, until_ms - self._clock_ms()) / 1000
            self._ask(step.request)
        return None

    def _take(self, request: Request, answer: Answer | Exception) -> None:
        if isinstance(answer, Exception):
            self._call(self.driver.failed, request, answer)
        else:
            self._call(self.driver.answered, request, answer)

    def _call(self, call: Callable[..., _Result], *arguments: object) -> _Result:
        """Call the driver, and carry out the effects after the lock is left, also if the call fails. The last
        argument of the call is the time.
        """
        effects: list[Effect] = []
        try:
            with self.lock:
                try:
                    return call(*arguments, self._clock_ms())
                finally:
                    effects = self.driver.take_effects()
        finally:
            if effects:
                carry_out(effects)

    def _ask(self, request: Request) -> None:
        reply = partial(self._replied, request)
        try:
            self._send(request, reply)
        except Exception as error:
            if not isinstance(error, KlogError):
                # It counts as a failure: the driver must not wait for ever because of one defect.
                _log.exception("%s goes on after an unexpected error", type(self.driver).__name__)
            reply(error)

    def _replied(self, request: Request, answer: Answer | Exception) -> None:
        if self._takes_at_once:
            self._take(request, answer)
        else:
            self._replies.append((request, answer))
            if threading.get_ident() != self._runner:
                self.driver.wake()


class DriverThread(DriverRun[Request, Answer]):
    """Runs a driver in a thread of its own, which starts with `start` and ends with `stop`.

    `retry_s` is the pause after an unexpected error of the driver.
    """

    def __init__(
        self,
        name: str,
        driver: Driver[Request, Answer],
        send: SendRequest[Request, Answer],
        clock_ms: Callable[[], int],
        lock: threading.Lock | None = None,
        *,
        retry_s: float = _RETRY_S,
        takes_at_once: bool = False,
    ) -> None:
        self.worker = Worker(name, self.run, retry_s=retry_s)
        super().__init__(driver, send, clock_ms, self.worker.wake, lock, takes_at_once=takes_at_once)

    def start(self) -> None:
        """Start the thread, which asks for the first step."""
        self.worker.start()
        self.worker.wake()

    def stop(self) -> None:
        """Let the thread end after the step that it carries out; it does not wait for that."""
        super().stop()
        self.worker.stop()


def asking(ask: Callable[[Request], Answer]) -> SendRequest[Request, Answer]:
    """Sends by a call that waits for the answer and returns it."""

    def send(request: Request, reply: Reply[Answer]) -> None:
        reply(ask(request))

    return send


def carry_out(effects: list[Effect]) -> None:
    """Call each; one that fails does not keep the others from it."""
    for effect in effects:
        try:
            effect()
        except Exception:
            _log.exception("%r failed", effect)
