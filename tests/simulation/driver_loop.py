"""Runs a driver in simulated time, as `DriverThread` runs it in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from klog.drivers.driver import Driver, Wait
from klog.formats.errors import KlogError
from klog.protocol.errors import ConnectionLostError
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

Reply = Callable[[Any], None]
"""Is given the answer, or the error because of which there is none."""


class DriverLoop:
    """Delivers what a driver sends, and gives it answers and the time. `send` is called with a `Reply`.

    With `takes_at_once` an answer is not followed by the next step, as with `DriverRun`.
    """

    def __init__(
        self,
        broker: SimulatedBroker,
        driver: Driver[Any, Any],
        send: Callable[[Any, Reply], None],
        *,
        takes_at_once: bool = False,
    ) -> None:
        self._takes_at_once = takes_at_once
        self._broker = broker
        self._driver = driver
        self._send = send
        self._due_us: int | None = None
        self.is_stopped = False
        driver.wake = self.wake

    def wake(self) -> None:
        """The next step may be another one now."""
        self._arm(self._broker.world.scheduler.now_us)

    def _arm(self, due_us: int) -> None:
        if self._due_us is None or due_us < self._due_us:
            self._due_us = due_us
            self._broker.after(due_us - self._broker.world.scheduler.now_us, partial(self._run_at, due_us))

    def _run_at(self, due_us: int) -> None:
        if self._due_us == due_us:
            self._due_us = None
            self.run()

    def run(self) -> None:
        """Carry out all steps that are due."""
        broker = self._broker
        while not self.is_stopped:
            step = self._driver.next_step(broker.clock_ms())
            self._carry_out()
            if not isinstance(step, Wait):
                self._ask(step.request)
                continue
            if step.until_ms is not None:
                wait_ms = max(1, step.until_ms - broker.clock_ms())
                self._arm(broker.world.scheduler.now_us + wait_ms * US_PER_MS)
            return

    def _ask(self, request: Any) -> None:
        reply = partial(self._replied, request)
        try:
            self._send(request, reply)
        except KlogError as error:
            reply(error)

    def _replied(self, request: Any, answer: Any) -> None:
        if self.is_stopped:
            return
        if isinstance(answer, Exception):
            self._driver.failed(request, answer, self._broker.clock_ms())
        else:
            self._driver.answered(request, answer, self._broker.clock_ms())
        self._carry_out()
        if not self._takes_at_once:
            self.run()

    def _carry_out(self) -> None:
        for effect in self._driver.take_effects():
            effect()


def ask(
    broker: SimulatedBroker,
    to: SimulatedBroker | None,
    handle: Callable[[Callable[[Any], None]], None],
    reply: Reply,
) -> None:
    """Send a request over the network."""
    process = None if to is None else to.process
    lost = partial(reply, ConnectionLostError("lost"))
    broker.world.network.request(broker.process, process, handle, reply, lost)
