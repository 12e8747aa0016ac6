"""Runs drivers and workers in simulated time: what the broker's threads do, as calls of its process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from klog.drivers.driver import Driver
from klog.jobs.worker import Work
from klog.server.threads.driver_thread import DriverRun
from tests.simulation.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

Reply = Callable[[Any], None]
"""Is given the answer, or the error because of which there is none."""

_US_PER_S = 1_000_000


class SimulatedWorker:
    """A `Worker` without a thread."""

    def __init__(self, broker: SimulatedBroker, work: Work) -> None:
        self._broker = broker
        self._work = work
        self._due_us: int | None = None
        self._runs = False
        self.is_stopped = False

    @property
    def is_alive(self) -> bool:
        return not self.is_stopped

    def start(self) -> None:
        """It waits for the first `wake`."""

    def stop(self) -> None:
        self.is_stopped = True

    def join(self) -> None:
        """Nothing runs between two calls."""

    def wake(self) -> None:
        """Let the work be done, soon."""
        self._arm(self._broker.world.scheduler.now_us)

    def _arm(self, due_us: int) -> None:
        if self._due_us is None or due_us < self._due_us:
            self._due_us = due_us
            self._broker.after(due_us - self._broker.world.scheduler.now_us, partial(self._run_at, due_us))

    def _run_at(self, due_us: int) -> None:
        if self._due_us != due_us or self.is_stopped:
            return
        self._work_now()

    def _work_now(self) -> None:
        """Do the work, and again when it says."""
        if self.is_stopped:
            return
        self._due_us = None
        self._runs = True
        wait_s = self._work()
        self._runs = False
        if wait_s is not None:
            # Clocks of brokers have milliseconds: sooner nothing is due.
            self._arm(self._broker.world.scheduler.now_us + max(US_PER_MS, int(wait_s * _US_PER_S)))


class DriverLoop(SimulatedWorker):
    """A `DriverThread` without a thread."""

    def __init__(
        self,
        broker: SimulatedBroker,
        driver: Driver[Any, Any],
        send: Callable[[Any, Reply], object],
        *,
        takes_at_once: bool = False,
    ) -> None:
        self._send = send
        self._is_replying = False
        run: DriverRun[Any, Any] = DriverRun(
            driver,
            send if takes_at_once else self._send_request,
            broker.clock_ms,
            self.wake,
            takes_at_once=takes_at_once,
        )
        super().__init__(broker, run.run)
        self._run = run

    def wake(self) -> None:
        if not self._is_replying:
            super().wake()

    def _send_request(self, request: Any, reply: Reply) -> None:
        def replied(answer: Any) -> None:
            # The step after the answer belongs to the call that brings it: this saves a call for each answer.
            self._is_replying = True
            reply(answer)
            self._is_replying = False
            if not self._runs:
                self._work_now()

        self._send(request, replied)

    def run(self) -> None:
        """Carry out what is due, now."""
        self._run.run()

    def stop(self) -> None:
        super().stop()
        self._run.stop()
