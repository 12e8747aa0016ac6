"""Runs one driver: a thread that carries out its steps and gives it what comes back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from klog.drivers.driver import Driver, Effect, Wait
from klog.formats.errors import KlogError
from klog.storage.worker import Worker

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Reply: TypeAlias = Callable[[Answer | Exception], object]
"""Is given the answer, or the error because of which there is none. Called once, from any thread."""

SendRequest: TypeAlias = Callable[[Request, Reply[Answer]], object]
"""Sends a request, and may wait for its answer. What it raises is the answer, too."""


class DriverThread(Generic[Request, Answer]):
    """Starts with `start` and ends with `stop`.

    `lock` is held while the driver is called, and not while a request is sent or effects are carried out. Who
    else calls the driver takes it. Drivers that share a state share a lock. `retry_s` is the pause after an
    unexpected error.
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
    ) -> None:
        self.driver = driver
        self.lock = threading.Lock() if lock is None else lock
        self.worker = Worker(name, self.run, retry_s=retry_s)
        self._send = send
        self._clock_ms = clock_ms
        self._replies: deque[tuple[Request, Answer | Exception]] = deque()
        driver.wake = self.worker.wake

    def start(self) -> None:
        """Start the thread, which asks for the first step."""
        self.worker.start()
        self.worker.wake()

    def run(self) -> float | None:
        """Carry out all steps that are due; the seconds until the next one, None: until `wake`.

        Another thread may call this, too, if the driver allows several requests at a time.
        """
        while not self.worker.is_stopping:
            wait = self._step()
            if wait is not None:
                until_ms = wait.until_ms
                return None if until_ms is None else max(0, until_ms - self._clock_ms()) / 1000
        return None

    def _step(self) -> Wait | None:
        """One answer, or one request; otherwise what to wait for."""
        effects: list[Effect] = []
        try:
            with self.lock:
                try:
                    if self._replies:
                        self._take(*self._replies.popleft())
                        return None
                    step = self.driver.next_step(self._clock_ms())
                finally:
                    effects = self.driver.take_effects()
        finally:
            carry_out(effects)
        if isinstance(step, Wait):
            return step
        self._ask(step.request)
        return None

    def _take(self, request: Request, answer: Answer | Exception) -> None:
        if isinstance(answer, Exception):
            self.driver.failed(request, answer, self._clock_ms())
        else:
            self.driver.answered(request, answer, self._clock_ms())

    def _ask(self, request: Request) -> None:
        reply = partial(self._replied, request)
        try:
            self._send(request, reply)
        except Exception as error:
            if not isinstance(error, KlogError):
                # It counts as a failure: the driver must not wait for ever because of one defect.
                logger.exception("thread %s goes on after an unexpected error", self.worker.name)
            reply(error)

    def _replied(self, request: Request, answer: Answer | Exception) -> None:
        self._replies.append((request, answer))
        self.worker.wake()


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
            logger.exception("%r failed", effect)
