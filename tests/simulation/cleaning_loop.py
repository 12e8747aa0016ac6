"""How a simulated broker cleans: a cleaning goes on piece by piece, and other things happen in between.

The cleaner runs in a thread of its own, as in the broker. But the simulation and this thread take turns: at
any time one of them waits for the other, so a schedule plays the same each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from klog.server.logs.cleaning import open_cleaner
from klog.storage.cleaner.cleaning import OnBytes, OnGroup, clean
from klog.storage.cleaner.task import CleanedGroup, CleanResult, CleanTask
from tests.simulation.scheduler import stream

if TYPE_CHECKING:
    from klog.config.broker import BrokerConfig
    from tests.simulation.broker import SimulatedBroker

_MEAN_PAUSE_US = 20_000
_PAUSES = 0.3
_TURN_S = 60.0
_TURN_WAITS = 60


class GoneError(BaseException):
    """The broker's process is gone: its cleaner ends where it is."""


class CleaningLoop:
    """The cleaner of a broker, and at most one cleaning that is under way."""

    def __init__(self, broker: SimulatedBroker, config: BrokerConfig) -> None:
        self._broker = broker
        self._random = stream(broker.world.schedule.seed, "cleaning", broker.broker_id, broker.world.starts)
        self.cleaner = open_cleaner(
            broker.logs, broker.disk.directories, config, broker.wall_ms, self._clean_piece_by_piece
        )
        # Who truncates a log or deletes it waits for its cleaning to end, which then needs its turn.
        self.cleaner._changed = _Turns(self._go_on)
        self._turn: _Turn | None = None
        self._is_gone = False

    def clean(self) -> None:
        """Begin to clean, if nothing is cleaned."""
        if self._turn is None and any(log.config.compact for log in self._broker.logs.logs()):
            self._turn = _Turn(self._broker.world.cleaners, self.cleaner.clean_dirtiest)
            self._go_on()

    def stop(self) -> None:
        """End the cleaning as a clean stop does."""
        self.cleaner._stop.set()
        while self._turn is not None:
            self._go_on()

    def abandon(self) -> None:
        """The process is gone."""
        self._is_gone = True

    def close(self) -> None:
        """End the thread; to be called when nobody looks at the files any more."""
        self._is_gone = True
        if self._turn is not None and not self._turn.is_over:
            self._turn.give()

    def _go_on(self) -> None:
        """Let the cleaner go on until its next pause, or its end."""
        turn = self._turn
        assert turn is not None, "nothing is cleaned that could be waited for"
        turn.give()
        if turn.is_over:
            self._turn = None
            self._broker.world.counts["cleanings"] += bool(turn.result)
            for each in self._broker.disk.directories:
                assert not self.cleaner.uncleanable_count(each), f"cleaning has failed in {each}"
        elif not self._is_gone:
            pause_us = int(self._random.expovariate(1 / _MEAN_PAUSE_US)) + 10
            self._broker.after(pause_us, lambda: self._go_on_with(turn))

    def _go_on_with(self, turn: _Turn) -> None:
        if self._turn is turn:
            self._go_on()

    # -- in the thread of the cleaner ------------------------------------------------------------------------

    def _clean_piece_by_piece(self, task: CleanTask, on_group: OnGroup, on_bytes: OnBytes) -> CleanResult:
        def advanced(count: int) -> None:
            if self._random.random() < _PAUSES:
                self._pause()
            on_bytes(count)

        def finished(group: CleanedGroup) -> None:
            self._pause()
            self._broker.world.counts["overlapped cleanings"] += 1
            on_group(group)

        return clean(task, finished, advanced)

    def _pause(self) -> None:
        turn = self._turn
        assert turn is not None
        turn.hand_back()
        if self._is_gone:
            raise GoneError


class _Turn:
    """A call in another thread, which runs only while the simulation waits for it."""

    def __init__(self, threads: Threads, call: Callable[[], Any]) -> None:
        self._call = call
        # Each is released by the side that has to go on.
        self._may_run, self._has_paused = threading.Lock(), threading.Lock()
        self._may_run.acquire()
        self._has_paused.acquire()
        self._error: BaseException | None = None
        self.result: Any = None
        self.is_over = False
        threads.run(self._run)

    def give(self) -> None:
        """Let the thread run until it pauses or ends."""
        self._may_run.release()
        # A process that is stopped for a while lets one of these waits end, and not the turn.
        waits = (self._has_paused.acquire(timeout=_TURN_S / _TURN_WAITS) for _ in range(_TURN_WAITS))
        assert any(waits), "the cleaner waits for something"
        if self._error is not None:
            raise self._error

    def hand_back(self) -> None:
        """Pause; in the thread."""
        self._has_paused.release()
        self._may_run.acquire()

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            self.result = self._call()
        except GoneError:
            pass
        except BaseException as error:
            self._error = error
        self.is_over = True
        self._has_paused.release()


class Threads:
    """Threads that are used again: to start one takes longer than most of a cleaning."""

    def __init__(self) -> None:
        self._all: list[SimpleQueue[Callable[[], None] | None]] = []
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []

    def run(self, call: Callable[[], None]) -> None:
        """Let a thread make a call that hands back the turn when it ends."""
        if not self._idle:
            calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
            self._all.append(calls)
            self._idle.append(calls)
            threading.Thread(target=self._carry_out, args=(calls,), daemon=True).start()
        self._idle.pop().put(call)

    def close(self) -> None:
        """End those whose calls have ended."""
        for each in self._all:
            each.put(None)

    def _carry_out(self, calls: SimpleQueue[Callable[[], None] | None]) -> None:
        while (call := calls.get()) is not None:
            call()
            self._idle.append(calls)


class _Turns(threading.Condition):
    """The condition on which the parts of a broker wait for its cleaner."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        super().__init__()
        self._go_on = go_on

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not (found := predicate()):
            state = self._release_save()
            try:
                self._go_on()
            finally:
                self._acquire_restore(state)
        return found
