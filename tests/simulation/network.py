"""Messages between processes: they take time, and a link may be cut in one direction or be slow.

A request is answered, or fails: because a message was lost, the connection broke, or nothing came in time. A
request that has failed may still arrive: its bytes were on their way while a new connection was opened.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import log
from typing import Any

from tests.simulation.scheduler import US_PER_MS, Process, Scheduler, stream

REQUEST_TIMEOUT_MS = 1_000
_ARRIVALS_PER_US = 1 / 700

Answer = Callable[[Any], None]
Handle = Callable[[Any, Answer], None]


class Network:
    """Links between processes by name. `loss` is the share of messages whose connection breaks."""

    def __init__(self, scheduler: Scheduler, seed: int, loss: float) -> None:
        self._scheduler = scheduler
        self._seed = seed
        self._loss = loss
        self._streams: dict[tuple[str, str], random.Random] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self.slow: dict[tuple[str, str], int] = {}

    def heal(self) -> None:
        """All links work from now on, and nothing is lost."""
        self.cuts.clear()
        self.slow.clear()
        self._loss = 0.0

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self.cuts) and self.cuts.get((source, target), 0) > self._scheduler.now_ms

    def stream(self, source: str, target: str) -> random.Random:
        found = self._streams.get((source, target))
        if found is None:
            found = self._streams[source, target] = stream(self._seed, source, target)
        return found

    def deliver(self, source: str, target: Process, call: Callable[[], None]) -> bool:
        """Call at the target after a while; False if the message is lost."""
        random_of_link = self.stream(source, target.name)
        number = random_of_link.random
        # `expovariate`, of which this is the most frequent call.
        delay_us = int(-log(1.0 - number()) / _ARRIVALS_PER_US) + 50
        lost = number() < self._loss
        if lost or self.is_cut(source, target.name):
            return False
        if self.slow and self.slow.get((source, target.name), 0) > self._scheduler.now_ms:
            delay_us += random_of_link.randrange(750 * US_PER_MS)
        self._scheduler.after(delay_us, target, call)
        return True

    def request(
        self,
        client: Process,
        server: Process | None,
        handle: Callable[[Answer], None],
        on_answer: Answer,
        on_failure: Callable[[], None],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Send a request. One of `on_answer` and `on_failure` is called at the client, if it lives."""
        pending = _Pending(self._scheduler, on_answer, on_failure)
        if server is None or not server.alive:
            self._scheduler.after(2 * US_PER_MS, client, pending.fail)
            return
        pending.timeout = self._scheduler.after(timeout_ms * US_PER_MS, client, pending.fail)
        server.on_end[pending] = lambda: self.deliver(server.name, client, pending.fail)
        pending.server = server

        def answer(value: Any) -> None:
            self.deliver(server.name, client, lambda: pending.answer(value))

        if not self.deliver(client.name, server, lambda: handle(answer)):
            # The connection breaks, or nobody answers.
            random_of_link = self.stream(client.name, server.name)
            if not self.is_cut(client.name, server.name) or random_of_link.random() < 0.5:
                self._scheduler.after(random_of_link.randrange(50) * US_PER_MS, client, pending.fail)


class _Pending:
    """A request without an answer yet."""

    __slots__ = ("_done", "_on_answer", "_on_failure", "_scheduler", "server", "timeout")

    def __init__(self, scheduler: Scheduler, on_answer: Answer, on_failure: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self.server: Process | None = None
        self.timeout: int | None = None
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._done = False

    def _finish(self) -> bool:
        if self._done:
            return False
        self._done = True
        if self.server is not None:
            self.server.on_end.pop(self, None)
        if self.timeout is not None:
            self._scheduler.cancel(self.timeout)
        return True

    def answer(self, value: Any) -> None:
        if self._finish():
            self._on_answer(value)

    def fail(self) -> None:
        if self._finish():
            self._on_failure()
